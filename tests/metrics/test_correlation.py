"""Correlations, ranks, agreement with people, and how sure numbers are: t, spread, jackknife."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable
from math import atanh, isclose, sqrt
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.metrics.correlation import (
    Correlation,
    Method,
    correlation,
    mean_of_pairs,
    shared_ranks,
)
from pytest_cepbench.metrics.human_ratings import (
    GRADES,
    Choice,
    Grade,
    HumanAgreement,
    alignment,
    cross_inconsistency,
    grade_score,
    predicted_choice,
    same_direction,
    sample_correlation,
)
from pytest_cepbench.metrics.uncertainty import (
    BLOCKS,
    FEWEST_UNITS,
    blocks_of,
    estimate_by_items,
    pseudo_values,
    spread_of,
    t_upper_quantile,
)
from tests.optional import known

Array = npt.NDArray[np.float64]

METHODS: tuple[Method, ...] = get_args(Method)

# Quarters, so that ties are common.
PAIRS = hnp.arrays(
    np.float64,
    st.tuples(st.just(2), st.integers(2, 12)),
    elements=st.integers(-8, 8).map(lambda i: i / 4),
)


def ranks_of(column: Array) -> Array:
    """Average ranks by definition: the values below, and half of the others that are equal."""
    values = column.tolist()
    return np.array([sum(v < own for v in values) + values.count(own) / 2 for own in values])


def cosine_of_centred(x: Array, y: Array) -> float:
    """Pearson's coefficient by its definition."""
    a, b = x - x.mean(), y - y.mean()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def tau_b(x: Array, y: Array) -> float:
    """Kendall's coefficient by its definition, over all pairs of models."""
    up_x, up_y = np.sign(np.subtract.outer(x, x)), np.sign(np.subtract.outer(y, y))
    return float((up_x * up_y).sum() / np.sqrt((up_x**2).sum() * (up_y**2).sum()))


DEFINITIONS: dict[Method, Callable[[Array, Array], float]] = {
    "pearson": cosine_of_centred,
    "spearman": lambda x, y: cosine_of_centred(ranks_of(x), ranks_of(y)),
    "kendall": tau_b,
}


@pytest.mark.parametrize("method", METHODS)
@given(PAIRS)
def test_coefficients_are_those_of_their_definitions(method: Method, pair: Array) -> None:
    """Pearson's, Spearman's with average ranks, and tau-b, with any ties, in either order."""
    assume(all(len(set(column)) > 1 for column in pair.tolist()))
    x, y = pair
    result, turned, mirrored = (
        known(correlation(*columns, method)).value for columns in ((x, y), (y, x), (x, -y))
    )
    assert result == pytest.approx(DEFINITIONS[method](x, y), abs=1e-12)
    assert turned == pytest.approx(result, abs=1e-15)
    assert mirrored == pytest.approx(-result, abs=1e-12)


