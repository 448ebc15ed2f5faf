"""Bounds of the mean difference: what holds for both methods, and which method has which data."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics.bounds import (
    GAFFKE,
    HALL,
    Bounds,
    _numbers,
    find_lump,
    flip_p_value,
    gaffke_lower,
    hall_step,
    hall_steps,
    mean_bounds,
)
from pytest_cepbench.gate.statistics.constants import ALL_UNITS
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.metrics.uncertainty import t_upper_quantile
from tests.gate.statistics.build import SCORE, Array, raised, sample

ALPHA = st.sampled_from([0.2, 0.05, 0.05 / 14])
RNG = np.random.default_rng(3)
NOISE = RNG.normal(size=400) / 16
OTHERS = np.linspace(0.02, 0.2, 60) * np.tile([-1, 1], 30)
"""Far from 0 and from each other."""


def ends(bounds: Bounds) -> tuple[float, float]:
    """Both bounds, infinite where they exclude nothing."""
    low, high = bounds.low, bounds.high
    return -inf if low is None else low, inf if high is None else high


@given(st.lists(SCORE, min_size=2, max_size=24), st.booleans())
def test_the_upper_bound_is_the_lower_one_in_the_mirror(scores: list[float], shares: bool) -> None:
    """Turning all differences around turns the bounds around."""
    bounds = ends(mean_bounds(sample(scores), 0.05, shares=shares))
    other = ends(mean_bounds(sample([-x for x in scores]), 0.05, shares=shares))
    assert (-other[1], -other[0]) == pytest.approx(bounds, abs=1e-9)


@pytest.mark.parametrize(
    ("values", "statement"),
    [
        ([0.25], "one unit shows no spread"),
        ([0.0] * 20, "20 of 20 differences are the same"),
        ([0.5 - 0.3, 0.3 - 0.1, 0.9 - 0.7], "3 of 3 differences are the same"),
    ],
)
def test_no_spread_is_no_certainty(values: list[float], statement: str) -> None:
    """A single unit, all equal, equal but for rounding: Gaffke's bounds, which say so."""
    bounds = mean_bounds(sample(values), 0.05)
    rest = 0.05 ** (1 / len(values))
    assert bounds.method == GAFFKE
    assert statement in bounds.statement
    assert ends(bounds) == pytest.approx((-1 + (1 + values[0]) * rest, 1 - (1 - values[0]) * rest))


