"""Kernel distances, and the same without each part."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.errors import TooFewError
from pytest_cepbench.metrics.set_distances import kernel_distances
from pytest_cepbench.metrics.uncertainty import pseudo_values
from tests.metrics.feature_sets import kernel_distance, pair

Array = npt.NDArray[np.float64]

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(2, 13)
FEW = settings(max_examples=40, deadline=None)


def normal_pair(n_x: int, n_y: int, seed: int = 0, dimension: int = 3) -> tuple[Array, Array]:
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
    x, y = normal_pair(n_x, n_y, seed)
    assert kernel_distance(x, y) == pytest.approx(by_definition(x, y), rel=1e-11, abs=1e-11)


@FEW
@given(seed=SEEDS, n=st.integers(2, 23), block=st.integers(2, 9))
def test_blocks_are_consecutive_near_equal_and_lose_no_sample(
    seed: int, n: int, block: int
) -> None:
    """ceil(n / block) blocks, or as many as have two samples; sizes differ by at most one."""
    x, y = normal_pair(n, n, seed)
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
    x, y = normal_pair(1001, 1001)
    halves = [kernel_distance(x[part], y[part]) for part in (slice(500), slice(500, None))]

    assert kernel_distance(x, y) == pytest.approx(sum(halves) / 2, rel=1e-12)
    assert kernel_distance(x[:1000], y[:1000]) == kernel_distance(x[:1000], y[:1000], block=5000)


@pytest.mark.parametrize(("n_x", "n_y"), [(1, 5), (5, 1)])
def test_less_than_two_samples_are_refused(n_x: int, n_y: int) -> None:
    """The unbiased estimate needs two different samples in each set and block."""
    with pytest.raises(TooFewError, match=f"at least 2 .*got sets of {n_x} and {n_y}"):
        kernel_distance(*normal_pair(n_x, n_y))
    with pytest.raises(ValueError, match="holds at least 2 samples, got 1"):
        kernel_distance(*normal_pair(5, 5), block=1)


def test_features_that_do_not_fit_are_refused() -> None:
    """Other dimensions, other shapes and values without a kernel are each named."""
    x, y = normal_pair(4, 4)
    with pytest.raises(ValueError, match="dimension 3 and of dimension 2 have no distance"):
        kernel_distance(x, y[:, :2])
    with pytest.raises(ValueError, match=r"expected features \(n, D\) twice, got \(4, 3\) and"):
        kernel_distance(x, y[0])
    with pytest.raises(ValueError, match="count them as failed"):
        kernel_distance(x, np.where(np.eye(4, 3) > 0, np.nan, y))
    with pytest.raises(ValueError, match="leaves the range of float64"):
        kernel_distance(x, y * 1e80)


@FEW
@given(
    seed=SEEDS,
    n_x=st.integers(8, 30),
    n_y=st.integers(8, 30),
    count=st.sampled_from([2, 3, 4]),
)
def test_within_one_block_it_is_the_distance_of_what_is_left(
    seed: int, n_x: int, n_y: int, count: int
) -> None:
    """Nothing is computed again, and nothing differs from computing it again."""
    x, y = pair(n_x, n_y, 5, seed)
    of_x, of_y = (np.random.default_rng(seed).permutation(np.arange(n) % count) for n in (n_x, n_y))
    whole, without = kernel_distances(x, y, of_x, of_y, count)

    assert whole == kernel_distance(x, y)
    for part in range(count):
        rest = kernel_distance(x[of_x != part], y[of_y != part])
        size = float(np.abs(x).max() + np.abs(y).max()) ** 6
        assert without[part] == pytest.approx(rest, rel=1e-10, abs=1e-13 * size)


@FEW
@given(seed=SEEDS, n=st.integers(20, 60), block=st.integers(10, 30))
def test_several_blocks_each_lose_their_own(seed: int, n: int, block: int) -> None:
    """Blocks stay where they are: the mean of the estimates of what is left in each."""
    x, y = pair(n, n, 5, seed)
    parts = np.arange(n) % 3
    whole, without = kernel_distances(x, y, parts, parts, 3, block=block)
    assert whole == kernel_distance(x, y, block=block)
    count = -(-n // block)
    bounds = [part * n // count for part in range(count + 1)]
    for part in range(3):
        rests = []
        for low, high in pairwise(bounds):
            left = np.arange(low, high)[parts[low:high] != part]
            rests.append(kernel_distance(x[left], y[left]))
        assert without[part] == pytest.approx(np.mean(rests), rel=1e-9, abs=1e-9)


def test_a_block_that_keeps_one_sample_is_refused() -> None:
    """The unbiased estimate needs two; which part it was, and what is left, is said."""
    x, y = pair(8, 8, 5)
    parts = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    with pytest.raises(TooFewError, match=r"without part 0 a block .* keeps 1 and 2 samples"):
        kernel_distances(x, y, parts, np.arange(8) % 2, 3, block=4)
    assert np.isfinite(kernel_distances(x, y, parts % 2, parts % 2, 2)[1]).all()


def test_labels_that_do_not_fit_are_refused() -> None:
    """One per row, from 0 to count - 1."""
    x, y = pair(8, 8, 5)
    parts = np.arange(8) % 2
    for wrong in (parts[1:], parts - 1, parts + 1):
        for of_x, of_y in ((wrong, parts), (parts, wrong)):
            with pytest.raises(ValueError, match="a part from 0 to 1 for each of 8 rows"):
                kernel_distances(x, y, of_x, of_y, 2)


@dataclass(frozen=True)
class Agreement:
    """Over many draws of one world. ratio: root mean square of the jackknife's standard errors of
    the paired difference over its true spread. mean: of the differences themselves.
    """

    ratio: float
    mean: float


def agreement(n: int, dimension: int, *, far: float = 0.0, drifts: bool = True) -> Agreement:
    """Two models, in 200 draws, that each keep a share of the start and draw the rest themselves.

    far: how far both move the mean; the second a third further. drifts: whether what they draw by
    themselves has another spectrum than the starts; else the drawings have the law of the starts.
    """
    random = np.random.default_rng(7)
    scale = np.arange(1, dimension + 1) ** -0.5
    own = 0.8 * (scale[::-1] if drifts else scale)
    differences, variances = [], []
    for _ in range(200):
        starts = random.standard_normal((n, dimension)) * scale
        blocks = random.permutation(np.arange(n) % 10)
        estimates = []
        for moved in (far, far * 4 / 3):
            drawn = 0.6 * starts + random.standard_normal((n, dimension)) * own + moved * scale
            estimates.append(kernel_distances(starts, drawn, blocks, blocks, 10))
        differences.append(estimates[1][0] - estimates[0][0])
        pseudo = pseudo_values(*estimates[1]) - pseudo_values(*estimates[0])
        variances.append(pseudo.var(ddof=1) / len(pseudo))
    ratio = float(np.sqrt(np.mean(variances)) / np.std(differences, ddof=1))
    return Agreement(ratio, float(np.mean(differences)))
