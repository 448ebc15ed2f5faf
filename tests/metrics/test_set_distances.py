"""Distances of sets: Frechet with the influence of each sample, and kernel distances."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.errors import TooFewError
from pytest_cepbench.metrics.gc import gc_at_t
from pytest_cepbench.metrics.set_distances import frechet_influences, gc_fid_at_t, kernel_distances

Array = npt.NDArray[np.float64]

SEEDS = st.integers(0, 2**32 - 1)


def pair(n_x: int, n_y: int, dimension: int, seed: int = 0) -> tuple[Array, Array]:
    """Two sets of correlated features with different laws."""
    random = np.random.default_rng(seed)
    mix = random.standard_normal((2, dimension, dimension))
    x = random.standard_normal((n_x, dimension)) @ mix[0]
    y = random.standard_normal((n_y, dimension)) @ mix[1] + 0.5
    return x, y


NO_PARTS = np.empty(0, dtype=np.intp)


def frechet_distance(x: Any, y: Any) -> float:
    """The distance without influences."""
    return frechet_influences(x, y).distance


def kernel_distance(x: Any, y: Any, block: int = 1000) -> float:
    """The distance of all samples."""
    return kernel_distances(x, y, NO_PARTS, NO_PARTS, 0, block=block)[0]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=12))
def test_gc_fid_weighs_iterations_as_gc_does(distances: list[float]) -> None:
    """Eq. 4 is Eq. 3 with distances in the place of similarities."""
    scaled = gc_fid_at_t(np.array(distances))
    expected = sum(t * d for t, d in enumerate(distances, 1)) / sum(range(1, len(distances) + 1))

    assert scaled == pytest.approx(expected, rel=1e-12)
    assert scaled == pytest.approx(gc_at_t(np.array([distances]))[0], rel=1e-12)


@pytest.mark.parametrize("distances", [[], [[1.0, 2.0]], 1.0, [1.0, np.nan], [np.inf]])
def test_gc_fid_of_no_finite_distances_is_refused(distances: Any) -> None:
    """An iteration that could not be measured is never averaged away."""
    with pytest.raises(ValueError, match=r"expected finite distances \(T,\)"):
        gc_fid_at_t(np.array(distances))


def by_definition(x: Array, y: Array) -> float:
    """The formula with 60 digits; the trace is the sum of roots of eig(Sx^(1/2) Sy Sx^(1/2))."""
    mp = pytest.importorskip("mpmath", reason="the reference needs more digits than float64").mp
    with mp.workdps(60):
        means, covariances = [], []
        for rows in (x, y):
            n, dimension = rows.shape
            columns = [[mp.mpf(value) for value in column] for column in rows.T.tolist()]
            mean = [mp.fsum(column) / n for column in columns]
            centred = [[v - m for v in column] for column, m in zip(columns, mean, strict=True)]
            covariance = mp.matrix(dimension)
            for i, row in enumerate(centred):
                for j, column in enumerate(centred):
                    covariance[i, j] = mp.fdot(row, column) / (n - 1)
            means.append(mean)
            covariances.append(covariance)
        values, vectors = mp.eigsy(covariances[0])
        roots = mp.diag([mp.sqrt(max(value, 0)) for value in values])
        half = vectors * roots * vectors.T
        product = mp.eigsy(half * covariances[1] * half, eigvals_only=True)
        overlap = mp.fsum(mp.sqrt(max(value, 0)) for value in product)
        apart = mp.fsum((a - b) ** 2 for a, b in zip(*means, strict=True))
        variances = mp.fsum(s[i, i] for s in covariances for i in range(x.shape[1]))
        return float(apart + variances - 2 * overlap)


@pytest.mark.parametrize(("n_x", "n_y"), [(2, 2), (4, 4), (6, 6), (7, 7), (30, 30), (3, 20)])
@pytest.mark.parametrize("spoiled", ["none", "dead in both", "dead in one", "doubled", "wide"])
def test_twelve_digits_are_right(n_x: int, n_y: int, spoiled: str) -> None:
    """Below, at and above N = D, with dead, dependent and nearly dependent features."""
    x, y = pair(n_x, n_y, 6)
    for rows in (x, y):
        if spoiled == "doubled":  # one is given twice, and one is the sum of two others
            rows[:, 4] = rows[:, 0]
            rows[:, 5] = rows[:, 1] + rows[:, 2]
        elif spoiled == "wide":  # they differ from the first one in the fourth to eighth digit
            rows[:] = rows[:, :1] + rows * np.geomspace(1e-4, 1e-8, rows.shape[1])
        elif spoiled == "dead in both" or (spoiled == "dead in one" and rows is x):
            rows[:, 1] = 0.0
            rows[:, 3] = 0.1

    assert frechet_distance(x, y) == pytest.approx(by_definition(x, y), rel=1e-12, abs=0)


SLOW = settings(max_examples=25, deadline=None)
SIZES = st.sampled_from(
    [(8, 8, 20), (12, 30, 20), (40, 40, 6), (60, 25, 12), (21, 21, 20), (2100, 30, 6)]
)
"""n of x, n of y, D: fewer samples than dimensions, as many, more, and different numbers."""


def along(x: Array, y: Array, side: str, row: int, step: float) -> float:
    """The distance where a row of one set has a little more weight, from the definition."""
    roots, means = [], []
    for name, rows in (("x", x), ("y", y)):
        weights = np.full(len(rows), 1 / len(rows))
        if name == side:
            weights *= 1 - step
            weights[row] += step
        mean = weights @ rows
        n = len(rows)
        roots.append(np.sqrt(weights)[:, None] * (rows - mean) * np.sqrt(n / (n - 1)))
        means.append(mean)
    cross = np.linalg.svd(roots[0] @ roots[1].T, compute_uv=False).sum()
    apart = means[0] - means[1]
    return float(apart @ apart + sum((root**2).sum() for root in roots) - 2 * cross)


@SLOW
@given(seed=SEEDS, sizes=SIZES, side=st.sampled_from("xy"))
def test_they_are_the_derivative_along_each_weight(
    seed: int, sizes: tuple[int, int, int], side: str
) -> None:
    """The slope of the distance as one row gains weight, by two-sided differences; more weight for
    all rows is no change.
    """
    x, y = pair(*sizes, seed)
    result = frechet_influences(x, y)
    step = 1e-5
    slope = (along(x, y, side, 0, step) - along(x, y, side, 0, -step)) / (2 * step)
    size = float(np.abs(getattr(result, side)).max()) + result.distance
    # Nearly singular covariances bend the distance: the slope over a step is not quite the tangent.
    assert getattr(result, side)[0] == pytest.approx(slope, abs=2e-3 * size)
    for influences, rows in ((result.x, x), (result.y, y)):
        assert influences.shape == (len(rows),)
        assert float(influences.sum()) == pytest.approx(0, abs=1e-9 * np.abs(influences).sum())


@pytest.mark.parametrize("kind", ["equal", "constant", "two"])
def test_degenerate_sets_give_finite_numbers(kind: str) -> None:
    """Equal sets are no distance apart and no sample moves them; constants have no spread."""
    x, y = pair(12, 12, 5)
    if kind == "equal":
        y = x
    elif kind == "constant":
        y = np.ones_like(y)
    else:
        x, y = x[:2], y[:2]
    result = frechet_influences(x, y)
    assert np.isfinite(result.x).all()
    assert np.isfinite(result.y).all()
    if kind == "equal":
        assert result.distance == pytest.approx(0, abs=1e-9)
        assert np.abs(result.x).max() < 1e-9


COUNTS = st.integers(2, 13)
KERNEL = settings(max_examples=40, deadline=None)


def mmd_by_definition(x: Array, y: Array) -> float:
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


@KERNEL
@given(seed=SEEDS, n_x=COUNTS, n_y=COUNTS)
def test_one_block_is_the_unbiased_estimate(seed: int, n_x: int, n_y: int) -> None:
    """Every pair of different samples counts once, a sample with itself never."""
    x, y = pair(n_x, n_y, 3, seed)
    assert kernel_distance(x, y) == pytest.approx(mmd_by_definition(x, y), rel=1e-11, abs=1e-11)


@KERNEL
@given(seed=SEEDS, n=st.integers(2, 23), block=st.integers(2, 9))
def test_blocks_are_consecutive_near_equal_and_lose_no_sample(
    seed: int, n: int, block: int
) -> None:
    """ceil(n / block) blocks, or as many as have two samples; sizes differ by at most one."""
    x, y = pair(n, n, 3, seed)
    count = min(-(-n // block), n // 2)
    bounds = [part * n // count for part in range(count + 1)]
    sizes = [high - low for low, high in pairwise(bounds)]
    parts = [mmd_by_definition(x[low:high], y[low:high]) for low, high in pairwise(bounds)]

    assert min(sizes) >= 2
    assert max(sizes) - min(sizes) <= 1
    result = kernel_distance(x, y, block=block)
    assert result == pytest.approx(sum(parts) / count, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("distance", [frechet_distance, kernel_distance])
def test_features_that_do_not_fit_are_refused(distance: Callable[[Any, Any], float]) -> None:
    """Too few samples, other dimensions, other shapes and what is no number are each named."""
    x, y = pair(4, 4, 3)
    for few, many, sizes in ((x[:1], y, "1 and 4"), (x, y[:1], "4 and 1")):
        with pytest.raises(TooFewError, match=f"at least 2 .*got sets of {sizes}"):
            distance(few, many)
    with pytest.raises(ValueError, match="dimension 3 and of dimension 2 have no distance"):
        distance(x, y[:, :2])
    with pytest.raises(ValueError, match=r"expected features \(n, D\) twice, got \(4, 3\) and"):
        distance(x, y[0])
    spoilt = np.where(np.eye(4, 3) > 0, np.nan, y)
    for rows in ((x, spoilt), (spoilt, x)):
        with pytest.raises(ValueError, match="NaN, infinity or values beyond"):
            distance(*rows)


@KERNEL
@given(seed=SEEDS, n_x=st.integers(8, 30), n_y=st.integers(8, 30), count=st.sampled_from([2, 3, 4]))
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


def test_kernels_that_have_no_number_are_refused() -> None:
    """Features beyond the range of float64, and a block without two samples of a set, or that keeps
    one: the unbiased estimate needs two; which part it was, and what is left, is said. Labels are
    one per row, from 0 to count - 1.
    """
    x, y = pair(8, 8, 5)
    with pytest.raises(ValueError, match="leaves the range of float64"):
        kernel_distance(x, y * 1e80)
    with pytest.raises(ValueError, match="holds at least 2 samples, got 1"):
        kernel_distance(x, y, block=1)
    parts = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    with pytest.raises(TooFewError, match=r"without part 0 a block .* keeps 1 and 2 samples"):
        kernel_distances(x, y, parts, np.arange(8) % 2, 3, block=4)
    two = np.array([0, 0, 1, 1])
    assert np.isfinite(kernel_distances(x[:4], y[:4], two, two, 2)[1]).all()
    parts = np.arange(8) % 2
    for wrong in (parts[1:], parts - 1, parts + 1):
        for of_x, of_y in ((wrong, parts), (parts, wrong)):
            with pytest.raises(ValueError, match="a part from 0 to 1 for each of 8 rows"):
                kernel_distances(x, y, of_x, of_y, 2)
