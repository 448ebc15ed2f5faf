"""Spread of one model over runs."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.uncertainty import spread_of


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8))
def test_a_spread_is_that_of_a_sample(scores: list[float]) -> None:
    """Mean, deviation by n - 1, smallest, largest and their difference."""
    spread = spread_of(np.array(scores))
    assert spread.runs == len(scores)
    assert spread.mean == pytest.approx(statistics.fmean(scores), abs=1e-12)
    assert spread.std == pytest.approx(statistics.stdev(scores), abs=1e-9)
    assert (spread.low, spread.high) == (min(scores), max(scores))
    assert spread.range == max(scores) - min(scores)


@pytest.mark.parametrize("runs", [[0.5], [], [0.5, float("nan")]])
def test_one_run_has_no_spread(runs: list[float]) -> None:
    """Nor has a run that failed: it must be left out by name."""
    with pytest.raises(ValueError, match="at least 2 runs"):
        spread_of(np.array(runs))
