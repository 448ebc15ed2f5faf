"""Bounds of the mean difference: what holds for every method, and which method has which data."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.gate.policy import BoundsName
from pytest_cepbench.gate.statistics import Bounds, Differences, mean_bounds
from tests.gate.statistics.build import SCORE, differences, raised, sample

METHODS: list[BoundsName] = ["auto", "t", "bca", "exact"]
ALPHA = st.sampled_from([0.2, 0.05, 0.05 / 14])
NOISE = np.random.default_rng(3).normal(size=40) / 16


def known(bounds: Bounds) -> tuple[float, float]:
    """Both bounds, of a case of which something can be said."""
    assert bounds.low is not None
    assert bounds.high is not None
    return bounds.low, bounds.high


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40)  # each: four methods, and drawing such data is what takes time
@given(differences(), st.integers(0, 64).map(lambda i: i / 64), ALPHA)
def test_raising_all_scores_never_lowers_a_bound(
    method: BoundsName, d: Differences, rise: float, alpha: float
) -> None:
    """A candidate that is better on every sample by the same amount never has a worse verdict."""
    before = mean_bounds(d, alpha, method=method)
    after = mean_bounds(raised(d, rise), alpha, method=method)
    assert after.method == before.method
    for low, high in zip(known(before), known(after), strict=True):
        assert high >= low - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40)  # each: four methods, and drawing such data is what takes time
@given(differences(), ALPHA, st.floats(0.5, 2))
def test_the_mean_lies_between_its_bounds(
    method: BoundsName, d: Differences, alpha: float, span: float
) -> None:
    """And they lie within what a mean can be at all."""
    bounds = mean_bounds(d, alpha, method=method, span=span)
    low, high = known(bounds)
    most = max(span, float(np.abs(d.values).max()))
    assert -most <= low <= bounds.mean <= high <= most
    assert (bounds.alpha, bounds.units) == (alpha, d.units)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40)  # each: four methods, and drawing such data is what takes time
@given(differences())
def test_a_smaller_error_has_wider_bounds(method: BoundsName, d: Differences) -> None:
    """Certainty costs width; with the same resamples for BCa."""
    wide, narrow = (known(mean_bounds(d, alpha, method=method)) for alpha in (0.01, 0.1))
    assert wide[0] <= narrow[0] + 1e-12
    assert wide[1] >= narrow[1] - 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40)  # each: four methods, and drawing such data is what takes time
@given(differences(), st.randoms(), ALPHA)
def test_the_order_of_pairs_does_not_matter(
    method: BoundsName, d: Differences, random: Any, alpha: float
) -> None:
    """Whatever the method, the bounds are the same up to rounding."""
    order = list(range(d.n))
    random.shuffle(order)
    other = Differences(d.values[order], d.categories[order], d.clusters[order])
    before, after = mean_bounds(d, alpha, method=method), mean_bounds(other, alpha, method=method)
    assert (before.method, before.statement) == (after.method, after.statement)
    assert known(before) == pytest.approx(known(after), abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40)  # each: four methods, and drawing such data is what takes time
@given(st.lists(SCORE, min_size=1, max_size=12), st.integers(2, 3))
def test_repeated_pairs_of_a_cluster_narrow_nothing(
    method: BoundsName, scores: list[float], times: int
) -> None:
    """Every sample measured again with the same result is no further sample."""
    names = np.repeat(np.arange(len(scores)), times)
    again = Differences(np.repeat(scores, times), np.zeros(len(names), np.int64), names)
    bounds = mean_bounds(sample(scores), 0.05, method=method)
    many = mean_bounds(again, 0.05, method=method)
    assert known(many) == pytest.approx(known(bounds), abs=1e-9)


@pytest.mark.parametrize("method", ["auto", "t", "exact"])
@given(st.lists(SCORE, min_size=20, max_size=24, unique=True))
def test_the_upper_bound_is_the_lower_one_in_the_mirror(
    method: BoundsName, scores: list[float]
) -> None:
    """Turning all differences around turns the bounds around, given no lumps and enough units."""
    bounds = known(mean_bounds(sample(scores), 0.05, method=method))
    other = known(mean_bounds(sample([-x for x in scores]), 0.05, method=method))
    assert (-other[1], -other[0]) == pytest.approx(bounds, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("values", "statement"),
    [
        ([0.25], "one unit shows no spread"),
        ([0.0] * 20, "all 20 differences are 0"),
        ([0.5 - 0.3, 0.3 - 0.1, 0.9 - 0.7], "all 3 differences are 0.2"),
    ],
)
def test_no_spread_is_no_certainty(method: BoundsName, values: list[float], statement: str) -> None:
    """A single unit, all equal, equal but for rounding: exact bounds that say so, by any method."""
    bounds = mean_bounds(sample(values), 0.05, method=method)
    rest = 0.05 ** (1 / len(values))
    assert bounds.method == "exact"
    assert statement in bounds.statement
    low, high = known(bounds)
    assert low == pytest.approx(-1 + (1 + values[0]) * rest)
    by_symmetry = values[0] if len(values) == 20 else 1.0
    expected = 1 - (1 - values[0]) * rest if method == "exact" else by_symmetry
    assert high == pytest.approx(expected)


def test_categories_without_spread_of_their_own_are_no_certainty() -> None:
    """Each category constant, each another: what t would take for a standard error of 0."""
    d = Differences.of(
        {c: {f"{c}{i}": value for i in range(5)} for c, value in [("x", 0.1), ("y", 0.3)]}
    )
    bounds = mean_bounds(d, 0.05, method="t")
    low, high = known(bounds)
    assert bounds.method == "exact"
    assert bounds.mean == pytest.approx(0.2)
    assert "no category shows any spread" in bounds.statement
    assert low < 0
    assert 0.2 < high < 0.3  # half of the ten, all from the better category, have a mean of 0.3


def test_a_tiny_category_can_hide_more_than_a_large_one() -> None:
    """Two samples of a hundred carry half of the mean; one more like them could cost as much."""
    d = Differences.of(
        {"tiny": {"a": 0.0, "b": 0.0}, "large": {f"s{i:02}": 0.0 for i in range(98)}}
    )
    low, high = known(mean_bounds(d, 0.05, method="exact"))
    assert (low, -high) == pytest.approx([-25 * (1 - 0.05 ** (1 / 100))] * 2)
    unseen = 1 - 0.05 ** (1 / 2)  # what two samples alone let pass
    assert low < -unseen / 2


@pytest.mark.parametrize(
    ("values", "method"),
    [
        (np.zeros(200), "exact"),
        (np.append(np.zeros(31), NOISE[:29]), "exact"),
        (np.append(np.zeros(31), NOISE[:30]), "exact"),
        (np.append(np.zeros(31), NOISE[:36]), "t, exact"),
        (np.append(np.zeros(20), NOISE[:36]), "t, exact"),
        (np.append(np.zeros(9), NOISE[:36]), "t"),
        (NOISE, "t"),
        ([0.25, 0.5], "t"),
    ],
)
def test_data_without_a_bell_shape_have_exact_bounds(values: Any, method: str) -> None:
    """At least half equal and at most 30 others; what is on the way there has some of both."""
    bounds = mean_bounds(sample(values), 0.05)
    assert bounds.method == method
    assert bool(bounds.statement) is (method != "t")


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 14])
@pytest.mark.parametrize("units", [5, 12, 19])
def test_few_samples_have_no_nearer_upper_bound(units: int, alpha: float) -> None:
    """Gains of a long tail: taking the nearer of two bounds failed one run in five, t does not."""
    rng, runs = np.random.default_rng(9), 800
    gains = np.exp(rng.normal(size=(runs, units))) - np.exp(0.5)
    highs = [mean_bounds(sample(row / 100), alpha).high for row in gains]
    false = sum(high is not None and high < 0 for high in highs)
    assert false / runs <= alpha + 3 * sqrt(alpha / runs)


def test_shares_have_exact_bounds() -> None:
    """Right or wrong, however many; nothing special is said of them."""
    values = np.random.default_rng(0).integers(-1, 2, size=300).astype(float)
    assert mean_bounds(sample(values), 0.05).method == "t"
    bounds = mean_bounds(sample(values), 0.05, shares=True)
    assert (bounds.method, bounds.statement) == ("exact", "")


def test_a_method_that_is_asked_for_is_used() -> None:
    """Three methods, three bounds of the same mean, all of them near."""
    bounds = {m: mean_bounds(sample(NOISE), 0.05, method=m) for m in METHODS[1:]}
    assert [b.method for b in bounds.values()] == ["t", "BCa", "exact"]
    assert len({b.low for b in bounds.values()}) == 3
    assert known(bounds["bca"]) == pytest.approx(known(bounds["t"]), abs=0.01)
    low, high = known(bounds["exact"])
    assert low < known(bounds["t"])[0]
    assert high > known(bounds["t"])[1]


def test_a_sample_that_lost_more_than_the_span_widens_it() -> None:
    """The span is a promise of the caller; what was seen counts more."""
    low, _ = known(mean_bounds(sample([-2.5]), 0.05))
    _, high = known(mean_bounds(sample([2.5]), 0.05))
    assert (low, high) == (-2.5, 2.5)


def test_blocks_have_bounds_by_t_around_the_plain_difference() -> None:
    """Pseudo-values give the spread, whatever the scale and the method asked for."""
    values = np.array([3.0, -1.0, 2.0, 40.0, 0.5, -2.0])
    plain = sample(values)
    blocks = Differences(values, plain.categories, plain.clusters, center=6.0)
    bounds = mean_bounds(blocks, 0.05, blocks=True, method="exact")
    reference = mean_bounds(plain, 0.05, method="t", span=1e9)
    shift = 6.0 - plain.mean
    assert (bounds.mean, bounds.method, bounds.statement) == (6.0, "t", "")
    assert known(bounds) == pytest.approx([x + shift for x in known(reference)])


@pytest.mark.parametrize(
    ("values", "message"),
    [([0.5], "one block"), ([0.5] * 10, "all blocks of samples differ alike")],
)
def test_blocks_without_spread_say_nothing(values: list[float], message: str) -> None:
    """A set metric has no known worst to fall back on: no bounds, and the reason."""
    bounds = mean_bounds(sample(values), 0.05, blocks=True)
    assert (bounds.low, bounds.high) == (None, None)
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
    """Even where the data would not need them."""
    with pytest.raises(ValueError, match=message):
        mean_bounds(sample([0.5]), settings.get("alpha", 0.05), span=settings.get("span", 1.0))


def test_a_center_without_blocks_is_refused() -> None:
    """Samples that have scores of their own have a mean of their own."""
    plain = sample(NOISE)
    centred = Differences(plain.values, plain.categories, plain.clusters, center=0.0)
    with pytest.raises(ValueError, match="blocks=True"):
        mean_bounds(centred, 0.05)


def test_an_early_look_puts_small_categories_together_above_alone() -> None:
    """Eight categories of two: a clear drop shows, and what passes rests on the strata as ever."""
    values = np.random.default_rng(0).normal(-0.1, 0.05, 16)
    d = Differences(values, np.arange(16) % 8, np.arange(16))
    last, early = mean_bounds(d, 0.008), mean_bounds(d, 0.008, early=True)
    assert early.high is not None
    assert last.high is not None
    assert early.high < 0 < last.high
    assert early == replace(last, high=early.high)
    assert mean_bounds(d, 0.008, early=True, exchangeable=False) == last


def test_a_bound_of_two_kinds_says_so() -> None:
    """Categories that are constant in themselves have an exact bound, and t across them."""
    values = np.repeat(np.linspace(-0.2, -0.1, 8), 2)
    d = Differences(values, np.repeat(np.arange(8), 2), np.arange(16))
    assert mean_bounds(d, 0.01).method == "exact"
    early = mean_bounds(d, 0.01, early=True)
    assert early.method == "t, exact"
    assert early.high == mean_bounds(d.collapsed(), 0.01).high


@pytest.mark.slow
@pytest.mark.parametrize("loud", ["even", "one", "half", "gradual"])
@pytest.mark.parametrize("tail", ["normal", "exponential", "ties"])
def test_an_early_look_keeps_its_promise_without_drift(loud: str, tail: str) -> None:
    """Categories of two that vary up to twelve times as much as others: 2,000 runs at 2 %."""
    rng = np.random.default_rng(4)
    category, runs, alpha = np.arange(16) % 8, 2000, 0.02
    louder = {
        "even": np.ones(8),
        "one": np.array([10.0, *[1.0] * 7]),
        "half": np.repeat([5.0, 1.0], 4),
        "gradual": np.linspace(0.25, 3.0, 8),
    }[loud][category]
    wrong = 0
    for _ in range(runs):
        sizes = {
            "normal": rng.normal(size=16),
            "exponential": rng.exponential(size=16) - 1,
            "ties": rng.gamma(0.5, size=16) * (rng.random(16) < 0.6),
        }[tail]
        values = (0.01 * sizes * louder * rng.choice([-1, 1], 16)).round(6)
        if values.mean() < 0:
            high = mean_bounds(Differences(values, category, np.arange(16)), alpha, early=True).high
            wrong += high is not None and round(high, 6) < 0
    assert wrong / runs <= alpha + 3 * sqrt(alpha * (1 - alpha) / runs)
