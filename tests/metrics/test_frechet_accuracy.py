"""Frechet distance: its digits, against the definition in 60 of them and scipy's matrix root."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from pytest_cepbench.metrics.set_distances import frechet_distance
from tests.metrics.feature_sets import pair

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


@pytest.mark.parametrize(("n_x", "n_y"), [(300, 270), (2500, 1001)])
def test_twelve_digits_are_right_of_many_samples(n_x: int, n_y: int) -> None:
    """Far more samples than dimensions, and more than are widened at once."""
    x, y = pair(n_x, n_y, 6)
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