@pytest.mark.parametrize(("method", "fewest"), [("pearson", 4), ("spearman", 4), ("kendall", 5)])
def test_too_few_models_and_a_perfect_correlation_have_no_interval(
    method: Method, fewest: int
) -> None:
    """The standard error is defined from four models on, Kendall's from five; seven models in the
    same order are not certain to stay so, as an interval of width zero would say. Models that all
    score the same have no order: no correlation, rather than a NaN or a number.
    """
    for constant in (np.full(4, value) for value in (0.5, 0.0, 1e300)):
        assert correlation(constant, np.arange(4.0), method) is None
        assert correlation(np.arange(4.0), constant, method) is None
    seven = np.array([0.1, 0.2, 0.3, 0.7, 0.8, 1.1, 1.3])
    for sign in (1.0, -1.0):
        perfect = correlation(seven, sign * (0.3 * seven + 0.1), method)
        assert perfect == Correlation(method, 7, sign, None, None)
    x, y = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([2.0, 1.0, 3.0, 5.0, 4.0])
    without = known(correlation(x[: fewest - 1], y[: fewest - 1], method))
    assert (without.low, without.high) == (None, None)
    wide = known(correlation(x[:fewest], y[:fewest], method))
    assert -1 < known(wide.low) < wide.value < known(wide.high) < 1


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("pearson", lambda _, n: 1 / sqrt(n - 3)),
        ("spearman", lambda r, n: sqrt((1 + r * r / 2) / (n - 3))),
        ("kendall", lambda _, n: sqrt(0.437 / (n - 4))),
    ],
)
@pytest.mark.parametrize(("confidence", "z"), [(0.95, 1.959964), (0.8, 1.281552)])
def test_the_interval_is_fishers(method: Method, error: Any, confidence: float, z: float) -> None:
    """On the scale of atanh both ends are z standard errors away, each method with its own."""
    x, y = np.random.default_rng(0).normal(size=(2, 9))
    result = known(correlation(x, y, method, confidence))
    half = z * error(result.value, 9)
    assert atanh(result.value) - atanh(known(result.low)) == pytest.approx(half, rel=1e-5)
    assert atanh(known(result.high)) - atanh(result.value) == pytest.approx(half, rel=1e-5)


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=3))
def test_the_mean_of_pairs_leaves_out_the_diagonal(pairs: list[float]) -> None:
    """Every pair counts once."""
    a, b, c = pairs
    result = mean_of_pairs([[1, a, b], [a, 1, c], [b, c, 1]])
    assert result == pytest.approx((a + b + c) / 3, abs=1e-12)
    assert mean_of_pairs([[1.0, None], [None, 1.0]]) is None


@pytest.mark.parametrize(
    ("first", "second", "options", "message"),
    [
        ([1.0, 2.0], [1.0, 2.0, 3.0], {}, "two columns"),
        ([1.0], [1.0], {}, "n >= 2 models"),
        ([1.0, float("nan"), 2.0], [1.0, 2.0, 3.0], {}, "not finite"),
        ([1.0, 2.0], [1.0, 2.0], {"method": "tau"}, "expected one of .*got 'tau'"),
        ([1.0, 2.0], [1.0, 2.0], {"confidence": 95}, r"confidence in \(0, 1\)"),
    ],
)
def test_what_cannot_be_correlated_is_refused(
    first: list[float], second: list[float], options: dict[str, Any], message: str
) -> None:
    """A missing score is the caller's to leave out: which models remain must be said. NaN has no
    place in an order, and a table is not a column.
    """
    with pytest.raises(ValueError, match=message):
        correlation(np.array(first), np.array(second), **options)
    unordered: Any = ([0.5, float("nan")], [float("inf")], [[0.5, 0.6]])
    for values in unordered:
        with pytest.raises(ValueError, match="finite numbers to rank"):
            shared_ranks(values, higher_is_better=True)


VALUES = st.lists(st.integers(-5, 5).map(lambda i: i / 4), min_size=1, max_size=12)


@given(values=VALUES, higher_is_better=st.booleans())
def test_a_shared_rank_is_one_more_than_the_models_ahead(
    values: list[float], *, higher_is_better: bool
) -> None:
    """So ties share the best of their ranks, and as many ranks are left out after them."""
    ranks = shared_ranks(values, higher_is_better=higher_is_better)
    for value, rank in zip(values, ranks, strict=True):
        ahead = sum((o > value) if higher_is_better else (o < value) for o in values)
        assert rank == ahead + 1


THOUSANDTHS = st.integers(-1000, 1000)
CHOICES = st.sampled_from(["C1", "B", "C2"])


@given(THOUSANDTHS, THOUSANDTHS)
def test_the_margin_is_exact_on_printed_scores(first: int, second: int) -> None:
    """Scores of three digits are compared as whole thousandths: exactly ten apart is still B.

    In floats four of five such pairs differ by more than 0.01.
    """
    expected = "B" if abs(first - second) <= 10 else "C1" if first > second else "C2"
    assert predicted_choice(first / 1000, second / 1000) == expected
    for numbers, message in (((first, math.nan), "finite"), ((0.5, 0.4, -0.01), "at least 0")):
        with pytest.raises(ValueError, match=message):
            predicted_choice(*numbers)


