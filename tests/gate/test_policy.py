"""What a policy may say: numbers out of range are refused before anything is judged by them."""

from __future__ import annotations

from math import inf, nan

import pytest

from pytest_cepbench.gate import Policy


def test_the_documented_defaults() -> None:
    """Regression gate, 0.01 tolerated, 0.05 of error, twice the tolerance since the anchor."""
    policy = Policy()
    assert (policy.gate, policy.tolerance, policy.alpha) == ("regression", 0.01, 0.05)
    assert (policy.since_anchor, policy.looks, policy.primary) == (0.02, "bounds", True)


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
