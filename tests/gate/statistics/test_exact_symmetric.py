"""Upper bounds by symmetry: what lumped differences say of a drop."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest

from pytest_cepbench.gate.statistics import Differences, mean_bounds
from pytest_cepbench.gate.statistics.exact import upper_symmetric

ALPHAS = (0.05, 0.05 / 14, 0.05 / 40)


def _plain(values: list[float], alpha: float) -> float | None:
    units = np.array(values)
    return upper_symmetric(units, np.ones(len(units)), float(units.mean()), alpha)


def test_it_is_hoeffdings_bound_of_random_signs() -> None:
    """Below 0 exactly where S^2 / (2 sum of squares) exceeds log(1 / alpha)."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        values = rng.normal(rng.uniform(-1, 0.2), 1, 30).round(1)
        alpha = float(rng.choice(ALPHAS))
        high = _plain(values.tolist(), alpha)
        signs = values.sum() ** 2 / (2 * (values @ values)) - log(1 / alpha)
        assert high is not None
        assert (high < 0) == (values.sum() < 0 and signs > 0)


def test_twelve_equal_losses_of_twelve_are_evidence() -> None:
    """Which one more unit that gained everything would hide."""
    differences = Differences.of({"a": {f"{i:02d}": -0.25 for i in range(12)}})
    assert mean_bounds(differences, 0.01).high == pytest.approx(-0.25)
    hidden = mean_bounds(differences, 0.01, method="exact").high
    assert hidden is not None
    assert hidden > 0


def test_few_units_show_nothing_at_a_small_error() -> None:
    """Four losses of four happen by chance in one run of sixteen."""
    assert _plain([-0.9] * 4, 0.05) is None
    assert _plain([-0.9] * 7, 0.05) == pytest.approx(-0.9)


def test_units_that_weigh_more_count_as_fewer() -> None:
    """Two units with most of the weight leave little for a bound."""
    values, even = np.linspace(-1, 0, 20), np.ones(20)
    skewed = np.array([5.5, 5.5, *([0.5] * 18)])
    mean = float(values @ skewed / 20)
    wide = upper_symmetric(values, skewed, mean, 0.05)
    narrow = upper_symmetric(values, even, float(values.mean()), 0.05)
    assert wide is None or narrow is None or wide - mean > narrow - float(values.mean())


@pytest.mark.slow
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("moved", [0.1, 0.4])
def test_without_drift_it_is_seldom_below_nothing(alpha: float, moved: float) -> None:
    """Lumps at 0 with gains and losses of skewed sizes, as likely the one as the other."""
    rng = np.random.default_rng(1)
    runs, units = 20_000, 60
    sizes = rng.gamma(0.5, size=(runs, units)) * (rng.random((runs, units)) < moved)
    values = sizes * rng.choice([-1, 1], (runs, units))
    wrong = 0
    for row in values:
        high = upper_symmetric(row, np.ones(units), float(row.mean()), alpha)
        wrong += high is not None and high < 0
    assert wrong / runs <= alpha + 3 * sqrt(alpha * (1 - alpha) / runs)
