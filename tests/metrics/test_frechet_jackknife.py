"""Frechet distances without one block of samples: the plain way's values, and an honest error."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.errors import TooFewError
from pytest_cepbench.metrics.frechet import frechet_distance, frechet_distances_without
from tests.metrics.drifting_sets import agreement
from tests.metrics.feature_sets import pair

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.intp]

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=40, deadline=None)


def one_by_one(x: Floats, y: Floats, x_blocks: Labels, y_blocks: Labels, count: int) -> list[float]:
    """The distances of what is left, each from its rows alone."""
    return [frechet_distance(x[x_blocks != block], y[y_blocks != block]) for block in range(count)]


def dealt(n: int, count: int, seed: int) -> Labels:
    """A block for each row, in no order; some blocks may have no row."""
    return np.random.default_rng(seed).permutation(np.arange(n) % count)


@FEW
@given(
    seed=SEEDS,
    n_x=st.sampled_from([5, 8, 12, 40, 300]),
    n_y=st.sampled_from([5, 8, 12, 40, 300]),
    dimension=st.sampled_from([3, 12, 40]),
    count=st.sampled_from([2, 3, 10]),
)
def test_they_are_the_distances_of_what_is_left(
    seed: int, n_x: int, n_y: int, dimension: int, count: int
) -> None:
    """With fewer, as many and more samples than dimensions, and with sets of different sizes."""
    x, y = pair(n_x, n_y, dimension, seed)
    x_blocks, y_blocks = dealt(n_x, count, seed), dealt(n_y, count, seed + 1)
    distances = frechet_distances_without(x, y, x_blocks, y_blocks, count)

    expected = one_by_one(x, y, x_blocks, y_blocks, count)
    assert distances == pytest.approx(expected, rel=1e-11, abs=1e-11 * float(np.square(x).sum()))


def test_wide_features_of_many_samples_are_told_apart_too() -> None:
    """Past 512 dimensions sets are kept as scatter matrices; a block of none changes nothing."""
    x, y = (rows.astype(np.float32) for rows in pair(700, 640, 520))
    x_blocks, y_blocks = dealt(700, 3, 1), dealt(640, 3, 2)
    distances = frechet_distances_without(x, y, x_blocks, y_blocks, 4)

    assert distances == pytest.approx(one_by_one(x, y, x_blocks, y_blocks, 4), rel=1e-10)
    assert distances[3] == pytest.approx(frechet_distance(x, y), rel=1e-10)


@pytest.mark.parametrize("n", [6, 60])
@pytest.mark.parametrize("scale", [2.0**-300, 1.0, 2.0**300])
def test_scale_and_place_cost_no_digit(n: int, scale: float) -> None:
    """Features near the ends of float64, and far from zero, leave the same rests."""
    x, y = (np.round(rows * 2**20) / 2**20 for rows in pair(n, n, 8))  # exact beside the offset
    blocks = dealt(n, 3, 0)
    near = np.array(frechet_distances_without(x, y, blocks, blocks, 3))
    moved = frechet_distances_without(
        (x + 2.0**20) * scale, (y + 2.0**20) * scale, blocks, blocks, 3
    )

    assert np.array(moved) / scale / scale == pytest.approx(near, rel=1e-9)


@pytest.mark.parametrize("n", [6, 60])
def test_a_generator_of_one_image_leaves_points(n: int) -> None:
    """Sets without spread, and a rest that has none because the odd one out is left out."""
    x, y = np.full((n, 8), 1.1), np.full((n, 8), 3.1)
    blocks = np.arange(n) % 3
    assert frechet_distances_without(x, y, blocks, blocks, 3) == pytest.approx([32] * 3)
    y[::3] = 7.0
    distances = frechet_distances_without(x, y, blocks, blocks, 3)
    assert distances[0] == pytest.approx(32)
    assert min(distances[1:]) > 33


def test_a_sample_far_off_costs_the_rest_no_digits_that_matter() -> None:
    """Without the block of one broken vector, the others' distance is that of them alone."""
    x, y = pair(9, 9, 12)
    y[4] += 1e5
    blocks = np.arange(9) % 3
    distances = frechet_distances_without(x, y, blocks, blocks, 3)

    assert distances == pytest.approx(one_by_one(x, y, blocks, blocks, 3), rel=1e-6)
    assert distances[1] < 1e-3 * min(distances[0], distances[2])


@pytest.mark.parametrize("dimension", [3, 20])
def test_a_rest_of_one_sample_is_refused(dimension: int) -> None:
    """It has no covariance; what is left of which set is said."""
    x, y = pair(9, 9, dimension)
    few = np.array([0, 0, 0, 0, 0, 0, 0, 0, 1])
    even = np.arange(9) % 2
    for x_blocks, y_blocks in ((few, even), (even, few)):
        with pytest.raises(TooFewError, match="a set of 9 has 1 samples left without its largest"):
            frechet_distances_without(x, y, x_blocks, y_blocks, 2)


def test_labels_that_do_not_fit_are_refused() -> None:
    """One per row, from 0 to count - 1; features of two encoders have no distance here either."""
    x, y = pair(6, 6, 12)
    blocks = np.arange(6) % 3
    with pytest.raises(ValueError, match=r"a block for each row, got \(6, 12\) and \(5,\)"):
        frechet_distances_without(x, y, blocks, blocks[:5], 3)
    for wrong in (blocks - 1, blocks + 1):
        with pytest.raises(ValueError, match="expected blocks from 0 to count - 1 = 2, got"):
            frechet_distances_without(x, y, blocks, wrong, 3)
    for other in (y[:, :11], np.ones((6, 2))):
        with pytest.raises(ValueError, match="have no distance"):
            frechet_distances_without(x, other, blocks, blocks, 3)
    with pytest.raises(ValueError, match="count them as failed"):
        frechet_distances_without(x, np.where(np.eye(6, 12) > 0, np.nan, y), blocks, blocks, 3)


def frechet(x: Array, y: Array, blocks: Labels, count: int) -> tuple[float, list[float]]:
    """The whole distance and those without a block."""
    return frechet_distance(x, y), frechet_distances_without(x, y, blocks, blocks, count)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "dimension"), [(120, 6), (40, 64)], ids=["n > D", "n < D"])
@pytest.mark.parametrize("far", [0.0, 0.3], ids=["equal", "drifted"])
def test_the_error_of_a_paired_difference_is_the_true_one(
    n: int, dimension: int, far: float
) -> None:
    """Standard errors from pseudo-values agree with the spread over repeated draws within 25 %."""
    distances = agreement(frechet, n, dimension, far=far)

    assert 0.75 < distances.ratio < 1.25
    assert (distances.mean > 0.1) == (far > 0)


@pytest.mark.slow
def test_where_nothing_drifts_the_error_is_too_large_never_too_small() -> None:
    """Drawings with the law of the starts: only terms of second order are left, counted twice."""
    distances = agreement(frechet, 120, 6, drifts=False)

    assert 1.1 < distances.ratio < 1.8
