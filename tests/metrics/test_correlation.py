"""Correlations of leaderboards, and ranks on them."""

from __future__ import annotations

from collections.abc import Callable
from math import atanh, sqrt
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
from tests.optional import known

Array = npt.NDArray[np.float64]

METHODS: tuple[Method, ...] = get_args(Method)

# Quarters, so that ties are common.
PAIRS = hnp.arrays(
    np.float64,
    st.tuples(st.just(2), st.integers(2, 12)),
    elements=st.integers(-8, 8).map(lambda i: i / 4),
)


def value_of(first: Array, second: Array, method: Method) -> float:
    """A coefficient that must be defined."""
    return known(correlation(first, second, method)).value


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
    result = value_of(pair[0], pair[1], method)
    assert result == pytest.approx(DEFINITIONS[method](*pair), abs=1e-12)
    assert value_of(pair[1], pair[0], method) == pytest.approx(result, abs=1e-15)
    assert value_of(pair[0], -pair[1], method) == pytest.approx(-result, abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("column", [[0.5, 0.5, 0.5, 0.5], [0.0] * 4, [1e300] * 4])
def test_a_constant_column_has_no_correlation(method: Method, column: list[float]) -> None:
    """None, rather than a NaN or a number: models that all score the same have no order."""
    assert correlation(np.array(column), np.arange(4.0), method) is None
    assert correlation(np.arange(4.0), np.array(column), method) is None


@pytest.mark.parametrize(("method", "fewest"), [("pearson", 4), ("spearman", 4), ("kendall", 5)])
def test_too_few_models_and_a_perfect_correlation_have_no_interval(
    method: Method, fewest: int
) -> None:
    """The standard error is defined from four models on, Kendall's from five; seven models in the
    same order are not certain to stay so, as an interval of width zero would say.
    """
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
    """A missing score is the caller's to leave out: which models remain must be said."""
    with pytest.raises(ValueError, match=message):
        correlation(np.array(first), np.array(second), **options)


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


@pytest.mark.parametrize("values", [[0.5, float("nan")], [float("inf")], [[0.5, 0.6]]])
def test_what_cannot_be_ranked_is_refused(values: list[float]) -> None:
    """NaN has no place in an order, and a table is not a column."""
    with pytest.raises(ValueError, match="finite numbers to rank"):
        shared_ranks(values, higher_is_better=True)
