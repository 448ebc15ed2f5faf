"""Spread between measurements: the error of one more, its p value, and what it makes of bounds."""

from __future__ import annotations

from math import inf, sqrt

import numpy as np
import pytest

from pytest_cepbench.gate.statistics import (
    Bounds,
    Design,
    Differences,
    MeasurementSpread,
    mean_bounds,
)
from tests.gate.build import bell

BOUNDS = Bounds(-0.03, -0.04, -0.02, 0.05, "Hall", 60, p=0.001)


def test_of_one_part_it_is_the_t_test_of_one_value_against_several() -> None:
    """Against scipy's of two samples with equal variances, of which one has a single value."""
    from scipy import stats

    rng = np.random.default_rng(0)
    measured, fresh = rng.normal(0.5, 0.02, 5), 0.46
    spread = MeasurementSpread.of([float(measured.std(ddof=1))], 5)
    expected = stats.ttest_ind([fresh], measured, alternative="less").pvalue
    assert spread.degrees == 4
    assert spread.p_value(fresh - measured.mean()) == pytest.approx(expected)


def test_parts_add_up_and_have_satterthwaites_degrees() -> None:
    """Equal ones all of theirs, one that is alone with the spread its own."""
    equal, alone = (
        MeasurementSpread.of(deviations, 3) for deviations in ([0.02] * 4, [0.02, 0.0, 0.0, 0.0])
    )
    assert equal.error == pytest.approx(0.02 / 2 * sqrt(4 / 3))
    assert equal.degrees == pytest.approx(8)
    assert alone.error == pytest.approx(0.02 / 4 * sqrt(4 / 3))
    assert alone.degrees == pytest.approx(2)


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_equal_measurements_fail_as_often_as_promised(seeds: int) -> None:
    """A fifth one of the same law is as low as its p value says in that share of cases."""
    rng = np.random.default_rng(seeds)
    runs = 4000
    low = 0
    for _ in range(runs):
        measured = rng.normal(0, 0.02, (seeds, 4))
        spread = MeasurementSpread.of(measured.std(0, ddof=1).tolist(), seeds)
        low += spread.p_value(float(rng.normal(0, 0.02, 4).mean() - measured.mean())) <= 0.05
    assert low / runs <= 0.05 + 3 * sqrt(0.05 * 0.95 / runs)
    assert low / runs >= 0.02


def test_tiny_deviations_keep_their_degrees() -> None:
    """Their squares would be 0."""
    assert MeasurementSpread.of([1e-200, 1e-200], 3).degrees == pytest.approx(4)


def test_without_spread_nothing_changes() -> None:
    """A model that gives the same under every seed is compared as with one measurement."""
    spread = MeasurementSpread.of([0.0, 0.0], 5)
    assert spread.widened(BOUNDS, 1.0) is BOUNDS
    design = Design.plain(0.05, 60)
    assert spread.limited(design, 0.05) is design


def test_bounds_and_p_are_the_wider_of_two() -> None:
    """Both say the same of a drop; what is narrower has no say."""
    wide, narrow = (MeasurementSpread.of([s], 5) for s in (0.02, 0.0001))
    widened = wide.widened(BOUNDS, 1.0)
    assert widened.p == wide.p_value(-0.03) > BOUNDS.alpha
    assert widened.low == pytest.approx(-0.03 - wide.reach(0.05))
    assert widened.high == pytest.approx(-0.03 + wide.reach(0.05))
    assert -0.03 + wide.reach(0.05) > 0
    assert widened.statement.startswith("5 measurements of the accepted model spread more")
    assert narrow.widened(BOUNDS, 1.0) is BOUNDS


def test_a_bound_beyond_the_span_excludes_nothing() -> None:
    """Two measurements of one category know next to nothing of their spread."""
    spread = MeasurementSpread.of([0.1], 2)
    widened = spread.widened(Bounds(-0.3, -0.4, -0.2, 0.001, "Hall", 60, p=0.001), 1.0)
    assert (widened.low, widened.high) == (None, None)
    of_sets = spread.widened(Bounds(-0.3, -0.4, -0.2, 0.001, "Hall", 60, p=0.001), inf)
    assert of_sets.low is not None
    assert of_sets.low < -10


def test_bounds_without_a_test_stay() -> None:
    """One block of a set shows nothing, however often it is measured."""
    one = mean_bounds(Differences.of({"a": {"0": -0.1}}, center=-0.1), 0.05, blocks=True)
    assert MeasurementSpread.of([0.02], 5).widened(one, inf) is one


def test_power_is_that_of_the_wider_spread() -> None:
    """The design has the error and the degrees of the measurements where they spread more."""
    values = np.array(bell(60, 0.0, 0.05))
    design = Design.of(Differences(values, np.zeros(60, int), np.arange(60)))
    wide, narrow = (MeasurementSpread.of([s], 5) for s in (0.02, 0.0001))
    limited = wide.limited(design, 0.05)
    assert limited.error == pytest.approx(wide.error)
    assert (limited.units, limited.degrees) == (60, 4)
    assert narrow.limited(design, 0.05) is design


@pytest.mark.parametrize(
    ("deviations", "seeds"), [([], 3), ([-0.1], 3), ([float("nan")], 3), ([inf], 3), ([0.1], 1)]
)
def test_other_numbers_are_refused(deviations: list[float], seeds: int) -> None:
    """Named with what was expected."""
    with pytest.raises(ValueError, match="expected a deviation of at least 0"):
        MeasurementSpread.of(deviations, seeds)
