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
_NONE = np.empty(0)
_NO_MAP = np.empty((0, 0))


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
    roots, to_x, to_y = _coupling(of_x, of_y)
    apart = of_x.mean - of_y.mean
    spread = total_variance(of_x) + total_variance(of_y) - 2 * float(roots.sum())
    distance = float(np.vdot(apart, apart)) + max(0.0, spread)
    return FrechetInfluences(
        distance,
        _along(np.asarray(x), of_x, apart, to_x),
        _along(np.asarray(y), of_y, -apart, to_y),
    )


@dataclass(frozen=True)
class _Image:
    """What gives c^T A c of each centred row c of a set.

    carried: (D, k) with |c carried|^2 = c^T A c; empty where the squares are there.
    squares: (n,) c^T A c itself, or none.
    """

    carried: Array
    squares: Array


def _along(rows: FloatArray, moments: Moments, apart: Array, image: _Image) -> Array:
    """Influences of one set's rows. apart: (D,) its mean less the other's."""
    parts = []
    for low in range(0, len(rows), _AT_ONCE):
        centred = np.asarray(rows[low : low + _AT_ONCE], dtype=np.float64) - moments.mean
        own = np.einsum("ij,ij->i", centred, centred)
        if len(image.squares):
            own -= image.squares[low : low + _AT_ONCE]
        else:
            carried = centred @ image.carried
            own -= np.einsum("ij,ij->i", carried, carried)
        own *= moments.n / (moments.n - 1)
        parts.append(own + 2 * (centred @ apart))
    influences = np.concatenate(parts)
    centred_influences: Array = influences - influences.mean()
    return centred_influences


def _coupling(x: Moments, y: Moments) -> tuple[Array, _Image, _Image]:
    """Singular values whose sum is Tr (Sx Sy)^(1/2), and the images of both sets."""
    (left, left_exponent), (right, right_exponent) = scaled(x), scaled(y)
    ratio = sqrt((x.n - 1) / (y.n - 1))
    size = sqrt((x.n - 1) * (y.n - 1))
    # A grows as the features of y do and shrinks as those of x do.
    half = ldexp(ratio, right_exponent - left_exponent)
    unit = left_exponent + right_exponent
    quick = _of_scatters(left, right) if x.squared and y.squared else None
    if quick is not None:
        roots, carries_x, carries_y = quick
        to_x = _Image(carries_x * sqrt(half), _NONE)
        to_y = _Image(carries_y / sqrt(half), _NONE)
        return np.ldexp(roots / size, unit), to_x, to_y
    of_x, of_y = _root(x, left), _root(y, right)
    # Products of as many samples on both sides are nearly singular: there the quick way fails.
    u, roots, vt = _decomposed(of_x @ of_y.T, quick=not (_holds_rows(x) and _holds_rows(y)))
    if _holds_rows(x):
        to_x = _Image(_NO_MAP, np.ldexp(ratio * (_uncontrasted(u) ** 2 @ roots), unit))
    else:
        to_x = _Image((vt @ of_y).T * np.sqrt(half / roots), _NONE)
    if _holds_rows(y):
        to_y = _Image(_NO_MAP, np.ldexp(_uncontrasted(vt.T) ** 2 @ roots / ratio, unit))
    else:
        to_y = _Image((u.T @ of_x).T / np.sqrt(half * roots), _NONE)
    return np.ldexp(roots / size, unit), to_x, to_y


def _holds_rows(x: Moments) -> bool:
    """True where the spread of a set is its centred rows, one for each sample."""
    return not x.squared and len(x.spread) == x.n


def _root(x: Moments, spread: Array) -> Array:
    """(k, D) with root^T root the scatter matrix, of full rank where the samples are."""
    if x.squared:
        return factor_of(spread).T
    return _contrasts(spread) if _holds_rows(x) else spread


def _contrasts(rows: Array) -> Array:
    """(n - 1, D) Helmert's contrasts of centred rows, which lack the one dimension of their sum."""
    k = np.arange(1, len(rows), dtype=np.float64)[:, None]
    contrasts: Array = (np.cumsum(rows[:-1], axis=0) - k * rows[1:]) / np.sqrt(k * (k + 1))
    return contrasts


def _uncontrasted(u: Array) -> Array:
    """(n, k) vectors over the rows, of (n - 1, k) vectors over their contrasts."""
    k = np.arange(1, len(u) + 1, dtype=np.float64)[:, None]
    share = u / np.sqrt(k * (k + 1))
    rows = np.zeros((len(u) + 1, u.shape[1]))
    rows[:-1] = np.cumsum(share[::-1], axis=0)[::-1]
    rows[1:] -= k * share
    return rows


def _decomposed(products: Array, *, quick: bool) -> tuple[Array, Array, Array]:
    """Singular vectors and values u (p, k), s (k,), vt (k, q) of a matrix; those above rounding.

    quick: whether to try the eigenvectors of its smaller square, which are quicker; they are taken
    where no digits are lost.
    """
    if products.shape[0] > products.shape[1]:
        v, roots, ut = _decomposed(products.T, quick=quick)
        return ut.T, roots, v.T
    if quick:
        values, vectors = np.linalg.eigh(products @ products.T)
        if _keeps_digits(values):
            roots = np.sqrt(values)
            return vectors, roots, (vectors.T @ products) / roots[:, None]
    u, roots, vt = np.linalg.svd(products, full_matrices=False)
    real = roots > _REAL * _EPS * roots[0]
    return u[:, real], roots[real], vt[real]


def _keeps_digits(values: Array) -> bool:
    """Whether the roots of rising eigenvalues are known within the tolerance; see `frechet`."""
    unsure = 8 * _EPS * values[-1]
    return bool(
        values[0] > unsure and float(np.linalg.norm(unsure / np.sqrt(values))) <= _TOLERANCE
    )


def _of_scatters(left: Array, right: Array) -> tuple[Array, Array, Array] | None:
    """Singular values and both maps of two scatter matrices; None where digits would be lost."""
    order = np.argsort(-left.diagonal(), kind="stable")
    back = np.argsort(order)
    lower = cholesky(left[np.ix_(order, order)])
    if lower is None:
        return None
    values, vectors = np.linalg.eigh(congruent(lower, right[np.ix_(order, order)]))
    if not _keeps_digits(values):
        return None
    from scipy.linalg import solve_triangular

    roots = np.sqrt(values)
    carries_x = solve_triangular(lower, vectors * np.sqrt(roots), lower=True, trans="T")
    carries_y = lower @ (vectors / np.sqrt(roots))
    return roots, carries_x[back], carries_y[back]