ITEMS = st.lists(st.tuples(CHOICES, st.lists(CHOICES, min_size=1, max_size=9)), max_size=8)


@given(ITEMS)
def test_agreement_is_counted_vote_by_vote_and_item_by_item(
    items: list[tuple[Choice, list[Choice]]],
) -> None:
    """Items without a majority are counted, and are not in the agreement with majorities."""
    agreement = alignment([item[0] for item in items], [item[1] for item in items])

    right = sum(Counter(votes)[choice] for choice, votes in items)
    assert agreement.items == len(items)
    assert agreement.votes == HumanAgreement(right, sum(len(votes) for _, votes in items))
    halves = [(Counter(votes)[choice] * 2 > len(votes)) for choice, votes in items]
    assert agreement.majorities.right == sum(halves)
    decided = sum(2 * max(Counter(votes).values()) > len(votes) for _, votes in items)
    assert (agreement.majorities.total, agreement.without_majority) == (
        decided,
        len(items) - decided,
    )


@pytest.mark.parametrize(
    ("predictions", "votes", "message"),
    [
        (["C1"], [], "one prediction per item, got 1 for 0 items"),
        (["C1"], [[]], "item 0: expected votes of"),
        (["C1", "C1"], [["C1"], ["c1"]], r"item 1: .*'c1'"),
        (["tie"], [["B"]], "item 0: .*'tie'"),
    ],
)
def test_unknown_choices_are_refused(
    predictions: list[Choice], votes: list[list[Choice]], message: str
) -> None:
    """A label that is spelt differently would silently count as disagreement."""
    with pytest.raises(ValueError, match=message):
        alignment(predictions, votes)


def test_nine_cells() -> None:
    """Understanding by row, generation by column."""
    understanding: list[Grade] = ["good", "good", "poor", "medium"]
    generation: list[Grade] = ["good", "poor", "poor", "good"]
    table = cross_inconsistency(understanding, generation)

    assert table.counts == ((1, 0, 0), (0, 0, 1), (1, 0, 1))
    assert (table.total, table.inconsistent) == (4, 0.5)
    assert cross_inconsistency([], []).inconsistent is None
    assert [grade_score(grade) for grade in GRADES] == [0, 0.5, 1]
    with pytest.raises(ValueError, match=r"shorter|longer"):
        cross_inconsistency(["good"], [])


def test_correlation_over_samples_has_an_interval_by_item() -> None:
    """1 for the same order, which is not certain; that of noisy scores has the value inside."""
    source = np.random.default_rng(0)
    people = source.random(60)
    noisy = people + source.normal(0, 0.3, 60)
    same = sample_correlation(people * 3, people, list(range(60)))
    noise = sample_correlation(noisy, people, list(range(60)))

    assert same.value == pytest.approx(1)
    assert same.low is None
    assert known(noise.low) < known(noise.value) < known(noise.high) < 1
    assert sample_correlation(np.ones(9), people[:9], list(range(9))).value is None
    assert sample_correlation(np.array([]), np.array([]), []).value is None
    # Of the preferred side ties of the metric are half right, ties of people are left out.
    metric, people = np.array([0.2, -0.1, 0.0, 0.4]), np.array([1.0, 1.0, -1.0, 0.0])
    estimate = same_direction(metric, people)
    assert (estimate.value, estimate.items) == (0.5, 3)
    assert same_direction(np.array([1.0]), np.array([0.0])).value is None


@pytest.mark.parametrize(
    ("alpha", "degrees", "t"),
    [
        (0.05, 5, 2.01504837333),
        (0.025, 10, 2.22813885199),
        (0.005, 120, 2.61742114511),
        (1e-06, 3, 103.29946778),
        (1e-12, 40, 9.98788500487),
        (0.4, 20000, 0.253350473268),
        (0.5, 3, 0.0),
    ],
)
def test_quantiles_have_not_moved(alpha: float, degrees: int, t: float) -> None:
    """Those by continued fractions, from before SciPy made them: no library moves a baseline."""
    assert isclose(t_upper_quantile(alpha, degrees), t, rel_tol=1e-9)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8))
