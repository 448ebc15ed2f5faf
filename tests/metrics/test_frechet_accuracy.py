"""Frechet distance: its digits, against the definition in 60 of them, scipy, and QR with SVD."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import numpy.typing as npt
import pytest

from pytest_cepbench.metrics.frechet import _quick_trace_of_root, frechet_distance
from tests.metrics.feature_sets import kept, pair

Array = npt.NDArray[np.float64]
Spoil = Callable[[Array], Array]

BOTH_WAYS = pytest.mark.parametrize("root_up_to", [512, 0], ids=["root", "scatter"])


def spectrum(n: int, dimension: int, seed: int, power: float) -> Array:
    """Rectified mixtures of directions whose variances fall as 1 / k^power."""
    mix = np.random.default_rng(99).standard_normal((dimension, dimension)) / np.sqrt(dimension)
    random = np.random.default_rng(seed)
    scale = np.arange(1, dimension + 1) ** (-power / 2)
    mixed: Array = (random.standard_normal((n, dimension)) * scale) @ mix
    return np.maximum(mixed + 0.1 * seed, 0)


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


def by_singular_values(x: Array, y: Array) -> float:
    """The formula by QR and SVD: nothing is squared, so no small direction is lost."""
    root_x, root_y = (np.linalg.qr(rows - rows.mean(axis=0)).R for rows in (x, y))
    overlap = float(np.linalg.svd(root_x @ root_y.T, compute_uv=False).sum())
    variances = sum(float(rows.var(axis=0, ddof=1).sum()) for rows in (x, y))
    apart = float(((x.mean(axis=0) - y.mean(axis=0)) ** 2).sum())
    return apart + variances - 2 * overlap / sqrt((len(x) - 1) * (len(y) - 1))


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


@pytest.mark.parametrize(("n_x", "n_y"), [(2, 2), (4, 4), (6, 6), (7, 7), (30, 30), (3, 20)])
@pytest.mark.parametrize("spoiled", ["none", "dead in both", "dead in one", "doubled"])
def test_twelve_digits_are_right(n_x: int, n_y: int, spoiled: str) -> None:
    """Below, at and above N = D, with dead and dependent features: error at most 1e-12."""
    x, y = pair(n_x, n_y, 6)
    if spoiled == "doubled":
        x, y = doubled(x), doubled(y)
    elif spoiled.startswith("dead"):
        x, y = dead(x), dead(y) if spoiled == "dead in both" else y

    assert frechet_distance(x, y) == pytest.approx(by_definition(x, y), rel=1e-12, abs=0)


@BOTH_WAYS
def test_twelve_digits_are_right_after_folding(root_up_to: int) -> None:
    """Far more samples than dimensions, kept as a root and as a scatter matrix."""
    x, y = pair(300, 270, 6)
    distance = frechet_distance(kept(x, root_up_to), kept(y, root_up_to))

    assert distance == pytest.approx(by_definition(x, y), rel=1e-12, abs=0)


@pytest.mark.parametrize("n", [41, 80, 400])
@BOTH_WAYS
def test_it_is_the_formula_of_the_papers(n: int, root_up_to: int) -> None:
    """With more samples than dimensions scipy's matrix square root gives the same number."""
    from scipy import linalg

    x, y = pair(n, n, 40)
    sx, sy = np.cov(x.T), np.cov(y.T)
    apart = ((x.mean(axis=0) - y.mean(axis=0)) ** 2).sum()
    expected = apart + np.trace(sx + sy - 2 * linalg.sqrtm(sx @ sy).real)

    distance = frechet_distance(kept(x, root_up_to), kept(y, root_up_to))
    assert distance == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("power", [1, 2, 4])
@pytest.mark.parametrize("n", [257, 512, 1280])
def test_wide_spectra_keep_nine_digits_on_every_way(n: int, power: float) -> None:
    """At D = 256: arrays, roots, scatter matrices, and one of each agree with QR and SVD."""
    x, y = (spectrum(n, 256, seed, power) for seed in (1, 2))
    expected = by_singular_values(x, y)
    few = by_singular_values(x[:200], y)

    squares = kept(x, 0), kept(y, 0)
    assert all(part.moments().squared for part in squares)
    assert frechet_distance(x, y) == pytest.approx(expected, rel=1e-12)
    assert frechet_distance(*squares) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(x, squares[1]) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(x[:200], squares[1]) == pytest.approx(few, rel=1e-9)


@pytest.mark.parametrize("spoil", [dead, doubled])
@pytest.mark.parametrize("which", ["both", "left", "right"])
@pytest.mark.parametrize(("dimension", "seeds"), [(6, 60), (256, 1)])
def test_dependent_features_leave_scatter_matrices_usable(
    dimension: int, seeds: int, which: str, spoil: Spoil
) -> None:
    """Where Cholesky fails, or by chance does not and finds noise, nine digits are left."""
    for seed in range(seeds):
        x, y = pair(900, 900, dimension, seed)
        x = x if which == "right" else spoil(x)
        y = y if which == "left" else spoil(y)
        expected = by_singular_values(x, y)

        assert frechet_distance(kept(x, 0), kept(y, 0)) == pytest.approx(expected, rel=1e-9)
        assert frechet_distance(kept(x, 512), kept(y, 0)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_features_of_rising_variance_keep_all_digits(power: float) -> None:
    """The order of features is no matter: the worst one for Cholesky loses nothing."""
    random = np.random.default_rng(0)
    rising = np.arange(256, 0, -1) ** (-power / 2)
    x, y = random.standard_normal((2, 1280, 256)) * rising

    distance = frechet_distance(kept(x, 0), kept(1.1 * y, 0))
    assert distance == pytest.approx(by_singular_values(x, 1.1 * y), rel=1e-12)


def test_the_quick_way_declines_what_it_cannot_promise() -> None:
    """Squares of a wide spectrum may lose over nine digits: None, and the exact way is taken."""
    falling = (np.geomspace(1, last, 64) for last in (1e-7, 1e-3))
    wide, narrow = (np.diag(variances / variances.sum()) for variances in falling)

    quick = _quick_trace_of_root(narrow, narrow)
    assert quick == pytest.approx(1.0, rel=1e-12)
    assert _quick_trace_of_root(wide, wide) is None
