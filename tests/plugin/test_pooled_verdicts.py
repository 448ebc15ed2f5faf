"""The verdict of a whole suite: an item of its own that sees what single cases are too weak for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.scored_project import ACCEPT, Ended, ScoredProject, model, scored_suite

SUITE = scored_suite(
    n=30,
    categories=("a", "b", "c", "d"),
    rest="[metrics.gc]\n[gate]\nprimary = ['a/gc', 'b/gc', 'c/gc', 'd/gc']\npooled = true\n",
)

POOLED = "suite-verdict"

FAINT = model(drop="0.05,0.05,0.05,0.012", spread="0.01,0.01,0.01,0.028")
"""Three clear losses, and one that is found at the whole alpha and not at a quarter of it."""


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """Four cases with baselines, and an item for all of them."""
    project = ScoredProject.make(tmp_path_factory.mktemp("pooled"), SUITE)
    ended = project.accept()
    assert POOLED not in ended.cases
    assert len(list(project.baselines.iterdir())) == 5
    return project


@pytest.fixture(scope="module")
def faint(accepted: ScoredProject) -> Ended:
    """The run in which one case is too faint to be seen alone."""
    return accepted.run(FAINT, "-vv")


@pytest.mark.slow
def test_holm_finds_what_a_case_alone_does_not(faint: Ended) -> None:
    """Inconclusive at its share, found by the suite when the others are rejected, and said so."""
    assert faint.code == pytest.ExitCode.TESTS_FAILED
    assert faint.verdicts == {
        "a-gc": "regressed",
        "b-gc": "regressed",
        "c-gc": "regressed",
        "d-gc": "inconclusive",
        "overall-gc": "regressed",
        POOLED: "regressed",
    }
    assert faint.report["alpha"] == pytest.approx(0.05)
    pooled = faint.cases[POOLED]
    assert pooled["alpha"] == pytest.approx(0.05)
    assert pooled["primary"]
    faint.lines.fnmatch_lines(
        [
            "*test_drift?suite-verdict? REGRESSED *",
            "regressed: scored, suite, pooled verdict (*",
            "  a/gc: -0.0*",
            "  d/gc: -0.011* (not seen by the case alone)",
            "=* 3 failed, 1 inconclusive, 1 informational, 1 regressed as a whole in *",
        ]
    )


@pytest.mark.slow
def test_updating_and_choosing_by_marker_leave_it_out(
    accepted: ScoredProject, tmp_path: Path
) -> None:
    """It has no baseline to accept, and a marker that names parts makes no claim of the whole."""
    project = accepted.copy(tmp_path / "updated")
    updated = project.run("-n", "2", ACCEPT, model(drop=0.02))
    assert updated.code == pytest.ExitCode.OK
    assert POOLED not in updated.cases
    assert not list(project.baselines.glob("*verdict*"))
    project.edit(
        "test_scored.py", "def ", "import pytest\n\n@pytest.mark.cep(metrics=['gc'])\ndef "
    )
    assert POOLED not in project.run("--collect-only", "-q").output
