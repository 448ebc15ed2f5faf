"""Frechet distances: values, accuracy, and the influence of each sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.errors import TooFewError
from pytest_cepbench.metrics.gc import gc_at_t
from pytest_cepbench.metrics.set_distances import frechet_influences, gc_fid_at_t
from tests.metrics.feature_sets import frechet_distance, pair

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=40)


@FEW
@given(seed=SEEDS, n=st.sampled_from([2, 5, 8, 9, 300]))
def test_a_set_has_no_distance_to_itself_in_any_order(seed: int, n: int) -> None:
    """Zero within the rounding of the variances, never below; the order of samples is no matter."""
    x, _ = pair(n, n, 8, seed)
    shuffled = np.random.default_rng(seed).permutation(x)
    size = float(x.var(axis=0, ddof=1).sum())

    for other in (x, shuffled):
        scaled = frechet_distance(x, other)
        assert 0 <= scaled <= 1e-12 * size


def test_sets_of_unlike_scale_have_a_distance() -> None:
    """Beside a set 2^300 times as large the smaller one is a point."""
    x, y = pair(300, 300, 8)
    scaled = frechet_distance(x * 2.0**300, y)
    alone = frechet_distance(x, np.zeros_like(x))

    assert scaled / 2.0**600 == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("n", [3, 300])
def test_sets_without_any_spread_are_two_points(n: int) -> None:
    """A generator that always draws the same image still has a distance."""
    x, y = np.full((n, 4), 1.1), np.full((n, 4), 3.1)
    assert frechet_distance(x, y) == pytest.approx(16)
    assert frechet_distance(x, x) == 0


@pytest.mark.parametrize("n", [0, 1])
def test_less_than_two_samples_have_no_covariance(n: int) -> None:
    """Not NaN: the number of samples that came and that are needed is said."""
    x, y = pair(5, 5, 3)
    for sides in ((x[:n], y), (x, y[:n])):
        with pytest.raises(ValueError, match=rf"at least 2 samples in each, got sets of .*\b{n}\b"):
            frechet_distance(*sides)


def test_features_of_two_encoders_have_no_distance() -> None:
    """Other dimensions, and arrays that are no features, are refused by their shapes."""
    with pytest.raises(ValueError, match="dimension 3 and of dimension 4 have no distance"):
        frechet_distance(np.ones((5, 3)), np.ones((5, 4)))
    with pytest.raises(ValueError, match=r"expected features \(n, D\).*twice, got \(5,\)"):
        frechet_distance(np.ones(5), np.ones((5, 1)))


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


Array = npt.NDArray[np.float64]


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


def dead(rows: Array) -> Array:
    """Two features that never move."""
    rows = rows.copy()
    rows[:, 1] = 0.0
    rows[:, 3] = 0.1
    return rows


def doubled(rows: Array) -> Array:
    """A feature that is given twice, and one that is the sum of two others."""
    rows = rows.copy()
    rows[:, 4] = rows[:, 0]
    rows[:, 5] = rows[:, 1] + rows[:, 2]
    return rows


def nearly_doubled(rows: Array) -> Array:
    """Features that differ from the first one in the fourth to eighth digit."""
    return rows[:, :1] + rows * np.geomspace(1e-4, 1e-8, rows.shape[1])


@pytest.mark.parametrize(("n_x", "n_y"), [(2, 2), (4, 4), (6, 6), (7, 7), (30, 30), (3, 20)])
@pytest.mark.parametrize("spoiled", ["none", "dead in both", "dead in one", "doubled", "wide"])
def test_twelve_digits_are_right(n_x: int, n_y: int, spoiled: str) -> None:
    """Below, at and above N = D, with dead, dependent and nearly dependent features."""
    x, y = pair(n_x, n_y, 6)
    if spoiled == "doubled":
        x, y = doubled(x), doubled(y)
    elif spoiled == "wide":
        x, y = nearly_doubled(x), nearly_doubled(y)
    elif spoiled.startswith("dead"):
        x, y = dead(x), dead(y) if spoiled == "dead in both" else y

    assert frechet_distance(x, y) == pytest.approx(by_definition(x, y), rel=1e-12, abs=0)


@pytest.mark.parametrize("n", [41, 80, 400])
def test_it_is_the_formula_of_the_papers(n: int) -> None:
    """With more samples than dimensions scipy's matrix square root gives the same number."""
    from scipy import linalg

    x, y = pair(n, n, 40)
    sx, sy = np.cov(x.T), np.cov(y.T)
    apart = ((x.mean(axis=0) - y.mean(axis=0)) ** 2).sum()
    expected = apart + np.trace(sx + sy - 2 * linalg.sqrtm(sx @ sy).real)

    assert frechet_distance(x, y) == pytest.approx(expected, rel=1e-9)


SLOW = settings(max_examples=25, deadline=None)
SIZES = st.sampled_from(
    [(8, 8, 20), (12, 30, 20), (40, 40, 6), (60, 25, 12), (21, 21, 20), (2100, 30, 6)]
)
"""n of x, n of y, D: fewer samples than dimensions, as many, more, and different numbers."""


def weighted_distance(
    x: Array,
    y: Array,
    w: Array,
    v: Array,
) -> float:
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


@SLOW
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


@SLOW
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
