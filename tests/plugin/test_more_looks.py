"""`--cep-inconclusive=more`: looking again while nothing is decided, and no further than that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.scored_project import ScoredProject, model, scored_suite

MORE = "--cep-inconclusive=more"

CLEAR = model(drop=0.05, spread=0.01)

VAGUE = model(drop=0.006, spread=0.05)
"""A drop of which two hundred samples of this spread do not tell whether it is tolerable."""


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> ScoredProject:
    """Two hundred samples, all of them in the baseline; one metric more that fails nothing."""
    suite = scored_suite(
        n=200, rest="[metrics.gc]\n[metrics.s]\n[gate]\nprimary = ['gc']\nalpha = 0.06\n"
    )
    project = ScoredProject.make(tmp_path_factory.mktemp("looks"), suite)
    ended = project.accept(MORE)
    assert ended.cases["overall-gc"]["n"] == 200
    assert not ended.cases["overall-gc"]["partial"]
    return project


def _fresh(project: ScoredProject, tmp_path: Path) -> tuple[ScoredProject, Path]:
    """A copy to fill its own store, and the file in which its describer counts."""
    return project.copy(tmp_path / "copy"), tmp_path / "calls"


@pytest.mark.slow
def test_a_clear_drop_ends_at_the_first_look(accepted: ScoredProject, tmp_path: Path) -> None:
    """Twenty-five descriptions in place of two hundred; the report says that more were there."""
    project, calls = _fresh(accepted, tmp_path)
    ended = project.run("-vv", MORE, CLEAR, "--cep-attribute=0", env={"CALLS": str(calls)})
    assert ended.code == pytest.ExitCode.TESTS_FAILED
    gc = ended.cases["overall-gc"]
    assert (gc["verdict"], gc["looks"], gc["n"], gc["partial"]) == ("regressed", [25], 25, True)
    assert len(gc["measured"]["scores"]["one"]) == 25
    assert len(calls.read_text()) == 25
    ended.lines.fnmatch_lines(
        [
            "  alpha *0.06   0.01 of each test and bound, divided among the looks",
            "  looked at 25 samples; more are there",
        ]
    )
    whole = project.run(CLEAR, "--cep-attribute=0", env={"CALLS": str(calls)})
    assert whole.cases["overall-gc"]["looks"] == [200]
    assert len(calls.read_text()) == 200


@pytest.mark.slow
def test_workers_look_as_often(accepted: ScoredProject) -> None:
    """25, 50, 100, 200 samples, on two workers as in one process, with the same bounds."""
    ended = accepted.run("-n", "2", MORE, VAGUE, "-k", "gc")
    assert ended.code == pytest.ExitCode.OK
    case = ended.cases["overall-gc"]
    assert (case["looks"], case["partial"], case["n"]) == ([25, 50, 100, 200], False, 200)
    assert case["verdict"] == "inconclusive"
    assert ended.numbers == accepted.run(MORE, VAGUE, "-k", "gc").numbers