def test_a_spread_is_that_of_a_sample(scores: list[float]) -> None:
    """Mean, deviation by n - 1, smallest, largest and their difference."""
    spread = spread_of(np.array(scores))
    assert spread.runs == len(scores)
    assert spread.mean == pytest.approx(statistics.fmean(scores), abs=1e-12)
    assert spread.std == pytest.approx(statistics.stdev(scores), abs=1e-9)
    assert (spread.low, spread.high) == (min(scores), max(scores))
    assert spread.range == max(scores) - min(scores)


NAMES = st.lists(st.text(st.characters(codec="utf-8"), max_size=4), max_size=60)
SCORES = st.lists(st.integers(-64, 64).map(lambda i: i / 64), min_size=2, max_size=12)


@given(SCORES)
def test_the_pseudo_values_of_a_mean_are_the_values_themselves(scores: list[float]) -> None:
    """Leaving out one value of a mean, its pseudo-value is that value."""
    values = np.array(scores)
    without = [np.delete(values, i).mean() for i in range(len(values))]
    assert pseudo_values(values.mean(), without) == pytest.approx(values, abs=1e-12)


@given(NAMES, st.randoms())
def test_blocks_depend_on_the_names_alone(names: list[str], random: Any) -> None:
    """However units are ordered or repeated, each is in the same block; sizes are balanced. That
    never changes: baselines keep block scores, and another assignment would compare other samples.
    """
    assert blocks_of("abcdef") == {"d": 0, "b": 1, "a": 2, "e": 0, "c": 1, "f": 2}
    blocks = blocks_of(names)
    again = names + names[:3]
    random.shuffle(again)
    assert blocks_of(again) == blocks

    distinct = set(names)
    if len(distinct) < FEWEST_UNITS:
        assert blocks == {}
        return
    sizes = Counter(blocks.values())
    assert blocks.keys() == distinct
    assert sorted(sizes) == list(range(min(BLOCKS, len(distinct) // 2)))
    assert max(sizes.values()) - min(sizes.values()) <= 1
    assert min(sizes.values()) >= 2


def test_what_is_no_error_and_no_spread_is_refused() -> None:
    """The error of one side is at most half; one run has no spread, one block left out leaves
    nothing, and what is not finite says nothing.
    """
    for alpha, degrees in ((0.6, 3), (0.0, 3), (0.05, 0)):
        with pytest.raises(ValueError, match=r"expected alpha in .* and degrees >= 1, got"):
            t_upper_quantile(alpha, degrees)
    with pytest.raises(ValueError, match="at least 2 runs"):
        spread_of(np.array([0.5]))
    nan, inf = float("nan"), float("inf")
    for whole, without in ((1.0, []), (1.0, [1.0]), (nan, [1.0, 1.0]), (1.0, [1.0, inf])):
        with pytest.raises(ValueError, match="at least 2 blocks"):
            pseudo_values(whole, without)


def test_an_interval_holds_its_value_and_is_never_certain() -> None:
    """Also where nearly all draws lie above it; none of a statistic that is defined in few draws,
    or the same in all.
    """
    for statistic in (lambda w: float(w.max()), lambda w: -float(w.max())):
        skewed = estimate_by_items(statistic, 9)
        assert skewed.value in (skewed.low, skewed.high)
    assert estimate_by_items(lambda w: 1.0 if w.all() else None, 9).low is None
    assert estimate_by_items(lambda w: float(w.sum() / 9), 9).low is None


def test_few_items_have_wide_intervals_or_none() -> None:
    """Plain percentiles of five uniform numbers hold their mean in 85 of 100 studies."""
    draw = np.random.default_rng(20261128)
    held = 0
    for numbers in draw.random((200, 5)):
        own = estimate_by_items(lambda w, n=numbers: float(w @ n / w.sum()), 5)  # type: ignore[misc]
        held += known(own.low) <= 0.5 <= known(own.high)
    assert held >= 178
    assert estimate_by_items(lambda w: float(w[0]), 4).low is None
