"""Student's t against exact fractions, spread over runs, and the delete-block jackknife."""

from __future__ import annotations

import statistics
from collections import Counter
from math import isclose
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.uncertainty import (
    BLOCKS,
    FEWEST_UNITS,
    blocks_of,
    estimate_by_items,
    pseudo_values,
    spread_of,
    t_upper_quantile,
)


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
    """However units are ordered or repeated, each is in the same block; sizes are balanced."""
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


def test_the_blocks_of_names_never_change() -> None:
    """Baselines keep block scores: another assignment would compare other samples."""
    assert blocks_of("abcdef") == {"d": 0, "b": 1, "a": 2, "e": 0, "c": 1, "f": 2}


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
