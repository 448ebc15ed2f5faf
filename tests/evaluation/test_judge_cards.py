"""What reports say of the judge: its card, wherever its verdicts were used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_cepbench.cli import main
from pytest_cepbench.report import CaseResult
from pytest_cepbench.report.writers import properties_of
from tests.evaluation.arena_project import ArenaProject

JUDGE = "shapes:?flip=0.1"

WORSE = "shapes:?miss=0.3"

UNKNOWN = "how well it agrees with people is not known here"


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """The folder as working folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> ArenaProject:
    """A project whose judge has a card, which the command measured."""
    project = ArenaProject.make(tmp_path_factory.mktemp("carded"), judge=JUDGE)
    with inside(project.path):
        assert (
            main(["agree", "judges", f"--judge={JUDGE}", "--on=shapes-arena", "--samples=120"]) == 0
        )
    return project


def win_rate(project: ArenaProject, **options: str) -> CaseResult:
    """The battles of a worse model, judged."""
    return project.gate(model=WORSE, **options)["small-arena/overall/win_rate"]


@pytest.mark.slow
def test_every_report_shows_the_card(project: ArenaProject) -> None:
    """Agreement and date: terminal, JSON, JUnit, HTML and Markdown."""
    result = project.gate(model=WORSE, judge=JUDGE, report=str(project.path / "r.json"))
    case = result["small-arena/overall/win_rate"]

    assert case.shown.judge.startswith("agreement 0.")
    for part in ("with the truth of shapes-arena", "measured 20"):
        assert part in case.shown.judge
    line = f"judge of small-arena: {case.shown.judge}"
    assert str(result).count(line) == 1
    assert f"judge: {case.shown.judge}" in str(result)  # why the case fails
    document = json.loads((project.path / "r.json").read_text("utf-8"))
    judges = {c["metric"]: c["shown"]["judge"] for c in document["cases"]}
    assert judges.pop("win_rate") == case.shown.judge
    assert not any(judges.values())
    assert ("cepbench_judge", case.shown.judge) in properties_of(case)
    for suffix in (".html", ".md"):
        assert "judge of small-arena" in (project.path / f"r{suffix}").read_text("utf-8")


def test_another_judge_has_no_card(project: ArenaProject) -> None:
    """Other settings are another judge: its verdicts are not vouched for."""
    other = ArenaProject.make(project.path.parent / "other", judge="shapes:?flip=0.2")
    (other.path / "baselines/judges").symlink_to(project.path / "baselines/judges")
    case = win_rate(other, judge="shapes:?flip=0.2")

    assert UNKNOWN in case.shown.judge


def test_without_a_card_reports_say_so(tmp_path: Path) -> None:
    """And where no verdict was used, nothing."""
    plain = ArenaProject.make(tmp_path / "plain")

    assert UNKNOWN in win_rate(plain).shown.judge
    held = plain.gate()
    assert not held["small-arena/overall/win_rate"].shown.judge
    assert "judge of" not in str(held)


@pytest.mark.slow
def test_a_card_of_a_coin_leaves_a_win_rate_undecided(tmp_path: Path) -> None:
    """A judge that sees nothing decides nothing, whatever the win rate is."""
    coin = "shapes:?flip=0.6"
    project = ArenaProject.make(tmp_path / "coin", judge=coin)
    with inside(project.path):
        assert (
            main(["agree", "judges", f"--judge={coin}", "--on=shapes-arena", "--samples=40"]) == 0
        )
    result = win_rate(project, judge=coin)

    assert result.verdict == "inconclusive"
    assert any("its card says" in line and "sees nothing" in line for line in result.reasons)
