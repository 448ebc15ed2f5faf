"""The analysis of training curves: known answers, properties, and where there is no answer."""

from __future__ import annotations

from itertools import combinations
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.curves.analysis import concordance, disordered, falls, kendall, saturation, tau
from benchmarks.curves.resampling import Array, draw, estimate, recentred
from pytest_cepbench.metrics import correlation

STEPS = (100, 200, 400, 800)

columns = st.lists(st.integers(0, 4), min_size=3, max_size=7)


def replicates(values: list[float], spread: float = 0.01, seed: int = 0) -> Array:
    """(m, 400) replicates around values, each with noise of its own."""
    noise = np.random.default_rng(seed).normal(0, spread, (len(values), 400))
    return np.array(values)[:, None] + noise


# -- draws -----------------------------------------------------------------------------------------


def test_draws_stay_within_their_category() -> None:
    """Each place is drawn from its own category, the same for the same seed, and does vary."""
    categories = ["a", "b", "a", "b", "b"]

    drawn = draw(categories, 50, seed=3)

    assert all(categories[i] == categories[at] for places in drawn for at, i in enumerate(places))
    assert (drawn == draw(categories, 50, seed=3)).all()
    assert len(np.unique(drawn, axis=0)) > 10


def test_an_interval_holds_the_middle_of_the_draws() -> None:
    """Percentiles of 1..1000; none where more than a twentieth of the draws has no value."""
    whole = np.arange(1.0, 1001.0)

    actual = estimate(500.0, whole)

    assert actual.low == pytest.approx(25.975)
    assert actual.high == pytest.approx(975.025)
    few = np.where(whole <= 60, np.nan, whole)
    assert estimate(500.0, few).low is None
    assert estimate(500.0, np.where(whole <= 40, np.nan, whole)).low is not None


def test_recentring_moves_and_does_not_stretch() -> None:
    """Replicates have their mean at the value, and their differences as before."""
    drawn = np.array([3.0, 5.0, np.nan, 10.0])

    moved = recentred(drawn, 2.0)

    assert np.nanmean(moved) == pytest.approx(2.0)
    assert moved[1] - moved[0] == pytest.approx(2.0)


# -- over the checkpoints --------------------------------------------------------------------------


def test_a_fall_beyond_noise_is_found_and_noise_is_not() -> None:
    """Of four checkpoints, the third falls by ten times the noise, the last by a tenth of it."""
    values = [0.5, 0.8, 0.6, 0.799]

    actual = falls(STEPS, np.array(values), replicates(values))

    assert [(fall.earlier, fall.later) for fall in actual] == [(200, 400)]
    assert actual[0].change.value == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("values", "first"),
    [
        ([0.2, 0.5, 0.9, 0.901], 400),
        ([0.2, 0.5, 0.7, 0.9], None),
        ([0.9, 0.9, 0.9, 0.9], 100),
        ([0.9, 0.2, 0.9, 0.9], 400),  # a checkpoint that was as good before a fall does not count
    ],
)
def test_a_curve_levels_off_where_nothing_later_differs(
    values: list[float], first: int | None
) -> None:
    """The first step of the plateau that the series ends on."""
    assert saturation(STEPS, np.array(values), replicates(values), 0.01) == first


def test_a_difference_within_the_tolerance_is_none() -> None:
    """However sure: a hundredth counts at a tolerance below it, and not at one above."""
    values = [0.2, 0.5, 0.89, 0.90]
    sure = replicates(values, spread=1e-5)

    assert saturation(STEPS, np.array(values), sure, 0.02) == 400
    assert saturation(STEPS, np.array(values), sure, 0.005) is None


@given(columns, st.randoms(use_true_random=False))
def test_kendall_is_the_packages_own(first: list[int], random: object) -> None:
    """Tau of many columns at once equals that of the package for each; NaN where it has none."""
    x = np.array(first, dtype=float)
    y = np.random.default_rng(len(first)).permutation(x)

    actual = float(kendall(x, y))
    known = correlation(x, y, "kendall")

    assert (known is None) == bool(np.isnan(actual))
    assert known is None or actual == pytest.approx(known.value)


@pytest.mark.parametrize("count", [2, 4, 7])
def test_p_of_a_perfect_order_is_the_least_there_is(count: int) -> None:
    """Two orders of m!, up and down, are as far from 0: no series of four can be below 0.05."""
    values = np.arange(float(count))
    drawn = replicates(values.tolist())

    actual = tau(values, values**2, drawn, drawn)

    assert actual is not None
    assert (actual.value, actual.low, actual.high) == (1.0, 1.0, 1.0)
    assert actual.p == pytest.approx(2 / factorial(count), abs=1e-6)


