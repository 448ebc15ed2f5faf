"""Kernel distance: against the definition in plain loops, block by block, and what is refused."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.errors import TooFewError
from pytest_cepbench.metrics.set_distances import kernel_distance

Array = npt.NDArray[np.float64]

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(2, 13)
FEW = settings(max_examples=40)


def pair(n_x: int, n_y: int, seed: int = 0, dimension: int = 3) -> tuple[Array, Array]:
    """Two sets with different laws."""
    random = np.random.default_rng(seed)
    return random.standard_normal((n_x, dimension)), random.standard_normal((n_y, dimension)) + 0.5


def by_definition(x: Array, y: Array) -> float:
    """Unbiased squared MMD, one pair of samples after the other."""

    def kernel(a: Array, b: Array) -> float:
        base = math.fsum(p * q for p, q in zip(a.tolist(), b.tolist(), strict=True)) / len(a) + 1
        return base * base * base

    def others(rows: Array) -> float:
        n = len(rows)
        pairs = [kernel(rows[i], rows[j]) for i in range(n) for j in range(n) if i != j]
        return sum(pairs) / (n * (n - 1))

    across = [kernel(a, b) for a in x for b in y]
    return others(x) + others(y) - 2 * sum(across) / len(across)


@FEW
@given(seed=SEEDS, n_x=SIZES, n_y=SIZES)
def test_one_block_is_the_unbiased_estimate(seed: int, n_x: int, n_y: int) -> None:
    """Every pair of different samples counts once, a sample with itself never."""
    x, y = pair(n_x, n_y, seed)
    assert kernel_distance(x, y) == pytest.approx(by_definition(x, y), rel=1e-11, abs=1e-11)


@FEW
@given(seed=SEEDS, n=st.integers(2, 23), block=st.integers(2, 9))
def test_blocks_are_consecutive_near_equal_and_lose_no_sample(
    seed: int, n: int, block: int
) -> None:
    """ceil(n / block) blocks, or as many as have two samples; sizes differ by at most one."""
    x, y = pair(n, n, seed)
    count = min(-(-n // block), n // 2)
    bounds = [part * n // count for part in range(count + 1)]
    sizes = [high - low for low, high in pairwise(bounds)]
    parts = [by_definition(x[low:high], y[low:high]) for low, high in pairwise(bounds)]

    assert min(sizes) >= 2
    assert max(sizes) - min(sizes) <= 1
    result = kernel_distance(x, y, block=block)
    assert result == pytest.approx(sum(parts) / count, rel=1e-11, abs=1e-11)


def test_blocks_hold_a_thousand_samples_unless_told_otherwise() -> None:
    """1,001 samples are two blocks, a thousand are one, as large as the published subsets."""
    x, y = pair(1001, 1001)
    halves = [kernel_distance(x[part], y[part]) for part in (slice(500), slice(500, None))]

    assert kernel_distance(x, y) == pytest.approx(sum(halves) / 2, rel=1e-12)
    assert kernel_distance(x[:1000], y[:1000]) == kernel_distance(x[:1000], y[:1000], block=5000)


@FEW
@given(seed=SEEDS, n_x=SIZES, n_y=SIZES)
def test_the_order_of_the_pair_is_no_matter(seed: int, n_x: int, n_y: int) -> None:
    """The distance of y to x is the distance of x to y."""
    x, y = pair(n_x, n_y, seed)
    assert kernel_distance(y, x) == pytest.approx(kernel_distance(x, y), rel=1e-12, abs=1e-12)


def test_no_bias_is_left_on_either_side_of_zero() -> None:
    """Over samples of one law the mean is zero within its error, and some values are negative."""
    random = np.random.default_rng(0)
    result = np.array([kernel_distance(*random.standard_normal((2, 20, 4))) for _ in range(400)])

    assert (result < 0).any()
    assert abs(result.mean()) < 4 * result.std() / np.sqrt(len(result))


def test_it_grows_as_the_laws_move_apart() -> None:
    """Lower is better."""
    x, y = pair(200, 200)
    moved = [kernel_distance(x, y + far) for far in (0.0, 0.5, 1.0, 2.0)]

    assert moved == sorted(moved)
    assert moved[0] > kernel_distance(x, pair(200, 200, seed=1)[0])


def test_narrow_floats_are_widened_first() -> None:
    """Encoders give float32, and products are formed in float64."""
    x, y = (rows.astype(np.float32) for rows in pair(30, 30))
    assert kernel_distance(x, y) == kernel_distance(x.astype(np.float64), y.astype(np.float64))


@pytest.mark.parametrize(("n_x", "n_y"), [(1, 5), (5, 1)])
def test_less_than_two_samples_are_refused(n_x: int, n_y: int) -> None:
    """The unbiased estimate needs two different samples in each set and block."""
    with pytest.raises(TooFewError, match=f"at least 2 .*got sets of {n_x} and {n_y}"):
        kernel_distance(*pair(n_x, n_y))
    with pytest.raises(ValueError, match="holds at least 2 samples, got 1"):
        kernel_distance(*pair(5, 5), block=1)


def test_features_that_do_not_fit_are_refused() -> None:
    """Other dimensions, other shapes and values without a kernel are each named."""
    x, y = pair(4, 4)
    with pytest.raises(ValueError, match="dimension 3 and of dimension 2 have no distance"):
        kernel_distance(x, y[:, :2])
    with pytest.raises(ValueError, match=r"expected features \(n, D\) twice, got \(4, 3\) and"):
        kernel_distance(x, y[0])
    with pytest.raises(ValueError, match="count them as failed"):
        kernel_distance(x, np.where(np.eye(4, 3) > 0, np.nan, y))
    with pytest.raises(ValueError, match="leaves the range of float64"):
        kernel_distance(x, y * 1e80)
