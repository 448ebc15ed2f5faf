"""The table of verdicts: complete, and open for one verdict only."""

from __future__ import annotations

import pytest

from pytest_cepbench.gate import PRESENTATIONS, Verdict


def test_every_verdict_has_a_row() -> None:
    """A verdict without a presentation would crash the report of the run it decides."""
    assert PRESENTATIONS.keys() == set(Verdict)


def test_only_held_passes() -> None:
    """The gate fails closed: no other verdict lets a run pass or end with 0."""
    assert [verdict for verdict in Verdict if PRESENTATIONS[verdict].passes] == [Verdict.HELD]
    assert [verdict for verdict in Verdict if not PRESENTATIONS[verdict].exit_code] == [
        Verdict.HELD
    ]


@pytest.mark.parametrize("verdict", Verdict)
def test_a_row_does_not_contradict_itself(verdict: Verdict) -> None:
    """Outcome, letter and color of a verdict tell the same story."""
    row = PRESENTATIONS[verdict]
    assert row.letter == {"passed": ".", "failed": "F", "error": "E"}[row.outcome]
    assert (row.color == "green") == row.passes
    assert row.meaning
    assert not row.meaning.endswith(".")
