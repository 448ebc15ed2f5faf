"""Power: planned sample sizes and visible drops, checked by drawing such samples."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_cepbench.gate.statistics import mean_bounds, samples_needed, smallest_visible
from pytest_cepbench.gate.statistics.bounds import t_step
from tests.gate.statistics.build import sample

RUNS = 1500
NEAR = 0.045  # three standard errors of a share of 0.8 in so many runs, and the formula's own error


@pytest.mark.slow
@pytest.mark.parametrize(("drop", "alpha"), [(0.5, 0.05), (0.25, 0.05 / 14)])
def test_as_many_samples_as_needed_show_the_drop(drop: float, alpha: float) -> None:
    """Excluded when it is not there, seen when it is, each in 80 % of runs."""
    rng = np.random.default_rng(4)
    units = samples_needed(1.0, drop, alpha)
    seen = excluded = 0
    for row in rng.normal(size=(RUNS, units)):
        bounds = mean_bounds(sample(row), alpha, span=100.0)
        excluded += bounds.low is not None and bounds.low > -drop
        after = mean_bounds(sample(row - drop), alpha, span=100.0)
        seen += after.high is not None and after.high < 0
    assert seen / RUNS == pytest.approx(0.8, abs=NEAR)
    assert excluded / RUNS == pytest.approx(0.8, abs=NEAR)


@pytest.mark.parametrize(
    ("units", "alpha", "tolerance"),
    [(20, 0.05, 0.0), (60, 0.05 / 14, 0.1), (60, 0.05, 0.5)],
)
def test_the_smallest_visible_drop_is_seen(units: int, alpha: float, tolerance: float) -> None:
    """In 80 % of runs, whether the noise or the tolerance is in the way."""
    rng = np.random.default_rng(5)
    drop = smallest_visible(1.0, units, alpha, tolerance)
    assert drop > tolerance
    seen = 0
    for row in rng.normal(size=(RUNS, units)) - drop:
        bounds = mean_bounds(sample(row), alpha, span=100.0)
        seen += bounds.mean < -tolerance and bounds.high is not None and bounds.high < 0
    assert seen / RUNS == pytest.approx(0.8, abs=NEAR)


@pytest.mark.parametrize(("units", "alpha"), [(8, 0.05), (20, 0.05 / 14), (60, 0.05), (400, 0.5)])
def test_the_plan_is_for_samples_of_usual_skewness(units: int, alpha: float) -> None:
    """The gate's step and power, skewed to the bad side by 0.4 standard errors of a skewness."""
    t = stats.t.isf(0.9 * alpha, units - 1)
    step = t_step(t, -0.4 * sqrt(6 / units), units) + stats.t.isf(0.2, units - 1)
    assert smallest_visible(0.5, units, alpha) == pytest.approx(0.5 * step / sqrt(units), rel=1e-9)
    assert samples_needed(0.5, 0.5 * step / sqrt(units) * (1 + 1e-9), alpha) == units


def test_few_samples_see_little_less_than_planned() -> None:
    """With 10 units, whose skewness alone can hide a drop, power is short by at most a tenth."""
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(RUNS, 10)) - smallest_visible(1.0, 10, 0.01)
    seen = [mean_bounds(sample(row), 0.01, span=100.0).high for row in rows]
    assert sum(high is not None and high < 0 for high in seen) / RUNS > 0.7


def test_large_samples_need_what_the_textbook_says() -> None:
    """Where t is normal: ((z + z_power) sd / drop)^2, z of nine tenths of alpha, and inverse."""
    assert samples_needed(1.0, 0.01, 0.05) == pytest.approx(
        ((1.6954 + 0.8416) / 0.01) ** 2, rel=0.01
    )
    assert smallest_visible(1.0, 10_000, 0.05) == pytest.approx((1.6954 + 0.8416) / 100, rel=0.01)


@given(st.floats(0.01, 1), st.floats(0.02, 1), st.sampled_from([0.05, 0.001]))
def test_the_two_are_inverse(sd: float, drop: float, alpha: float) -> None:
    """As many as needed see the drop, one fewer does not; a smaller drop needs no fewer."""
    units = samples_needed(sd, drop, alpha)
    assert smallest_visible(sd, units, alpha) <= drop * (1 + 1e-9)
    if units > max(2, samples_needed(sd, drop, 0.4)):
        assert smallest_visible(sd, units - 1, alpha) > drop
    assert samples_needed(sd, drop / 2, alpha) >= units
    assert samples_needed(sd, drop, alpha, 0.9) >= units


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sd": 0.0}, "standard deviation above 0"),
        ({"drop": 0.0}, "a drop above 0"),
        ({"alpha": 0.0}, "alpha in"),
        ({"power": 1.0}, "power in"),
        ({"power": 0.5}, "power in"),
    ],
)
def test_other_numbers_are_refused(settings: dict[str, float], message: str) -> None:
    """No spread, no drop, no error, certainty: there is no number of samples for these."""
    with pytest.raises(ValueError, match=message):
        samples_needed(**{"sd": 1.0, "drop": 0.1, "alpha": 0.05, **settings})


@pytest.mark.parametrize(("units", "tolerance"), [(1, 0.0), (9, -0.1), (9, float("nan"))])
def test_one_unit_sees_nothing(units: int, tolerance: float) -> None:
    """Nor is there a tolerance below zero."""
    with pytest.raises(ValueError, match="at least 2 units and a tolerance"):
        smallest_visible(1.0, units, 0.05, tolerance)
