"""`--cep-report`: JSON with all that `cepbench accept` needs; the page and summary beside it."""

from __future__ import annotations

import json

import pytest

from tests.plugin.project import MODES, TEST_MODULE, Project
from tests.plugin.scored_project import ScoredProject, model, scored_suite

CANDIDATE = model(drop="0.05,-0.05", spread="0.01,0.05")


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """Two categories and the whole, accepted."""
    suite = scored_suite(n=60, categories=("<blink>&|worse", "better"))
    project = ScoredProject.make(tmp_path_factory.mktemp("reports"), suite)
    project.accept()
    return project


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["no-plugin", "n2"])
def test_three_files_say_the_same(accepted: ScoredProject, mode: str) -> None:
    """Beside each other under one name; what data sets named is escaped in page and summary."""
    ended = accepted.run(*MODES[mode], CANDIDATE, f"--cep-report=out/{mode}.json")
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    place = accepted.path / "out"
    assert {file.name for file in place.glob(f"{mode}.*")} == {
        f"{mode}.{suffix}" for suffix in ("json", "html", "md")
    }
    ended.lines.fnmatch_lines([f"report: out/{mode}.html (and .json, .md)"])
    document = json.loads((place / f"{mode}.json").read_text())
    assert document["schema"] == 2
    assert document["verdict"] == "failed"
    assert document["counts"] == {"improved": 1, "held": 1, "regressed": 1}
    page, summary = ((place / f"{mode}.{suffix}").read_text() for suffix in ("html", "md"))
    for text in (page, summary):
        assert "<blink>" not in text
        assert "&lt;blink&gt;" in text
        for word in ("REGRESSED", "IMPROVED", "HELD"):
            assert word in text
    assert "## Do not ship: 1 of 3" in summary


def test_a_case_carries_its_measurement(accepted: ScoredProject) -> None:
    """All scores, how many cases the suite has, and whether more samples were there."""
    ended = accepted.run(CANDIDATE, "-k", "better", "--cep-inconclusive=more")
    (case,) = ended.report["cases"]
    assert case["of"] == 3
    assert (case["partial"], case["looks"]) == (True, [25])
    measured = case["measured"]
    assert (measured["case"], measured["n"]) == ("scored/better/gc", 25)
    scores = measured["scores"]["better"].values()
    assert case["value"] == measured["value"] == pytest.approx(sum(scores) / 25, abs=1e-6)
    assert measured["identity"] == case["identity"]
    whole = accepted.run(CANDIDATE, "-k", "better").report["cases"][0]
    assert (whole["partial"], whole["measured"]["n"]) == (False, 60)


@pytest.mark.parametrize("name", ["noend", "strange.txt"])
def test_whatever_the_name_the_files_have_their_own_endings(
    accepted: ScoredProject, name: str
) -> None:
    """The JSON is where programs look for it: .json."""
    accepted.run(CANDIDATE, "-k", "better", f"--cep-report=odd/{name}")
    assert json.loads((accepted.path / "odd" / f"{name}.json").read_text())["verdict"] == "passed"


def _run(project: Project, *args: str) -> tuple[int, set[str]]:
    """Exit code, and which reports are there afterwards, those of an earlier run put there."""
    place = project.path / ".cepbench"
    place.mkdir(exist_ok=True)
    names = ("report.json", "report.html", "report.md")
    for name in names:
        (place / name).write_text("passed")
    code = int(project.run(*args, "-p", "no:xdist").ret)
    return code, {name for name in names if (place / name).exists()}


@pytest.mark.parametrize(
    ("args", "code", "broken"),
    [
        (("--model=python:nowhere:model",), 4, ""),
        (("-k", "nothing", "--model=shapes:"), 5, ""),
        (("--model=shapes:",), 4, "name = "),
        (("--cep-data=nowhere=data",), 4, ""),
        (("--model=shapes:", "-p", "killing"), 9, ""),
        ((), 3, "importorskip"),
    ],
    ids=["model", "nothing", "suite", "name", "killed", "skipped"],
)
def test_no_earlier_report_stays_beside_a_run_that_has_none(
    toy: Project, args: tuple[str, ...], code: int, broken: str
) -> None:
    """Whatever kept it from judging a case: a step of CI that reads the report finds none."""
    toy.write("killing.py", "import os\n\ndef pytest_runtest_call():\n    os._exit(9)\n")
    if broken == "importorskip":
        toy.write("test_toy.py", f"import pytest\n\npytest.importorskip('nothing')\n{TEST_MODULE}")
    elif broken:
        toy.write("suite.toml", broken)
    assert _run(toy, *args) == (code, set())


@pytest.mark.parametrize("args", [("--cep-plan",), ("--collect-only",), ("test_other.py",)])
def test_a_run_that_is_to_judge_nothing_leaves_reports_alone(
    toy: Project, args: tuple[str, ...]
) -> None:
    """A plan, a list, and tests that have nothing to do with models."""
    toy.write("test_other.py", "def test_other():\n    pass\n")
    assert _run(toy, *args) == (0, {"report.json", "report.html", "report.md"})
