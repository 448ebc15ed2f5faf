"""Upper bounds by flipping signs: exact for few units, by a subgroup of flips for more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import floor, sqrt

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics import Differences, mean_bounds
from pytest_cepbench.gate.statistics.exact import upper_symmetric
from pytest_cepbench.gate.statistics.sign_flips import GENERATORS, upper_flipped
from tests.gate.statistics.build import SCORE, Array

ALPHAS = (0.05, 0.05 / 6, 0.05 / 40)

LEVEL = st.sampled_from([*ALPHAS, 0.3, 0.5, 1e-5, 1e-7])

UNITS = st.lists(st.tuples(SCORE, st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=24)
"""Values and weights: of up to 17 units all flips count, of more a part."""


def _bound(units: list[tuple[float, float]], alpha: float) -> float | None:
    values, weights = np.array(units).T
    return upper_flipped(values, weights, alpha)


def _plain(values: Array, alpha: float) -> float | None:
    return upper_flipped(values, np.ones(len(values)), alpha)


@given(st.lists(st.tuples(SCORE, st.sampled_from([0.5, 1.0])), min_size=1, max_size=8), LEVEL)
def test_of_few_units_it_is_the_quantile_of_all_subsets(
    units: list[tuple[float, float]], alpha: float
) -> None:
    """Every subset but the empty one has a weighted mean, counted one by one."""
    values, weights = np.array(units).T
    chosen = np.array([turn for turn in product([0, 1], repeat=len(units)) if any(turn)])
    means = np.sort(chosen @ (weights * values) / (chosen @ weights))[::-1]
    among = floor(alpha * 2 ** len(units))
    assert _bound(units, alpha) == (pytest.approx(means[among - 1]) if among else None)


@given(UNITS, LEVEL)
def test_below_zero_means_that_few_flips_make_the_sum_as_small(
    units: list[tuple[float, float]], alpha: float
) -> None:
    """The bound is the exact test of random signs turned around, ties against the finding."""
    if len(units) > 12:
        units = units[:12]
    values, weights = np.array(units).T
    parts = weights * values
    signs = np.array(list(product([-1.0, 1.0], repeat=len(units))))
    share = float(np.mean(signs @ parts <= parts.sum() + 1e-12))
    high = _bound(units, alpha)
    assert (high is not None and high < -1e-12) == (share <= alpha)


@given(UNITS, LEVEL, st.integers(0, 23), st.integers(1, 16))
def test_a_better_value_never_lowers_it(
    units: list[tuple[float, float]], alpha: float, which: int, rise: int
) -> None:
    """One unit better, all else equal."""
    better = list(units)
    place = which % len(units)
    better[place] = (units[place][0] + rise / 64, units[place][1])
    before, after = _bound(units, alpha), _bound(better, alpha)
    assert (before is None) == (after is None)
    assert before is None or after is None or after >= before - 1e-12


@given(UNITS, LEVEL, st.integers(-64, 64), st.integers(1, 4))
def test_it_moves_and_scales_with_the_values(
    units: list[tuple[float, float]], alpha: float, shift: int, scale: int
) -> None:
    """The unit of a score and its zero have no say, nor has a common factor of the weights."""
    before = _bound(units, alpha)
    after = _bound([(v * scale + shift / 64, 3 * w) for v, w in units], alpha)
    if before is None:
        assert after is None
    else:
        assert after == pytest.approx(before * scale + shift / 64, abs=1e-9)


@given(UNITS, LEVEL, LEVEL)
def test_it_lies_between_mean_and_largest_and_falls_as_the_error_grows(
    units: list[tuple[float, float]], alpha: float, other: float
) -> None:
    """Never below the weighted mean; what a small error excludes a larger one does too."""
    values, weights = np.array(units).T
    narrow, wide = _bound(units, max(alpha, other)), _bound(units, min(alpha, other))
    if narrow is None:
        assert wide is None
        return
    assert narrow >= float(values @ weights / weights.sum()) - 1e-12
    assert wide is None or wide >= narrow - 1e-12
    if max(alpha, other) > 2.0**-GENERATORS:
        assert narrow <= values.max() + 1e-12


@pytest.mark.parametrize("units", [18, 60, 400])
def test_of_many_units_it_is_that_of_random_signs(units: int) -> None:
    """Monte Carlo of independent subsets: 20,000 draws, within four of their errors."""
    rng = np.random.default_rng(units)
    values = rng.gamma(0.5, size=units) * rng.choice([-1, 1, 0], units) - 0.05
    turned = rng.random((20_000, units)) < 0.5
    means = (turned @ values) / np.maximum(turned.sum(1), 1)
    for alpha in (0.3, *ALPHAS):
        high = _plain(values, alpha)
        assert high is not None
        beyond = float((means > high).mean())
        assert abs(beyond - alpha) < 4 * sqrt(alpha * (1 - alpha) / len(means)) + 1e-4


def test_it_is_the_same_whenever_it_is_asked() -> None:
    """No random draws, and for the same samples in another order the same last bit."""
    rng = np.random.default_rng(3)
    values = np.where(rng.random(120) < 0.8, 0.0, rng.normal(-0.1, 0.1, 120)).round(6)
    categories, clusters = np.arange(120) % 8, np.arange(120)
    d = Differences(values, categories, clusters)
    order = rng.permutation(120)
    again = Differences(values[order], categories[order], clusters[order])
    assert mean_bounds(d, 0.01).high == mean_bounds(again, 0.01).high
    assert mean_bounds(d, 0.01).high == pytest.approx(-0.000861, abs=1e-6)


def test_seven_losses_and_no_gain_are_a_finding() -> None:
    """Among 56 samples of which 49 tie, at a sixth of 5 %; Hoeffding's bound needs ten of them."""
    ties, losses = dict.fromkeys([f"t{i:02}" for i in range(49)], 0.0), {}
    losses = {f"l{i}": -0.2 - i / 100 for i in range(7)}
    d = Differences.of({"all": ties | losses})
    bounds = mean_bounds(d, 0.05 / 6)
    assert bounds.method == "exact"
    assert bounds.high is not None
    assert bounds.high < 0
    wide = mean_bounds(d, 0.05 / 6, exchangeable=False).high
    assert wide is not None
    assert wide > 0
    six = Differences.of({"all": {**ties, **dict(list(losses.items())[:6])}})
    high = mean_bounds(six, 0.05 / 6).high
    assert high is not None
    assert high >= 0


