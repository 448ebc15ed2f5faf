"""The table of verdicts: complete, and open only for what compared well or could not tell."""

from __future__ import annotations

import itertools
from math import inf, nan

import pytest

from pytest_cepbench.gate import PRESENTATIONS, Policy, Verdict, present

SHOWN = {
    Verdict.IMPROVED: ("passed", "+", "green", 0),
    Verdict.HELD: ("passed", ".", "green", 0),
    Verdict.INCONCLUSIVE: ("inconclusive", "?", "yellow", 0),
    Verdict.REGRESSED: ("failed", "F", "red", 1),
    Verdict.NO_BASELINE: ("failed", "F", "yellow", 1),
    Verdict.INCOMPARABLE: ("error", "E", "yellow", 1),
    Verdict.ERROR: ("error", "E", "red", 1),
    Verdict.INCOMPLETE: ("error", "E", "red", 3),
}

INFORMATIONAL = ("informational", "i", "yellow", 0)

PASSING = {Verdict.IMPROVED, Verdict.HELD}


def _row(verdict: Verdict, *, primary: bool = True, strict: bool = False) -> tuple[object, ...]:
    shown = present(verdict, primary=primary, strict=strict)
    return shown.outcome, shown.letter, shown.color, shown.exit_code


def test_every_verdict_has_a_row() -> None:
    """A verdict without a presentation would crash the report of the run it decides."""
    assert PRESENTATIONS.keys() == SHOWN.keys() == set(Verdict)


@pytest.mark.parametrize("verdict", Verdict)
def test_a_verdict_shows_as_it_is_documented(verdict: Verdict) -> None:
    """Strict fails what the samples do not tell; an informational case fails no run but an
    incomplete one. A row passes where its exit code is 0, and green means passed.
    """
    assert present(verdict) == PRESENTATIONS[verdict]
    assert _row(verdict) == SHOWN[verdict]
    undecided = verdict is Verdict.INCONCLUSIVE
    assert _row(verdict, strict=True) == (
        ("failed", "?", "yellow", 1) if undecided else SHOWN[verdict]
    )
    informational = SHOWN[verdict] if verdict in (*PASSING, Verdict.INCOMPLETE) else INFORMATIONAL
    for strict in (False, True):
        assert _row(verdict, primary=False, strict=strict) == informational
        passes = verdict in PASSING or (undecided and not strict)
        assert present(verdict, strict=strict).passes == passes
    for primary, strict in itertools.product([True, False], repeat=2):
        row = present(verdict, primary=primary, strict=strict)
        assert row.passes == (row.exit_code == 0)
        assert (row.color == "green") == (row.outcome == "passed")
        assert row.meaning
        assert row.next_step
        assert not (row.meaning + row.next_step).endswith(".")


def test_the_documented_defaults() -> None:
    """Regression gate, 0.01 tolerated, 0.05 of error, twice the tolerance since the anchor."""
    policy = Policy()
    assert (policy.gate, policy.tolerance, policy.alpha) == ("regression", 0.01, 0.05)
    assert (policy.since_anchor, policy.primary) == (0.02, True)


@pytest.mark.parametrize("tolerance", [-0.01, -1e-12, nan, inf, -inf])
def test_a_tolerance_that_allows_everything_or_nothing_is_refused(tolerance: float) -> None:
    """NaN would fail every case, infinity pass every one; the same since the anchor."""
    with pytest.raises(ValueError, match=f"a tolerance is a number of at least 0, got {tolerance}"):
        Policy(tolerance=tolerance)
    with pytest.raises(ValueError, match=f"an anchor tolerance is .* 0, got {tolerance}"):
        Policy(anchor_tolerance=tolerance)


@pytest.mark.parametrize("alpha", [0.0, -0.05, 0.5000001, 1.0, 2.0, nan, inf])
def test_an_alpha_that_is_no_error_probability_is_refused(alpha: float) -> None:
    """At 0 nothing is ever decided, beyond one half a bound lies on the wrong side of the mean."""
    with pytest.raises(ValueError, match=f"alpha is a number over 0 and at most 0.5, got {alpha}"):
        Policy(alpha=alpha)


def test_the_anchor_has_a_tolerance_of_its_own_where_one_is_said() -> None:
    """Else it follows the tolerance, 0 among them; only the threshold gate does without alpha."""
    assert Policy(tolerance=0.03, anchor_tolerance=0.04).since_anchor == 0.04
    assert Policy(tolerance=0.03, alpha=0.5, anchor_tolerance=0.0).since_anchor == 0.0
    assert Policy(tolerance=0.03).since_anchor == 0.06
    assert Policy(tolerance=0.0).since_anchor == 0.0
    assert Policy(gate="noninferiority").statistical
    assert not Policy(gate="threshold").statistical
