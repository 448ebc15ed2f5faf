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
    assert PRESENTATIONS.keys() == set(Verdict)
    assert SHOWN.keys() == set(Verdict)


@pytest.mark.parametrize("verdict", Verdict)
def test_a_case_that_can_fail_a_run_shows_its_row(verdict: Verdict) -> None:
    """Outcome, letter, color and exit code as they are documented."""
    assert _row(verdict) == SHOWN[verdict]
    assert present(verdict) == PRESENTATIONS[verdict]


@pytest.mark.parametrize("verdict", Verdict)
def test_strict_fails_what_the_samples_do_not_tell(verdict: Verdict) -> None:
    """`--cep-inconclusive=fail` changes the one row; its letter still says why it failed."""
    expected = SHOWN[verdict]
    if verdict is Verdict.INCONCLUSIVE:
        expected = ("failed", "?", "yellow", 1)
    assert _row(verdict, strict=True) == expected


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("verdict", Verdict)
def test_an_informational_case_never_fails_a_run(verdict: Verdict, strict: bool) -> None:
    """What would not pass is shown as informational; only a run that is incomplete still fails."""
    expected = SHOWN[verdict] if verdict in (*PASSING, Verdict.INCOMPLETE) else INFORMATIONAL
    assert _row(verdict, primary=False, strict=strict) == expected


def test_the_gate_fails_closed() -> None:
    """Nothing lets a run pass but a comparison that was made; not being able to tell may."""
    passing = {verdict for verdict in Verdict if present(verdict).passes}
    assert passing == {*PASSING, Verdict.INCONCLUSIVE}
    assert {verdict for verdict in Verdict if present(verdict, strict=True).passes} == PASSING


@pytest.mark.parametrize("verdict", Verdict)
def test_a_row_does_not_contradict_itself(verdict: Verdict) -> None:
    """However a verdict shows: it passes where the exit code is 0, and green means passed."""
    for primary, strict in itertools.product([True, False], repeat=2):
        row = present(verdict, primary=primary, strict=strict)
        assert row.passes == (row.exit_code == 0)
        assert (row.color == "green") == (row.outcome == "passed")


@pytest.mark.parametrize("verdict", Verdict)
def test_every_row_says_what_it_means_and_what_to_do(verdict: Verdict) -> None:
    """Sentences without a full stop: they stand inside others. Informational cases keep them."""
    row = present(verdict)
    assert row.meaning
    assert row.next_step
    assert not (row.meaning + row.next_step).endswith(".")
    informational = present(verdict, primary=False)
    assert (informational.meaning, informational.next_step) == (row.meaning, row.next_step)


def test_letters_tell_apart_what_the_progress_line_shows() -> None:
    """One letter for each outcome that is counted, and one of its own for an improvement."""
    letters = {(row.outcome, row.letter) for row in PRESENTATIONS.values()}
    assert len({letter for _, letter in letters}) == len(letters) == 5


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


def test_the_ends_of_the_ranges_are_allowed() -> None:
    """No tolerance at all, and an even chance of error."""
    policy = Policy(tolerance=0.0, alpha=0.5, anchor_tolerance=0.0)
    assert (policy.tolerance, policy.alpha, policy.since_anchor) == (0.0, 0.5, 0.0)


def test_the_anchor_has_a_tolerance_of_its_own_where_one_is_said() -> None:
    """Else it follows the tolerance, 0 among them."""
    assert Policy(tolerance=0.03, anchor_tolerance=0.04).since_anchor == 0.04
    assert Policy(tolerance=0.03, anchor_tolerance=0.0).since_anchor == 0.0
    assert Policy(tolerance=0.03).since_anchor == 0.06


def test_only_the_threshold_gate_does_without_statistics() -> None:
    """The two others need their share of alpha."""
    gates = [Policy(gate=gate) for gate in ("regression", "noninferiority", "threshold")]
    assert [policy.statistical for policy in gates] == [True, True, False]
