"""Kernel distances without one part of the samples: from kept sums, as if computed anew."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.errors import TooFewError
from pytest_cepbench.metrics.kernel_distance import KernelBlocks, kernel_distance
from tests.metrics.drifting_sets import agreement
from tests.metrics.feature_sets import pair

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=40, deadline=None)


def summed(x: Array, y: Array, parts: tuple[Labels, Labels], block: int = 1000) -> KernelBlocks:
    """The sums of two whole sets."""
    sums = KernelBlocks(len(x), len(y), block=block)
    sums.add(x, y, parts)
    return sums


@FEW
@given(seed=SEEDS, n_x=st.integers(8, 30), n_y=st.integers(8, 30), count=st.sampled_from([2, 3, 4]))
def test_within_one_block_it_is_the_distance_of_what_is_left(
    seed: int, n_x: int, n_y: int, count: int
) -> None:
    """Nothing is computed again, and nothing differs from computing it again."""
    x, y = pair(n_x, n_y, 5, seed)
    of_x, of_y = (np.random.default_rng(seed).permutation(np.arange(n) % count) for n in (n_x, n_y))
    sums = summed(x, y, (of_x, of_y))

    for part in range(count):
        rest = kernel_distance(x[of_x != part], y[of_y != part])
        size = float(np.abs(x).max() + np.abs(y).max()) ** 6
        assert sums.distance_without(part) == pytest.approx(rest, rel=1e-10, abs=1e-13 * size)


@FEW
@given(seed=SEEDS, n=st.integers(20, 60), block=st.integers(10, 30))
def test_several_blocks_each_lose_their_own(seed: int, n: int, block: int) -> None:
    """Blocks stay where they are: the mean of the estimates of what is left in each."""
    x, y = pair(n, n, 5, seed)
    parts = np.arange(n) % 3
    sums = summed(x, y, (parts, parts), block)
    count = -(-n // block)
    bounds = [part * n // count for part in range(count + 1)]
    for part in range(3):
        rests = []
        for low, high in pairwise(bounds):
            left = np.arange(low, high)[parts[low:high] != part]
            rests.append(kernel_distance(x[left], y[left]))
        assert sums.distance_without(part) == pytest.approx(np.mean(rests), rel=1e-9, abs=1e-9)


def test_parts_and_shards_change_no_bit_of_the_distance() -> None:
    """The whole has the distance it has without a jackknife, in however many pieces it comes."""
    x, y = pair(50, 50, 5)
    parts = np.arange(50) % 4
    whole = summed(x, y, (parts, parts), block=20)
    pieces = KernelBlocks(50, 50, block=20)
    for low in range(0, 50, 7):
        some = slice(low, low + 7)
        pieces.add(x[some], y[some], (parts[some], parts[some]))

    assert whole.distance() == pieces.distance() == kernel_distance(x, y, block=20)
    assert whole.distance_without(2) == pieces.distance_without(2) != whole.distance()
    assert whole.distance_without(9) == pytest.approx(whole.distance(), rel=1e-12)


def test_a_block_that_keeps_one_sample_is_refused() -> None:
    """The unbiased estimate needs two; which part it was, and what is left, is said."""
    x, y = pair(8, 8, 5)
    parts = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    sums = summed(x, y, (parts, np.arange(8) % 2), block=4)
    assert np.isfinite(sums.distance_without(2))
    with pytest.raises(TooFewError, match=r"without part 0 a block .* keeps 1 and 2 samples"):
        sums.distance_without(0)


def test_labels_that_do_not_fit_are_refused() -> None:
    """One per row, from 0; missing rows leave nothing to leave out; a refusal leaves no trace."""
    x, y = pair(8, 8, 5)
    parts = np.arange(8) % 2
    sums = KernelBlocks(8, 8)
    with pytest.raises(ValueError, match=r"a part from 0 for each of 8 rows, got \(7,\)"):
        sums.add(x, y, (parts, parts[1:]))
    with pytest.raises(ValueError, match="a part from 0 for each of 8 rows"):
        sums.add(x, y, (parts - 1, parts))
    with pytest.raises(ValueError, match="add the missing ones first"):
        sums.distance_without(0)
    sums.add(x, y, (parts, parts))
    assert sums.distance() == kernel_distance(x, y)


def kernel(x: Array, y: Array, blocks: Labels, count: int) -> tuple[float, list[float]]:
    """The whole distance and those without a block."""
    sums = summed(x, y, (blocks, blocks))
    return sums.distance(), [sums.distance_without(block) for block in range(count)]


def test_the_error_of_a_paired_difference_is_the_true_one() -> None:
    """Standard errors from pseudo-values agree with the spread over repeated draws within 25 %."""
    computed = agreement(kernel, 200, 8, far=0.6)

    assert 0.75 < computed.ratio < 1.25
    assert computed.mean > 0.1


def test_where_nothing_drifts_the_error_is_too_large_never_too_small() -> None:
    """Drawings with the law of the starts: only terms of second order are left, counted twice."""
    computed = agreement(kernel, 120, 8, drifts=False)

    assert 1.1 < computed.ratio < 1.8