def test_units_are_turned_around_whole() -> None:
    """Eight images of one prompt are one loss: with four prompts nothing is found, with ten it is.

    The same forty samples on their own would be a clear finding.
    """
    values = np.full(40, -0.25)
    prompts = Differences(values, np.zeros(40, np.int64), np.arange(40) % 4)
    assert mean_bounds(prompts, 0.05).high == 1.0
    ten = Differences(values, np.zeros(40, np.int64), np.arange(40) % 10)
    assert mean_bounds(ten, 0.05).high == pytest.approx(-0.25)


def test_a_level_too_small_for_the_flips_has_the_wider_bound() -> None:
    """Of many units at under 2^-17 Hoeffding's bound, never below this one at 2^-17."""
    values = np.random.default_rng(0).normal(0, 1, 400)
    ones, mean = np.ones(400), float(values.mean())
    least = _plain(values, 2.0**-GENERATORS)
    assert least is not None
    assert _plain(values, 1e-7) == upper_symmetric(values, ones, mean, 1e-7)
    assert (_plain(values, 0.99 * 2.0**-GENERATORS) or 0.0) >= least
    assert _plain(values[:18], 1e-7) is None


def _signs(
    sizes: Callable[[np.random.Generator], Array], layout: npt.NDArray[np.int64]
) -> Callable[[np.random.Generator], Array]:
    """Differences of random sign for each cluster."""

    def drawn(generator: np.random.Generator) -> Array:
        signs = generator.choice([-1.0, 1.0], int(layout.max()) + 1)
        return np.asarray(sizes(generator) * signs[layout])

    return drawn


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pairs", "clusters", "tied"),
    [
        ("alone", 16, 16, 0.6),
        ("alone", 60, 60, 0.8),
        ("equal sizes", 40, 40, 0.6),
        ("jitter", 40, 40, 0.6),
        ("unequal categories", 60, 60, 0.8),
        ("clusters", 72, 24, 0.6),
    ],
)
def test_without_drift_it_errs_as_often_as_it_says(
    name: str, pairs: int, clusters: int, tied: float
) -> None:
    """Lumps of ties beside gains and losses of any sizes, in strata and clusters: 1,000 runs."""
    rng = np.random.default_rng(pairs)
    cluster = np.arange(pairs) % clusters
    category = np.sort(rng.integers(0, 4, pairs)) if name == "unequal categories" else 0 * cluster

    def sizes(generator: np.random.Generator) -> Array:
        moved = generator.random(pairs) > tied
        size = 1.0 if name == "equal sizes" else generator.gamma(0.5, size=pairs)
        return np.asarray(moved * size + (name == "jitter") * 1e-4)

    draw, runs, alpha = _signs(sizes, cluster), 1000, 0.05
    wrong = 0
    for _ in range(runs):
        d = Differences(draw(rng).round(6), category, cluster)
        high = upper_flipped(d.weighted() / d.weights(), d.weights(), alpha)
        wrong += high is not None and round(high, 6) < 0
    assert wrong / runs <= alpha + 3 * sqrt(alpha * (1 - alpha) / runs)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_other_levels_are_refused(alpha: float) -> None:
    """No error at all, and one of more than half."""
    with pytest.raises(ValueError, match=r"in \(0, 0.5\]"):
        _plain(np.ones(3), alpha)