@pytest.mark.parametrize(
    ("values", "lump"),
    [
        (np.append(np.zeros(74), OTHERS[:26]), None),
        (np.append(np.zeros(75), OTHERS[:25]), "75 of 100 differences"),
        (np.append(np.zeros(76), OTHERS[:24]), "76 of 100 differences"),
        (np.append(np.full(3, 0.25), 0.1), "3 of 4 differences"),
        (np.append(np.full(60, 0.25), OTHERS[:1]), "60 of 61 differences"),
        (NOISE[:60], None),
        ([0.25, 0.5], None),
        (NOISE[:60] / 1000, "60 of 60 differences"),
        (0.3 + NOISE[:60] / 1000, "60 of 60 differences"),
        (NOISE[:60] / 60, None),
        (np.repeat([0.0, 0.00049], 30), "60 of 60 differences"),
        (np.repeat([0.0, 0.00101], 30), None),
    ],
)
@pytest.mark.parametrize("span", [1.0, 0.5, 4.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_lump_is_three_units_in_four_that_are_the_same(
    values: Array, lump: str | None, span: float, sign: int
) -> None:
    """Within half a thousandth of the span; such data have Gaffke's bounds, all others Hall's."""
    d = sample(sign * span * np.asarray(values))
    statement = find_lump(d, span)
    assert (statement is None) is (lump is None)
    bounds = mean_bounds(d, 0.05, span=span)
    assert (bounds.method, bounds.statement) == (GAFFKE if lump else HALL, statement or "")
    if lump and span == sign == 1:
        assert statement is not None
        assert lump in statement
        assert statement.endswith(": the bounds allow for rare others")


def test_heavy_units_are_alike_where_their_pairs_are() -> None:
    """Clusters of one to ten pairs of one difference, and noise in categories of 4 and of 40."""
    clusters = np.repeat(np.arange(10), np.arange(1, 11))
    equal = Differences(np.full(55, 0.25), np.zeros(55, np.int64), clusters)
    assert (find_lump(equal, 1.0) or "").startswith("10 of 10 differences are the same:")
    categories = np.repeat([0, 1], [4, 40])
    noisy = np.where(categories, -0.1, 0.1) + np.tile([-0.0003, 0.0003], 22)
    d = Differences(noisy, categories, np.arange(44))
    assert (find_lump(d, 1.0) or "").startswith("44 of 44 differences are the same")


@pytest.mark.parametrize("shares", [True, False])
def test_a_bound_at_the_end_of_the_span_excludes_nothing(shares: bool) -> None:
    """Two samples of twenty-four with most of the weight, and four that scatter widely."""
    heavy = Differences.of(
        {"tiny": {"a": -0.5, "b": -0.6}, "large": {f"s{i:02}": i / 1000 for i in range(22)}}
    )
    few = sample([-0.9, 0.8, -0.7, -0.9])
    bounds = mean_bounds(heavy if shares else few, 0.05 / 14, shares=shares)
    assert bounds.low is None
    assert bounds.mean < 0
    assert bounds.p is not None


def test_blocks_have_halls_bounds_around_the_plain_difference() -> None:
    """Pseudo-values give the spread, whatever the scale; their test has the same centre."""
    values = np.array([3.0, -1.0, 2.0, 40.0, 0.5, -2.0])
    plain = sample(values)
    blocks = replace(plain, center=6.0)
    bounds = mean_bounds(blocks, 0.05, blocks=True)
    reference = mean_bounds(plain, 0.05, span=100)
    shift = 6.0 - plain.mean
    assert (bounds.mean, bounds.method, bounds.statement) == (6.0, HALL, "")
    assert ends(bounds) == pytest.approx([x + shift for x in ends(reference)])
    assert bounds.p == mean_bounds(raised(plain, shift), 0.05, span=100).p


@pytest.mark.parametrize(
    ("values", "message"),
    [([0.5], "one block"), ([0.5] * 10, "all blocks of samples differ alike")],
)
def test_blocks_without_spread_say_nothing(values: list[float], message: str) -> None:
    """A set metric has no known worst to fall back on: no bounds, no test, and the reason."""
    bounds = mean_bounds(sample(values), 0.05, blocks=True)
    assert (bounds.low, bounds.high, bounds.p) == (None, None, None)
    assert message in bounds.statement


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0.0}, "alpha is the error of one bound"),
        ({"alpha": 0.6}, r"in \(0, 0.5\], got 0.6"),
        ({"alpha": float("nan")}, "alpha"),
        ({"span": 0.0}, "span is the most"),
        ({"span": float("inf")}, "span is the most"),
    ],
)
def test_other_settings_are_refused(settings: dict[str, float], message: str) -> None:
    """Even where the data would not need them; no values, and a value below what was said to be the
    worst, have no bound.
    """
    with pytest.raises(ValueError, match=message):
        mean_bounds(sample([0.5]), settings.get("alpha", 0.05), span=settings.get("span", 1.0))
    centred = replace(sample(NOISE), center=0.0)  # goes with the blocks of a set metric
    with pytest.raises(ValueError, match="blocks=True"):
        mean_bounds(centred, 0.05)
    for values, alpha, words in (
        ([], 0.05, "finite values"),
        ([float("nan")], 0.05, "finite values"),
        ([0.5], 0.0, r"alpha in \(0, 0.5\]"),
        ([0.5], 0.6, r"alpha in \(0, 0.5\]"),
        ([0.5, -0.25], 0.05, "-0.25 is below the worst"),
    ):
        with pytest.raises(ValueError, match=words):
            gaffke_lower(np.array(values), 0.0, alpha)


@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=60).filter(lambda v: np.ptp(v) > 1e-3),
    st.floats(1e-5, 0.5),
)
def test_no_bound_is_nearer_than_that_of_plain_t(values: list[float], alpha: float) -> None:
    """Skewness is never taken for a help, and steps turn around with the values."""
    below, above = hall_steps(sample(values), alpha)
    assert min(below, above) >= t_upper_quantile(alpha, len(values) - 1)
    assert hall_steps(sample([-x for x in values]), alpha) == pytest.approx((above, below))


