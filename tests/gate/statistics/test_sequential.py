"""Levels of a group sequential test: what they spend, and that they ask no more than Bonferroni."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.statistics import (
    look_shares,
    look_sizes,
    sequential_levels,
)
from pytest_cepbench.gate.statistics.sequential import crossing_probability

_SIZES = st.builds(
    look_sizes,
    st.integers(1, 3000),
    st.integers(1, 60),
    st.floats(1.25, 3.0),
)


@given(_SIZES, st.floats(1e-4, 0.5))
def test_no_look_has_less_than_by_bonferroni_and_the_last_has_as_much(
    sizes: tuple[int, ...], alpha: float
) -> None:
    """Every level is at least the share that unrelated looks would have, and below alpha."""
    levels = sequential_levels(sizes, alpha)
    least = [alpha * share for share in look_shares(len(sizes))]
    assert levels[-1] == least[-1]
    assert all(low <= level * (1 + 1e-9) for low, level in zip(least, levels, strict=True))
    assert all(level <= alpha for level in levels)
    shares = [size / sizes[-1] for size in sizes]
    assert crossing_probability(shares, levels) <= alpha * (1 + 1e-9)


def test_normal_means_cross_as_often_as_computed() -> None:
    """Of simulated sums of normal numbers 5 in 100 are ever beyond their bounds, less a margin."""
    sizes = look_sizes(192, 12, 1.25)
    levels = sequential_levels(sizes, 0.05)
    sums = np.random.default_rng(0).standard_normal((40_000, 192)).cumsum(axis=1)
    scaled = np.stack([sums[:, size - 1] / np.sqrt(size) for size in sizes], axis=1)
    bounds = np.array([-NormalDist().inv_cdf(level) for level in levels])
    crossed = float((scaled > bounds).any(axis=1).mean())
    assert crossed == pytest.approx(0.0475, abs=0.004)
    shares = [size / 192 for size in sizes]
    assert crossing_probability(shares, levels) == pytest.approx(crossed, abs=0.004)


def test_one_look_has_the_whole_error() -> None:
    """Nothing is divided where there is nothing to divide it among."""
    assert sequential_levels((40,), 0.05) == (0.05,)


@pytest.mark.parametrize(
    ("sizes", "alpha"), [((), 0.05), ((25, 25), 0.05), ((0, 10), 0.05), ((25,), 0.0), ((25,), 0.6)]
)
def test_numbers_out_of_range_are_refused(sizes: tuple[int, ...], alpha: float) -> None:
    """Sizes rise from 1 on, and an error of a bound is at most one half."""
    with pytest.raises(ValueError, match=r"expected sizes|alpha is"):
        sequential_levels(sizes, alpha)
