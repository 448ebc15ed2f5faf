"""Detection delays: as simulated checkpoints have them, and never for what is tolerated."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics import Design, Differences, detection_delay, mean_bounds

SD, UNITS, TOLERANCE = 0.05, 100, 0.01


@given(levels=st.lists(st.floats(1e-6, 0.1), min_size=1, max_size=8), units=st.integers(2, 5000))
def test_what_is_tolerated_is_never_found(levels: list[float], units: int) -> None:
    """A drop of exactly the tolerance is found with the error's probability only."""
    drops = [TOLERANCE] * len(levels)
    assert detection_delay(Design.plain(SD, units), levels, drops, TOLERANCE, 0.9) is None


def test_larger_drops_more_units_and_more_error_are_found_sooner() -> None:
    """None, for never within these checkpoints, counts as latest."""

    def delay(drop: float, units: int = UNITS, level: float = 1e-3) -> float:
        checkpoints = detection_delay(Design.plain(SD, units), [level] * 20, [drop] * 20, TOLERANCE)
        return 99 if checkpoints is None else checkpoints

    assert delay(0.02) == 99 > delay(0.025) > delay(0.028) > delay(0.06) == 1
    assert delay(0.025, units=400) < delay(0.025)
    assert delay(0.025, level=0.05) < delay(0.025)


def test_a_decline_is_found_when_it_has_added_up() -> None:
    """Half a tolerance at each checkpoint: the first ones are within what is tolerated."""
    drops = [TOLERANCE / 2 * number for number in range(1, 21)]
    delay = detection_delay(Design.plain(SD, 1000), [1e-4] * 20, drops, 2 * TOLERANCE)
    assert delay is not None
    assert 4 < delay < 12


@pytest.mark.slow
def test_the_delay_is_that_of_simulated_checkpoints() -> None:
    """Four of five series have found the drop by then, and fewer one checkpoint before."""
    drop, level, runs = 0.028, 1e-3, 400
    delay = detection_delay(Design.plain(SD, UNITS), [level] * 20, [drop] * 20, TOLERANCE)
    assert delay is not None
    assert delay > 1
    generator = np.random.default_rng(0)
    seen_by = np.zeros(delay)
    for _ in range(runs):
        reference = generator.standard_normal(UNITS)
        for number in range(delay):
            own = generator.standard_normal(UNITS)
            differences = Differences(
                -drop + SD / sqrt(2) * (own - reference),
                np.zeros(UNITS, np.int64),
                np.arange(UNITS),
            )
            high = mean_bounds(differences, level).high
            if high is not None and high < -TOLERANCE:
                seen_by[number:] += 1
                break
    assert seen_by[-1] / runs > 0.74
    assert seen_by[-2] / runs < 0.84