def test_the_steps_undo_halls_transformation() -> None:
    """T + c T^2 / 3 + c^2 T^3 / 27 + c / 6 is t, c the moved skewness over the root of K."""
    d = sample(np.random.default_rng(5).exponential(size=50))
    below, above = hall_steps(d, 0.01)
    assert d.skewness > 0
    for step, skewness in [(below, 0.0), (above, -d.skewness)]:
        c = (skewness - sqrt(6 / 50)) / sqrt(50)
        back = step + c * step**2 / 3 + c**2 * step**3 / 27 + c / 6
        assert back == pytest.approx(t_upper_quantile(0.01, 49))


@pytest.mark.parametrize("t", [0.5, 1.7, 5.0, 400.0])
def test_beyond_the_turning_point_the_bound_stays_where_it_was_farthest(t: float) -> None:
    """There c t + c^2 / 6 is 9 / 8, whose cube root less 1 is 1.5: 4.5 / c, four t of a large t."""
    c = 3 * (sqrt(t * t + 3 / 4) - t)
    assert c * t + c * c / 6 == pytest.approx(9 / 8)
    assert hall_step(t, -c) == pytest.approx(4.5 / c)
    assert hall_step(t, -0.99 * c) < hall_step(t, -c) == hall_step(t, -50 * c)
    assert hall_step(400.0, -1.0) == pytest.approx(1600, rel=1e-4)


ALPHAS = [1e-9, 1e-5, 0.05 / 40, 0.05, 0.3, 0.5]
VALUES = st.lists(st.integers(0, 16).map(lambda i: i / 16), min_size=1, max_size=30)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [2, 5, 60, 1284, 20000])
def test_on_right_and_wrong_it_is_clopper_and_pearsons(n: int, alpha: float) -> None:
    """The probability at the bound is alpha, to 8 digits, from one right answer to all but one."""
    from scipy import stats

    for right in sorted({1, n // 3 or 1, n // 2, n - 1}):
        values = np.repeat([0.0, 1.0], [n - right, right])
        low, high = gaffke_lower(values, 0.0, alpha), -gaffke_lower(-values, -1.0, alpha)
        assert stats.beta.cdf(low, right, n - right + 1) == pytest.approx(alpha, rel=1e-8)
        assert stats.beta.sf(high, right + 1, n - right) == pytest.approx(alpha, rel=1e-8)


@pytest.mark.parametrize("n", [1, 3, 60, 1284])
def test_equal_values_have_the_rule_of_three(n: int) -> None:
    """All right: the lower bound is alpha^(1/n), about 1 - 3/n; all worst: the worst itself."""
    low = gaffke_lower(np.ones(n), 0.0, 0.05)
    assert low == pytest.approx(0.05 ** (1 / n))
    assert n < 60 or low == pytest.approx(1 - 3 / n, abs=0.002)
    assert gaffke_lower(np.full(n, 0.25), -1.0, 0.05) == pytest.approx(1.25 * 0.05 ** (1 / n) - 1)
    assert gaffke_lower(np.full(n, -1.0), -1.0, 0.05) == -1.0


def outlier(n: int) -> Array:
    """Many small values and one that lost all: the integrand that turns most often."""
    values = np.random.default_rng(n).normal(size=n) / 50
    values[0] = -0.9
    return values


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("few", np.array([0.1, -0.4, 0.7])),
        ("forty steps", np.random.default_rng(1).integers(-20, 21, 400) / 40),
        ("outlier", outlier(60)),
        ("many zeros", np.repeat([0.0, -0.5, -0.6], [200, 12, 1])),
        ("lone gain", np.append(np.full(100, -0.01), 0.9)),
    ],
)
def test_it_is_the_quantile_of_random_mixtures(name: str, values: Array) -> None:
    """A share alpha of Dirichlet-weighted sums lies below it: 200,000 draws, four errors."""
    rng = np.random.default_rng(len(name))
    extended = np.append(values, -1.0)
    points, counts = np.unique(extended, return_counts=True)
    draws = rng.gamma(counts, size=(200_000, len(points)))
    for alpha in (0.001, 0.05, 0.5):
        low = gaffke_lower(values, -1.0, alpha)
        below = float((draws @ (points - low) <= 0).mean())
        assert abs(below - alpha) < 4 * sqrt(alpha * (1 - alpha) / len(draws))


LEVELS = (0.3, 0.05, 0.05 / 14, 0.05 / 40)