def test_p_is_that_of_scipy() -> None:
    """An order that is neither perfect nor random has the exact p-value that scipy computes."""
    stats = pytest.importorskip("scipy.stats", reason="scipy comes with the [models] extra")
    x, y = np.arange(6.0), np.array([1.0, 0.0, 2.0, 5.0, 3.0, 4.0])

    actual = tau(x, y, replicates(x.tolist()), replicates(y.tolist()))

    known = stats.kendalltau(x, y, method="exact")
    assert actual is not None
    assert actual.value == pytest.approx(known.statistic, abs=1e-6)
    assert actual.p == pytest.approx(known.pvalue, abs=1e-6)


def test_noise_widens_the_interval_of_tau() -> None:
    """Checkpoints within their noise could be in another order, and the interval says so."""
    values = [0.2, 0.5, 0.9, 0.9001]
    steps = np.arange(4.0)

    actual = tau(
        np.array(values), steps, replicates(values), np.repeat(steps[:, None], 400, axis=1)
    )

    assert actual is not None
    assert actual.value == 1.0
    assert actual.low == pytest.approx(2 / 3, abs=1e-6)


def test_tau_of_a_constant_is_none() -> None:
    """A metric that never changes orders nothing."""
    steps = np.arange(4.0)

    assert tau(np.ones(4), steps, replicates([1.0] * 4), replicates(steps.tolist())) is None


@pytest.mark.slow
def test_p_of_many_checkpoints_is_drawn() -> None:
    """Eleven have too many orders to count: a random share of them, near what scipy computes."""
    stats = pytest.importorskip("scipy.stats", reason="scipy comes with the [models] extra")
    x = np.arange(11.0)
    y = np.array([1.0, 0.0, 4.0, 2.0, 7.0, 3.0, 10.0, 5.0, 8.0, 6.0, 9.0])

    actual = tau(x, y, replicates(x.tolist()), replicates(y.tolist()))

    assert actual is not None
    assert actual.p == pytest.approx(stats.kendalltau(x, y, method="exact").pvalue, rel=0.1)


def test_pairs_in_opposite_order_are_named() -> None:
    """A pair counts where both columns differ and disagree; ties disagree with nothing."""
    metric = np.array([0.1, 0.5, 0.4, 0.9])
    truth = np.array([0.1, 0.2, 0.3, 0.3])

    assert disordered(STEPS, metric, truth) == ((200, 400),)


# -- over the chains of a checkpoint ---------------------------------------------------------------


def test_concordance_of_known_orders() -> None:
    """1 where the score orders as the truth, 0 reversed, one half for a score that says nothing."""
    truth = np.array([0.0, 0.0, 1.0, 1.0, 1.0])
    drawn = draw(["a"] * 5, 20, seed=0)
    scores = {1.0: np.arange(5.0), 0.0: -np.arange(5.0), 0.5: np.zeros(5)}

    for expected, score in scores.items():
        actual = concordance(score, truth, drawn)
        assert actual is not None
        assert actual.value == expected

    assert concordance(np.arange(5.0), np.ones(5), drawn) is None


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=2, max_size=8))
def test_concordance_counts_pairs(pairs: list[tuple[int, int]]) -> None:
    """It is the share of pairs of which the one that kept more scores higher, ties one half."""
    scores, truth = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    drawn = draw(["a"] * len(pairs), 30, seed=1)

    actual = concordance(scores, truth, drawn)

    def counted(of: list[int]) -> float | None:
        differ = [(i, j) for i, j in combinations(of, 2) if truth[i] != truth[j]]
        right = [np.sign(scores[i] - scores[j]) * np.sign(truth[i] - truth[j]) for i, j in differ]
        return float(np.mean([(1 + sign) / 2 for sign in right])) if right else None

    known = counted(list(range(len(pairs))))
    assert (actual is None) == (known is None)
    if actual is not None and known is not None:
        assert actual.value == pytest.approx(known, abs=1e-6)
        over_draws = [value for value in (counted(list(row)) for row in drawn) if value is not None]
        if actual.low is not None and len(over_draws) == len(drawn):
            assert actual.low == pytest.approx(np.quantile(over_draws, 0.025), abs=1e-6)
