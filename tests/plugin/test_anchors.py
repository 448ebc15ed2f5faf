"""Anchors: small tolerated steps that add up are seen, in the summary, the failure and the JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.project import MODES
from tests.plugin.scored_project import ScoredProject, model, scored_suite

STEP = 0.008
"""Less than the tolerance of 0.01; three steps are more than the anchor's 0.02."""

CHANCE = 116
"""A draw whose mean over thirty samples is zero."""

CASE = "overall-gc"


def _step(number: int) -> str:
    """So many steps from where it began; the differences of two scatter by .3 of their mean."""
    return model(drop=round(number * STEP, 4), spread=round(number * STEP * 0.3, 4), chance=CHANCE)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """One step has been accepted: no anchor yet, and the summary speaks of a new case."""
    project = ScoredProject.make(tmp_path_factory.mktemp("anchors"), scored_suite(n=30))
    ended = project.accept(_step(0))
    ended.lines.fnmatch_lines(["1 new case", "1 baseline written below baselines: commit them"])
    assert "changed " not in ended.output
    assert not (project.baselines / "anchors").exists()
    return project


@pytest.fixture(scope="module")
def second(first: ScoredProject, tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """Two steps have been accepted: the first is frozen, byte for byte."""
    before = first.baseline(CASE).read_bytes()
    project = first.copy(tmp_path_factory.mktemp("second") / "project")
    ended = project.accept(_step(1))
    ended.lines.fnmatch_lines(
        [
            (
                "changed scored/overall/gc: 0.8000 -> 0.7920 (-0.00*), n = 30, "
                "*one before is its anchor"
            ),
            "1 baseline written below baselines: commit them",
        ]
    )
    assert "new cases" not in ended.output
    assert project.baseline(CASE, anchor=True).read_bytes() == before
    assert project.baseline(CASE).read_bytes() != before
    return project


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["no-plugin", "n2"])
def test_steps_that_add_up_are_regressed(second: ScoredProject, mode: str, tmp_path: Path) -> None:
    """Each within the tolerance of the last: the anchor remembers, and the failure says so."""
    project = second.copy(tmp_path / "third")
    changed = project.accept(_step(2))
    changed.lines.fnmatch_lines(["changed scored/overall/gc: 0.7920 -> 0.7840 (-0.00*), n = 30"])
    assert "anchor" not in changed.output
    ended = project.run("-vv", *MODES[mode], _step(3))
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    case = ended.cases[CASE]
    assert case["verdict"] == case["anchor"]["verdict"] == "regressed"
    assert -case["tolerance"] < case["difference"] < 0
    assert case["anchor"]["difference"] == pytest.approx(-3 * STEP, abs=3e-4)
    ended.lines.fnmatch_lines(
        [
            "regressed: scored, overall, GC@1 (*",
            "  alpha *0.05   0.025 of each test and bound, divided among baseline",
            "  since anchor    -0.02*   anchor 0.8000, *",
            "*-0.0200, regressed",
            "  the steps since the anchor add up to -0.02*, and -0.0200 is tolerated",
        ]
    )


@pytest.mark.parametrize("damage", ["nonsense", "format = 99"])
def test_an_anchor_that_cannot_be_read_is_an_error(
    second: ScoredProject, tmp_path: Path, damage: str
) -> None:
    """Named apart from the baseline, and no pass: without it steps could add up unseen."""
    project = second.copy(tmp_path / "damaged")
    anchor = project.baseline(CASE, anchor=True)
    anchor.write_text(anchor.read_text().replace("format = 2", damage))
    ended = project.run("-vv", _step(1))
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    assert ended.verdicts == {CASE: "error"}
    ended.lines.fnmatch_lines([f"  *anchors/{anchor.name} *"])
