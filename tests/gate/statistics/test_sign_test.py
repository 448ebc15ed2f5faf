"""Win rates: the exact sign test against SciPy's, and bounds that count ties as half."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics import win_rate

BATTLES = st.tuples(*[st.integers(0, 60)] * 3).filter(any)


@given(BATTLES)
def test_p_values_are_those_of_the_decided_battles(battles: tuple[int, int, int]) -> None:
    """Binomial over wins and losses; ties say nothing of who is better."""
    stats = pytest.importorskip("scipy.stats", reason="the reference is SciPy's binomtest")
    wins, losses, ties = battles
    found = win_rate(wins, losses, ties, 0.05)
    for count, p in [(wins, found.p_better), (losses, found.p_worse)]:
        decided = wins + losses
        expected = stats.binomtest(count, decided, alternative="greater").pvalue if decided else 1
        assert p == pytest.approx(expected, rel=1e-9)


@given(BATTLES, st.sampled_from([0.001, 0.05, 0.5]))
def test_the_rate_counts_a_tie_as_half(battles: tuple[int, int, int], alpha: float) -> None:
    """Between its bounds, which turn around when the models change places."""
    wins, losses, ties = battles
    found, other = win_rate(wins, losses, ties, alpha), win_rate(losses, wins, ties, alpha)
    assert found.rate == (wins + ties / 2) / sum(battles)
    assert found.rate == pytest.approx(1 - other.rate)
    assert found.p_better == other.p_worse
    assert (found.low, found.high) == pytest.approx((1 - other.high, 1 - other.low), abs=1e-9)
    assert 0 <= found.low <= found.high <= 1


def test_without_ties_the_bounds_are_clopper_and_pearsons() -> None:
    """The usual exact interval of a share."""
    stats = pytest.importorskip("scipy.stats", reason="the reference is SciPy's binomtest")
    interval = stats.binomtest(31, 50).proportion_ci(0.9)
    found = win_rate(31, 19, 0, 0.05)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_ties_narrow_the_bounds_and_leave_the_test_alone() -> None:
    """Fifty ties more: who is better is as open as before, that the two are close is clearer."""
    few, many = win_rate(12, 8, 0, 0.05), win_rate(12, 8, 50, 0.05)
    assert few.p_better == many.p_better
    assert many.high - many.low < few.high - few.low
    only = win_rate(0, 0, 9, 0.05)
    assert (only.p_better, only.p_worse, only.rate) == (1.0, 1.0, 0.5)


def test_thousands_of_battles_are_exact() -> None:
    """Far in the tail, where floating sums would round to 0."""
    found = win_rate(1400, 600, 0, 0.05)
    assert found.p_better == pytest.approx(2.9e-73, rel=0.05)
    assert found.p_worse == 1.0


@pytest.mark.parametrize("battles", [(0, 0, 0), (-1, 3, 0)])
def test_no_battle_is_refused(battles: tuple[int, int, int]) -> None:
    """A rate of nothing, or of fewer than nothing."""
    with pytest.raises(ValueError, match="at least one battle"):
        win_rate(*battles, 0.05)
