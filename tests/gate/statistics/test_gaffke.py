"""Gaffke's bound: Clopper and Pearson's, the rule of three, random draws, and its promise."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics.bounds import gaffke_lower
from tests.gate.statistics.build import Array

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


@pytest.mark.parametrize(
    ("values", "worst", "alpha", "message"),
    [
        ([], 0.0, 0.05, "finite values"),
        ([float("nan")], 0.0, 0.05, "finite values"),
        ([0.5], 0.0, 0.0, r"alpha in \(0, 0.5\]"),
        ([0.5], 0.0, 0.6, r"alpha in \(0, 0.5\]"),
        ([0.5, -0.25], 0.0, 0.05, "-0.25 is below the worst"),
    ],
)
def test_other_numbers_are_refused(
    values: list[float], worst: float, alpha: float, message: str
) -> None:
    """No values, no numbers, no level, or a value below what was said to be the worst."""
    with pytest.raises(ValueError, match=message):
        gaffke_lower(np.array(values), worst, alpha)