def statistic(flipped: Array) -> Array:
    """(n, K) -> (n,): the mean over the root of the sum of squares, after Hall, as documented."""
    square = (flipped**2).sum(axis=1)
    mean, skewness = flipped.sum(axis=1) / square**0.5, (flipped**3).sum(axis=1) / square**1.5
    return np.asarray(mean + skewness * mean**2 / 3 + skewness**2 * mean**3 / 27 + skewness / 6)


def share(parts: Array, signs: Array) -> float:
    """Share of flips with a statistic as low as that of no flip; what rounds alike ties."""
    observed = statistic(parts[None])
    return float(np.mean(statistic(signs * parts) <= observed + 1e-9 * (1 + abs(observed))))


@given(st.lists(SCORE.filter(bool), min_size=1, max_size=10), st.sampled_from(LEVELS))
@example([0.5, -0.8, -0.2, 0.6, -1.0, -1.0], 0.05)  # another share for each constant changed by 1
def test_of_few_units_it_is_the_share_of_all_flips(values: list[float], alpha: float) -> None:
    """Every sign of every unit, one by one; units that do not differ change nothing."""
    parts = np.array(values)
    signs = np.array(list(product([1.0, -1.0], repeat=len(values))))
    expected = pytest.approx(share(parts, signs), abs=1e-12)
    assert flip_p_value(parts, alpha) == expected
    assert flip_p_value(np.append(np.zeros(30), parts), alpha) == expected


@pytest.mark.parametrize(("units", "bits"), [(5, 5), (30, 11), (400, 15)])
def test_flips_are_a_group_that_can_turn_every_unit(units: int, bits: int) -> None:
    """Two flips in a row are a flip, and no unit stays as it is in all of them."""
    flips = np.random.default_rng(0).integers(0, 1 << bits, size=40)

    def signs(flip: Any) -> Array:
        shared = np.bitwise_and.outer(flip, _numbers(units, bits))
        return np.asarray((-1.0) ** np.array([[int(c).bit_count() for c in row] for row in shared]))

    first, second = signs(flips), signs(flips[::-1])
    assert (first * second == signs(flips ^ flips[::-1])).all()
    assert ((first == 1).any(axis=0) & (first == -1).any(axis=0)).all()


@pytest.mark.parametrize("ties", [0, 10, 53, 993])
def test_seven_losses_beside_any_number_of_ties_are_evidence_at_a_hundredth(ties: int) -> None:
    """Six are none; seeds that cancel out but for their last bits are ties too."""
    for rest in (np.zeros(ties), np.full(ties, (0.1 + 0.2 - 0.3) / 9)):
        losses = -0.2 - np.arange(7) / 100
        assert flip_p_value(np.append(rest, losses), 0.01) == 2**-7
        assert flip_p_value(np.append(losses[:6], rest), 0.01) == 2**-6


@given(st.lists(SCORE, min_size=1, max_size=40), st.sampled_from(LEVELS), st.integers(-9, 9))
def test_the_unit_of_a_score_has_no_say(values: list[float], alpha: float, power: int) -> None:
    """From 1e-9 to 1e9; nor has the order of few, and asked again the answer is the same."""
    parts = np.array(values)
    p = flip_p_value(parts, alpha)
    assert 0 < p <= 1
    assert flip_p_value(parts, alpha) == p
    assert flip_p_value(parts * 10.0**power, alpha) == p
    if len(values) <= ALL_UNITS:
        assert flip_p_value(parts[::-1], alpha) == p


def test_units_are_flipped_whole() -> None:
    """Ten images of four prompts are four losses, whatever else they would be on their own."""
    values, category = np.full(40, -0.25), np.zeros(40, np.int64)
    assert mean_bounds(Differences(values, category, np.arange(40) % 4), 0.05).p == 2**-4
    both = Differences.of({c: {f"s{i}": -0.1 for i in range(6)} for c in "ab"})
    assert mean_bounds(both, 0.05).p == 2**-6


@given(st.integers(0, 2**32), st.floats(1e-5, 0.5), st.floats(1e-5, 0.5))
def test_what_one_level_rejects_every_higher_one_does(seed: int, less: float, more: float) -> None:
    """However few flips a level asks for: stopping early says nothing that going on would not."""
    rng = np.random.default_rng(seed)
    parts = rng.normal(rng.uniform(-1, 0), 1, 20)
    less, more = sorted((less, more))
    if flip_p_value(parts, less) <= less:
        assert flip_p_value(parts, more) <= more
