"""Influences on a kernel distance: the projection of a U-statistic onto single samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.metrics.kernel_distance import KernelBlocks, kernel_distance
from tests.metrics.feature_sets import pair

SEEDS = st.integers(0, 2**32 - 1)


def summed(x: np.ndarray, y: np.ndarray, block: int = 1000) -> KernelBlocks:
    """Fed at once."""
    sums = KernelBlocks(len(x), len(y), block=block)
    sums.add(x, y)
    return sums


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, n_x=st.integers(3, 40), n_y=st.integers(3, 40), block=st.sampled_from([5, 1000]))
def test_they_sum_to_nothing_in_every_set(seed: int, n_x: int, n_y: int, block: int) -> None:
    """One for each row, in the order given; more weight for all is no change."""
    x, y = pair(n_x, n_y, 4, seed)
    for influences, rows in zip(summed(x, y, block).influences(), (x, y), strict=True):
        assert influences.shape == (len(rows),)
        assert influences.sum() == pytest.approx(0, abs=1e-9 * (1 + np.abs(influences).sum()))


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, n=st.integers(6, 40))
def test_leaving_a_row_out_is_what_they_say(seed: int, n: int) -> None:
    """Exactly, but for n - 2 in place of n - 1 among the pairs of one set."""
    x, y = pair(n, n + 3, 4, seed)
    influences, _ = summed(x, y).influences()
    whole = kernel_distance(x, y)
    own = (x @ x.T / 4 + 1) ** 3
    np.fill_diagonal(own, 0)
    within = 2 * (own.sum(axis=1) / (n - 1) - own.sum() / (n * (n - 1)))
    for row in range(0, n, 5):
        change = kernel_distance(np.delete(x, row, axis=0), y) - whole
        beyond = within[row] / (n - 1) - within[row] / (n - 2)
        expected = -influences[row] / (n - 1) + beyond
        assert change == pytest.approx(expected, abs=1e-9 * (1 + abs(whole)))


def test_blocks_keep_their_own() -> None:
    """With several blocks each row moves its own block, which is one of as many."""
    x, y = pair(12, 12, 3)
    whole, _ = summed(x, y, block=6).influences()
    first, _ = summed(x[:6], y[:6]).influences()
    assert whole[:6] == pytest.approx(first)


def test_missing_rows_have_none() -> None:
    """Before all rows are there."""
    sums = KernelBlocks(4, 4)
    with pytest.raises(ValueError, match="add the missing ones first"):
        sums.influences()
