"""Influences on a Frechet distance: derivatives, first order of a leave-out, and invariances."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.errors import TooFewError
from pytest_cepbench.metrics.set_distances import frechet_distance, frechet_influences
from tests.metrics.feature_sets import pair

Array = npt.NDArray[np.float64]

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=25, deadline=None)
SIZES = st.sampled_from(
    [(8, 8, 20), (12, 30, 20), (40, 40, 6), (60, 25, 12), (21, 21, 20), (2100, 30, 6)]
)
"""n of x, n of y, D: fewer samples than dimensions, as many, more, and different numbers."""


def weighted_distance(x: Array, y: Array, w: Array, v: Array) -> float:
    """The distance of weighted sets, from the definition; equal weights give the plain one."""
    roots = []
    means = []
    for rows, weights in ((x, w), (y, v)):
        mean = weights @ rows
        n = len(rows)
        roots.append(np.sqrt(weights)[:, None] * (rows - mean) * np.sqrt(n / (n - 1)))
        means.append(mean)
    cross = np.linalg.svd(roots[0] @ roots[1].T, compute_uv=False).sum()
    apart = means[0] - means[1]
    return float(apart @ apart + sum((root**2).sum() for root in roots) - 2 * cross)


def along(x: Array, y: Array, side: str, row: int, step: float) -> float:
    """The distance where a row of one set has a little more weight."""
    weights = [np.full(len(rows), 1 / len(rows)) for rows in (x, y)]
    own = weights["xy".index(side)]
    own *= 1 - step
    own[row] += step
    return weighted_distance(x, y, *weights)


@FEW
@given(seed=SEEDS, sizes=SIZES, side=st.sampled_from("xy"))
def test_they_are_the_derivative_along_each_weight(
    seed: int, sizes: tuple[int, int, int], side: str
) -> None:
    """The slope of the distance as one row gains weight, by two-sided differences."""
    x, y = pair(*sizes, seed)
    result = frechet_influences(x, y)
    step = 1e-5
    slope = (along(x, y, side, 0, step) - along(x, y, side, 0, -step)) / (2 * step)
    size = float(np.abs(getattr(result, side)).max()) + result.distance
    # Nearly singular covariances bend the distance: the slope over a step is not quite the tangent.
    assert getattr(result, side)[0] == pytest.approx(slope, abs=2e-3 * size)


@FEW
@given(seed=SEEDS, sizes=SIZES)
def test_they_sum_to_nothing_and_come_with_the_distance(
    seed: int, sizes: tuple[int, int, int]
) -> None:
    """More weight for all is no change; the distance is the plain function's."""
    x, y = pair(*sizes, seed)
    result = frechet_influences(x, y)
    assert result.distance == pytest.approx(frechet_distance(x, y), rel=1e-10)
    for influences, rows in ((result.x, x), (result.y, y)):
        assert influences.shape == (len(rows),)
        assert float(influences.sum()) == pytest.approx(0, abs=1e-9 * np.abs(influences).sum())


@FEW
@given(seed=SEEDS, sizes=SIZES)
def test_the_sets_change_places(seed: int, sizes: tuple[int, int, int]) -> None:
    """The influences of (y, x) are those of (x, y)."""
    x, y = pair(*sizes, seed)
    there, back = frechet_influences(x, y), frechet_influences(y, x)
    scale = float(np.abs(there.x).max() + np.abs(there.y).max())
    assert there.x == pytest.approx(back.y, abs=1e-7 * scale)
    assert there.y == pytest.approx(back.x, abs=1e-7 * scale)


@FEW
@given(seed=SEEDS, sizes=SIZES, scale=st.sampled_from([2.0**-60, 1.0, 2.0**60]))
def test_turns_shifts_and_units_are_as_for_the_distance(
    seed: int, sizes: tuple[int, int, int], scale: float
) -> None:
    """A rotation and a shift of both sets change nothing, a unit goes in squared."""
    x, y = pair(*sizes, seed)
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(sizes[2], sizes[2])))[0]
    moved = frechet_influences((x @ turn + 3) * scale, (y @ turn + 3) * scale)
    plain = frechet_influences(x, y)
    size = float(np.abs(plain.x).max())
    assert moved.x / scale / scale == pytest.approx(plain.x, abs=1e-6 * size)


@pytest.mark.parametrize(
    ("n", "dimension", "least"), [(400, 8, 0.999), (400, 40, 0.99), (60, 200, 0.8)]
)
def test_they_predict_what_leaving_a_sample_out_does(n: int, dimension: int, least: float) -> None:
    """To first order: closely with many samples for each dimension, less so with fewer."""
    x, y = pair(n, n, dimension, 3)
    result = frechet_influences(x, y)
    predicted = -(result.x + result.y)[:25] / (n - 1)
    changes = [
        frechet_distance(np.delete(x, row, axis=0), np.delete(y, row, axis=0)) - result.distance
        for row in range(25)
    ]
    assert np.corrcoef(predicted, changes)[0, 1] > least
    assert np.std(changes) == pytest.approx(np.std(predicted), rel=0.2)


def test_wide_features_of_many_samples_have_them_too() -> None:
    """With more samples than dimensions they are those of all products of two samples."""
    x, y = (rows.astype(np.float32) for rows in pair(700, 640, 520))
    result = frechet_influences(x, y)
    assert result.distance == pytest.approx(frechet_distance(x, y), rel=1e-10)
    cross = (x - x.mean(0)).astype(float) @ (y - y.mean(0)).astype(float).T
    u, roots, _ = np.linalg.svd(cross)
    size = np.sqrt((len(x) - 1) * (len(y) - 1))
    centred = np.asarray(x, float) - np.asarray(x, float).mean(0)
    squares = (centred**2).sum(axis=1) * len(x) / (len(x) - 1)
    carried = len(x) * ((u**2)[:, : len(roots)] @ roots) / size
    apart = np.asarray(x, float).mean(0) - np.asarray(y, float).mean(0)
    expected = squares - carried + 2 * centred @ apart
    expected -= expected.mean()
    assert result.x == pytest.approx(expected, abs=1e-5 * float(np.abs(expected).max()))


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


def test_what_has_no_distance_has_no_influences() -> None:
    """One sample, other widths and NaN are refused as by the distance."""
    x, y = pair(5, 5, 3)
    with pytest.raises(TooFewError):
        frechet_influences(x[:1], y)
    with pytest.raises(ValueError, match="dimension"):
        frechet_influences(x, y[:, :2])
    broken: Any = x.copy()
    broken[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        frechet_influences(broken, y)
