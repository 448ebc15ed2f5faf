"""Paired differences: means, spreads and degrees of freedom of their design."""

from __future__ import annotations

from math import floor, sqrt
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import skew

from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.metrics.gc import mean_of_categories
from tests.gate.statistics.build import SCORE, Array, differences, sample

SCORES = st.lists(SCORE, min_size=2, max_size=30)


@given(SCORES)
def test_a_plain_sample_has_the_usual_spread(scores: list[float]) -> None:
    """Mean, standard deviation by n - 1, n - 1 degrees of freedom, each pair a unit."""
    d = sample(scores)
    assert d.mean == pytest.approx(np.mean(scores), abs=1e-12)
    assert d.sd == pytest.approx(np.std(scores, ddof=1), abs=1e-12)
    assert d.effective_units == pytest.approx(len(scores))
    assert (d.n, d.units, d.degrees) == (len(scores), len(scores), len(scores) - 1)
    assert d.weighted() == pytest.approx(scores)
    assert sample([scores[0]] * 3).skewness == 0.0
    if d.sd > 1e-6 and len(scores) > 2:
        assert d.skewness == pytest.approx(skew(scores, bias=False), abs=1e-6)


@given(st.lists(SCORES, min_size=2, max_size=4))
def test_categories_weigh_the_same_and_spread_apart(parts: list[list[float]]) -> None:
    """The mean is that of the categories' means, its variance the sum of theirs over C squared."""
    d = Differences.of(
        {str(c): {f"{c}.{i}": x for i, x in enumerate(part)} for c, part in enumerate(parts)}
    )
    arrays = {str(c): np.array(part) for c, part in enumerate(parts)}
    assert d.mean == pytest.approx(mean_of_categories(arrays), abs=1e-12)
    variance = sum(np.var(part, ddof=1) / len(part) for part in parts) / len(parts) ** 2
    assert d.sd / sqrt(d.units) == pytest.approx(sqrt(variance), abs=1e-12)
    assert d.degrees <= sum(len(part) - 1 for part in parts)
    assert d.weighted().mean() == pytest.approx(d.mean, abs=1e-12)
    assert d.parts.sum() == pytest.approx(d.mean, abs=1e-12)


def test_samples_of_one_cluster_are_one_unit() -> None:
    """By the names given, as images of a prompt; one that is not named is its own cluster."""
    scores = {"p/0": 0.5, "p/1": -0.25, "q": 0.125, "r": 0.75}
    d = Differences.of({"x": scores}, {"p/0": "p", "p/1": "p"})
    assert (d.n, d.units) == (4, 3)
    assert d.weighted() == pytest.approx([3 / 4 * 0.25, 3 / 4 * 0.125, 3 / 4 * 0.75])
    seeds = Differences.of({"x": {"q": 0.5, "q#1": 0.25}}, {"q#1": "q"})
    assert seeds.units == 1


def test_unequal_categories_have_the_degrees_and_units_of_their_variances() -> None:
    """By hand: 4 samples of variance 5 / 3 and 16 of 1 / 15 have 100 and 1 parts of the mean's.

    Of equal spread they would have 4 and 1 parts, and be more units. A tiny category that looks
    quiet is not taken for known: two samples that happen to be alike leave one degree of freedom.
    """
    few, many = [-1.5, -0.5, 0.5, 1.5], [0.25, -0.25] * 8
    d = Differences.of(
        {
            "few": {f"f{i}": x for i, x in enumerate(few)},
            "many": {f"m{i:02}": x for i, x in enumerate(many)},
        }
    )
    assert d.sd**2 / d.units == pytest.approx((5 / 3 / 4 + 1 / 15 / 16) / 4)
    degrees = 101**2 / (100**2 / 3 + 1 / 15)
    assert d.degrees == floor(degrees) == 3
    squares = 100**2 / (1 + 2 / 3) / 4 + 1 / (1 + 2 / 15) / 16
    assert d.effective_units == pytest.approx(101**2 / (1 + 2 / degrees) / squares)
    assert d.effective_units < 5**2 / (4**2 / 4 + 1 / 16)
    noise = np.random.default_rng(0).normal(size=50)
    large = {f"l{i:02}": float(x) for i, x in enumerate(noise)}
    assert Differences.of({"large": large, "tiny": {"t0": 0.1, "t1": 0.1001}}).degrees == 1


def test_categories_of_one_sample_scatter_as_draws_from_one_population() -> None:
    """By hand: around the mean of all, 3 / 2 times in variance, as there are three of them. All of
    one sample count as one sample: the spread is that between them.
    """
    d = Differences.of({"a": {"a0": 0.5, "a1": 0.7}, "b": {"b0": 1.0}, "c": {"c0": -0.4}})
    assert d.mean == pytest.approx(0.4)
    parts = [2 * 0.1**2 * 2 / 4, 0.6**2 * 3 / 2, 0.8**2 * 3 / 2]
    assert d.sd**2 / d.units == pytest.approx(sum(parts) / 3**2)
    # A single one shows no more than the unit that it is.
    assert Differences.of({"a": {"a0": 0.5, "a1": 0.7}, "b": {"b0": 0.7}}).effective_units <= 3
    for scores in ([0.5, 0.25], [0.5, 0.25, -0.5, 0.125]):
        d = Differences.of({str(i): {f"s{i}": x} for i, x in enumerate(scores)})
        plain = sample(scores)
        assert (d.mean, d.degrees) == (plain.mean, plain.degrees)
        assert d.sd == pytest.approx(plain.sd)


