"""What each sample adds to a Frechet distance: its derivative along the sample's weight."""

from __future__ import annotations

from dataclasses import dataclass
from math import ldexp, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.frechet import (
    check_widths,
    cholesky,
    congruent,
    factor_of,
    moments_of,
    scaled,
    total_variance,
)
from pytest_cepbench.metrics.moments import Moments

Array = npt.NDArray[np.float64]
FloatArray = npt.NDArray[np.floating[Any]]

_AT_ONCE = 1000  # rows widened to float64 at once
_EPS = float(np.finfo(np.float64).eps)
_TOLERANCE = 1e-9  # of the variances, as for the distance itself
_REAL = 64  # roundings of the largest singular value, below which one is none


@dataclass(frozen=True)
class FrechetInfluences:
    """A Frechet distance, and how it answers to the weight of each sample.

    distance: as `frechet_distance` gives it, up to rounding.
    x: (n_x,) influence of each row of x, whose sum is 0 up to rounding; in the distance's unit.
    y: (n_y,) of y.
    """

    distance: float
    x: Array
    y: Array


def frechet_influences(x: FloatArray, y: FloatArray) -> FrechetInfluences:
    """The Frechet distance of two sets, and the influence of every sample on it.

    x, y: (n, D) rows of any float type, n at least 2; n may differ.
    The influence of a row of x is the derivative of the distance where x's weights go from 1 / n
    each towards that row alone, (1 - e) / n + e, at e = 0, the covariance being multiplied by
    n / (n - 1) as always:

        2 (mu_x - mu_y) . c + n / (n - 1) c^T (I - A) c - Tr (I - A) Sx,    c = row - mu_x,

    where A is the symmetric map that carries the one Gaussian onto the other, A Sx A = Sy: the
    derivative of Tr (Sx Sy)^(1/2) along Sx is A / 2. But for n / (n - 1) it is the Kantorovich
    potential of that map, less its mean. For y the roles change, and the map is A's inverse.
    The influences of each set sum to 0; to first order, leaving row i out changes the distance by
    minus its influence / (n - 1).
    With a decomposition U diag(s) V^T of Rx Ry^T, R^T R the scatter matrices, c^T A c is
    |diag(s)^(-1/2) V^T Ry c|^2: one decomposition serves both sets, and no matrix that is
    nearly singular is inverted. Where n <= D, A is that map between the spans of the samples.
    Source: Hampel, The influence curve, 1974; the derivative: Takatsu, Wasserstein geometry of
    Gaussian measures, 2011.
    Raises as `frechet_distance` does.
    """
    of_x, of_y = moments_of(x), moments_of(y)
    check_widths(of_x, of_y)
    roots, to_x, to_y = _decomposed(of_x, of_y)
    apart = of_x.mean - of_y.mean
    spread = total_variance(of_x) + total_variance(of_y) - 2 * float(roots.sum())
    distance = float(np.vdot(apart, apart)) + max(0.0, spread)
    return FrechetInfluences(
        distance,
        _along(np.asarray(x), of_x, apart, to_x),
        _along(np.asarray(y), of_y, -apart, to_y),
    )


def _along(rows: FloatArray, moments: Moments, apart: Array, carried: Array) -> Array:
    """Influences of one set's rows.

    apart: (D,) its mean less the other's.
    carried: (D, k) with |c carried|^2 = c^T A c of a centred row c.
    """
    parts = []
    for low in range(0, len(rows), _AT_ONCE):
        centred = np.asarray(rows[low : low + _AT_ONCE], dtype=np.float64) - moments.mean
        own = np.einsum("ij,ij->i", centred, centred)
        image = centred @ carried
        own -= np.einsum("ij,ij->i", image, image)
        own *= moments.n / (moments.n - 1)
        parts.append(own + 2 * (centred @ apart))
    influences = np.concatenate(parts)
    centred_influences: Array = influences - influences.mean()
    return centred_influences


def _decomposed(x: Moments, y: Moments) -> tuple[Array, Array, Array]:
    """(k,) singular values whose sum is Tr (Sx Sy)^(1/2), and for each set what carries its rows.

    The latter are (D, k), as `_along` takes them.
    """
    (left, left_exponent), (right, right_exponent) = scaled(x), scaled(y)
    if x.squared and y.squared:
        quick = _by_eigenvectors(left, right)
        if quick is not None:
            roots, carries_x, carries_y = quick
            return _in_units(x, y, roots, carries_x, carries_y, left_exponent, right_exponent)
    of_x = factor_of(left).T if x.squared else left
    of_y = factor_of(right).T if y.squared else right
    u, roots, vt = np.linalg.svd(of_x @ of_y.T, full_matrices=False)
    real = roots > _REAL * _EPS * (roots[0] if len(roots) else 0.0)
    u, roots, vt = u[:, real], roots[real], vt[real]
    carries_x = (vt @ of_y).T / np.sqrt(roots)
    carries_y = (u.T @ of_x).T / np.sqrt(roots)
    return _in_units(x, y, roots, carries_x, carries_y, left_exponent, right_exponent)


def _by_eigenvectors(left: Array, right: Array) -> tuple[Array, Array, Array] | None:
    """The same of two scatter matrices of trace at most 1; None where digits would be lost."""
    order = np.argsort(-left.diagonal(), kind="stable")
    back = np.argsort(order)
    lower = cholesky(left[np.ix_(order, order)])
    if lower is None:
        return None
    values, vectors = np.linalg.eigh(congruent(lower, right[np.ix_(order, order)]))
    unsure = 8 * _EPS * values[-1]
    if values[0] <= unsure or float(np.linalg.norm(unsure / np.sqrt(values))) > _TOLERANCE:
        return None
    from scipy.linalg import solve_triangular

    roots = np.sqrt(values)
    carries_x = solve_triangular(lower, vectors * np.sqrt(roots), lower=True, trans="T")
    carries_y = lower @ (vectors / np.sqrt(roots))
    return roots, carries_x[back], carries_y[back]


def _in_units(
    x: Moments,
    y: Moments,
    roots: Array,
    carries_x: Array,
    carries_y: Array,
    left_exponent: int,
    right_exponent: int,
) -> tuple[Array, Array, Array]:
    """In the features' own unit, and of covariances rather than scatter matrices."""
    ratio = sqrt((x.n - 1) / (y.n - 1))
    size = sqrt((x.n - 1) * (y.n - 1))
    # A grows as the features of y do and shrinks as those of x do.
    half = ldexp(1.0, right_exponent - left_exponent)
    return (
        np.ldexp(roots / size, left_exponent + right_exponent),
        carries_x * sqrt(ratio * half),
        carries_y / sqrt(ratio * half),
    )
