"""`cepbench compare --html`: chains of both runs side by side, from the stores of real runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from html import unescape
from pathlib import Path

import pytest

from pytest_cepbench.cli import main
from tests.plugin.project import contents
from tests.plugin.scored_project import ScoredProject, model, scored_suite
from tests.report.pages import read_page

REPORTS = ("before.json", "after.json")

LOST = model(drop=0.2, spread=0.1)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """Reports of two checkpoints of a suite, the second of which is worse."""
    project = ScoredProject.make(tmp_path_factory.mktemp("compared"), scored_suite(n=12))
    project.accept("--cep-report=before.json")
    project.run(LOST, "--cep-report=after.json")
    return project


@pytest.fixture
def project(
    measured: ScoredProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ScoredProject:
    """A copy, in which the command is run."""
    copy = measured.copy(tmp_path / "copy")
    monkeypatch.chdir(copy.path)
    return copy


def page_of(project: ScoredProject, *argv: str) -> str:
    """The page that the command writes."""
    assert main(["compare", *REPORTS, "--html=page.html", *argv]) == 0
    return (project.path / "page.html").read_text()


def rows_of(page: str, name: str) -> list[str]:
    """The rows of chains that have this name."""
    return re.findall(
        rf'<tr class="(?:before|now)"><th scope="row">{name}</th>.*?</tr>', page, re.DOTALL
    )


def test_both_chains_of_the_samples_that_differ_most(project: ScoredProject) -> None:
    """A row for each run from the same start, with the first difference; stores stay."""
    store = contents(project.path / ".cepbench" / "store" / "images")
    page = page_of(project)
    before, after = rows_of(page, "before"), rows_of(page, "after")

    assert len(before) == len(after) == 3
    for one, other in zip(before, after, strict=True):
        starts = [re.findall(r'href="#(image-\w+)"', row)[0] for row in (one, other)]
        assert starts[0] == starts[1]
        assert f'<image id="{starts[0]}"' in page
        assert "<del>" in one
        assert "<ins>" in other
    assert page.count("first difference") == 3
    assert "Measure that model" not in page
    assert not read_page(page).tags & {"link", "form", "iframe"}
    assert contents(project.path / ".cepbench" / "store" / "images") == store


@pytest.mark.slow
def test_chains_of_another_store(project: ScoredProject) -> None:
    """It is named; without any the page has the commands that make them, which do."""
    shutil.rmtree(project.path / ".cepbench" / "store")
    alone = page_of(project)
    assert not rows_of(alone, "after")
    assert "none is here: 3 of 3 chains of before, 3 of 3 chains of after." in alone
    (text,) = re.findall("<pre>(.*?)</pre>", alone)
    for command in unescape(text).split(" && "):
        program, *arguments = shlex.split(command)
        assert program == "pytest"
        project.run(*arguments)
    assert len(rows_of(page_of(project), "after")) == 3
    (project.path / ".cepbench" / "store").rename(project.path / "team")
    assert len(rows_of(page_of(project, "--store=team"), "after")) == 3


def test_a_suite_that_changed_since(project: ScoredProject) -> None:
    """Chains by other prompts would be of other runs: the page says what changed."""
    project.edit("suite.toml", 'describe = "describe"', 'describe = "describe it"')
    page = page_of(project)
    assert not rows_of(page, "after")
    assert "suite.toml is not as it was measured: describe prompt changed since" in page


def test_a_suite_that_is_elsewhere(project: ScoredProject, tmp_path: Path) -> None:
    """It is not guessed, and can be named."""
    (project.path / "suite.toml").rename(tmp_path / "moved.toml")
    assert "or name it with --suite-file" in page_of(project)
    page = page_of(project, f"--suite-file={tmp_path / 'moved.toml'}")
    assert len(rows_of(page, "before")) == 3


def test_what_a_report_names_is_not_run(project: ScoredProject) -> None:
    """Neither the spec of its model, which may import any code, nor a suite elsewhere."""
    evil = project.path / "evil.py"
    evil.write_text("import pathlib\npathlib.Path('ran').touch()\n")
    report = project.path / "after.json"
    text = report.read_text()
    report.write_text(text.replace('"python:scored:Describer', '"python:evil:Model'))
    assert "python:evil:Model" in report.read_text()
    assert len(rows_of(page_of(project), "after")) == 3

    report.write_text(text.replace('\\"role\\":\\"describer\\"', '\\"role\\":\\"judge\\"'))
    assert "model.step of a report is not of its describer" in page_of(project)

    (project.path / "deeper").mkdir()
    os.chdir(project.path / "deeper")
    report.write_text(text.replace('"nodeid": "', '"nodeid": "../'))
    assert main(["compare", "../before.json", "../after.json", "--html=../page.html"]) == 0
    assert "is not beside '../test_scored.py'" in unescape((project.path / "page.html").read_text())
    assert not list(project.path.rglob("ran"))


def test_a_wrong_place_is_one_line(
    project: ScoredProject, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written, and nothing made at the place."""
    assert main(["compare", *REPORTS, "--html=page.html", "--store=suite.toml"]) == 2
    message = "--store 'suite.toml': the folder or URL of a store is expected"
    assert capsys.readouterr().err == f"cepbench: {message}\n"
    assert not (project.path / "page.html").exists()