def _clusters(*sizes: list[int], values: Array) -> Differences:
    """A category for each list of sizes; values of the clusters, which all their pairs share."""
    labels = np.repeat(np.arange(len(values)), np.concatenate(sizes))
    categories = np.repeat(np.arange(len(sizes)), list(map(sum, sizes)))
    return Differences(values[labels], categories, labels)


def _form(sizes: list[int]) -> Array:
    """The jackknife variance of a category as a quadratic form of its clusters' means."""
    share = np.array(sizes) / sum(sizes)
    centre = np.eye(len(sizes)) - share  # each row takes off the weighted mean
    return np.asarray(centre.T @ np.diag((share / (1 - share)) ** 2) @ centre)


SIZES = st.lists(st.integers(1, 30), min_size=2, max_size=8)


@given(SIZES, st.integers(0, 99))
def test_the_variance_of_clusters_is_that_of_leaving_one_out(sizes: list[int], seed: int) -> None:
    """Of any sizes: (K - 1) / K times the squared moves of the mean, one cluster gone at a time."""
    d = _clusters(sizes, values=np.random.default_rng(seed).normal(size=len(sizes)))
    moves = [d.values[d.clusters != k].mean() - d.mean for k in range(len(sizes))]
    jackknife = (len(sizes) - 1) / len(sizes) * float(np.square(moves).sum())
    assert d.sd**2 / d.units == pytest.approx(jackknife, abs=1e-12)


@given(SIZES)
def test_clusters_have_the_degrees_of_their_weights(sizes: list[int]) -> None:
    """Those of the chi square with the mean and variance that the jackknife finds, by matrices."""
    d = _clusters(sizes, values=np.arange(len(sizes)) / 8)
    form = _form(sizes)
    exact = np.trace(form) ** 2 / np.trace(form @ form)
    assert d.degrees == max(floor(exact + 1e-9), 1)


@given(SIZES, SIZES, st.integers(0, 99))
def test_categories_of_clusters_combine_what_each_shows(
    left: list[int], right: list[int], seed: int
) -> None:
    """By Satterthwaite: the fewer degrees and units of the variances found and those expected."""
    values = np.random.default_rng(seed).normal(size=len(left) + len(right))
    d, forms = _clusters(left, right, values=values), [_form(left), _form(right)]
    free = np.array([max(np.trace(f) ** 2 / np.trace(f @ f), 1.0) for f in forms])
    means = np.split(values, [len(left)])
    parts = [(len(f) - 1) / len(f) for f in forms]
    found = np.array([k * (x @ f @ x) for k, f, x in zip(parts, forms, means, strict=True)])
    expected = np.array([k * np.trace(f) for k, f in zip(parts, forms, strict=True)])
    combined = [float(v.sum() ** 2 / (v**2 / free).sum()) for v in (found, expected)]
    assert d.degrees == max(floor(min(combined) + 1e-9), 1)
    squares = float((found**2 / (1 + 2 / free) / (free + 1)).sum())
    shown = found.sum() ** 2 / (1 + 2 / combined[0]) / squares
    units = min(shown, expected.sum() ** 2 / (expected**2 / (free + 1)).sum())
    assert d.effective_units == pytest.approx(units)


@given(st.dictionaries(st.text(max_size=2), SCORE, min_size=1), st.integers(0, 99))
def test_built_from_mappings_the_order_does_not_matter_at_all(
    scores: dict[str, float], seed: int
) -> None:
    """Workers finish in any order, and every number is the same to the last bit."""
    shuffled = dict(Random(seed).sample(list(scores.items()), len(scores)))
    ordered = Differences.of({"x": scores, "y": {"s": 0.1}}, {"s": "t"})
    reordered = Differences.of({"y": {"s": 0.1}, "x": shuffled}, {"s": "t"})
    assert ordered.residuals.tobytes() == reordered.residuals.tobytes()
    assert ordered.weighted().tobytes() == reordered.weighted().tobytes()


@given(differences(least=2))
def test_a_center_replaces_the_mean_and_nothing_else(d: Differences) -> None:
    """Block scores of a set metric have the spread, its plain difference is the estimate."""
    assume(d.units > 1)
    other = Differences(d.values, d.categories, d.clusters, center=7.0)
    assert other.mean == 7.0
    assert other.parts.sum() == pytest.approx(7)
    assert (other.sd, other.degrees) == (d.sd, d.degrees)


@pytest.mark.parametrize(
    ("values", "labels", "center", "message"),
    [
        ([], [], None, "n at least 1"),
        ([0.0, 1.0], [0], None, r"\(2,\), \(1,\), \(1,\)"),
        ([[0.0]], [[0]], None, r"\(1, 1\), \(1, 1\), \(1, 1\)"),
        ([0.0, float("nan")], [0, 1], None, "difference 1 is nan"),
        ([float("-inf")], [0], None, "difference 0 is -inf"),
        ([0.0], [0], float("inf"), "finite center"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    values: list[float], labels: list[int], center: float | None, message: str
) -> None:
    """Nothing, unequal lengths, and what is no number."""
    with pytest.raises(ValueError, match=message):
        Differences(np.array(values), np.array(labels), np.array(labels), center)
