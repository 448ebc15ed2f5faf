"""Distances of two sets of features: Frechet (FID, GC_FID) and kernel (KID), and their parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum, isfinite, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.errors import TooFewError
from pytest_cepbench.metrics.gc import Array, FloatArray

Labels = npt.NDArray[np.integer[Any]]

_LARGEST = 1e140  # sums of squares of larger values leave the range of float64
_REAL = 64 * float(np.finfo(np.float64).eps)  # share of the largest singular value; rounding below
_BLOCK = 1000  # rows widened to float64 at once; subset size of clean-fid and of published KIDs


@dataclass(frozen=True)
class FrechetInfluences:
    """A Frechet distance, and how it answers to the weight of each sample.

    distance: squared Frechet distance of the Gaussians fitted to the sets, 0 or more, in squared
    units of the features; lower is better.
    x: (n_x,) influence of each row of x, whose sum is 0 up to rounding; in the distance's unit.
    y: (n_y,) of y.
    """

    distance: float
    x: Array
    y: Array


def frechet_influences(x: FloatArray, y: FloatArray) -> FrechetInfluences:
    """The Frechet distance of two sets (FID), and the influence of every sample on it.

    x, y: (n, D) features of any float type; n at least 2 each, and they may differ.
    The distance is |mu_x - mu_y|^2 + Tr(Sx + Sy - 2 (Sx Sy)^(1/2)), covariances with ddof=1, in
    float64 (Heusel et al. 2017, Eq. 6; GenCeption, Eq. 4, and MMGenBench take it over), exact also
    where n <= D: with centred features Xc and Yc, Tr (Sx Sy)^(1/2) is the sum of the singular
    values of Xc Yc^T / sqrt((n_x - 1)(n_y - 1)). Released codes (clean-fid, the one of MMGenBench)
    take the square root of the singular matrix Sx Sy instead: there they are off by up to 1e-6 of
    the value, can be negative or fail, and may add 1e-6 to the diagonals.
    With few samples it is biased upwards, by far more than models differ: state n and D beside the
    value, and compare values of equal n only.
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
    Raises TooFewError for n < 2 (no covariance), ValueError for different D and for features that
    are NaN, infinite or beyond 1e140.
    """
    _check(x, y)
    (mean_x, root_x), (mean_y, root_y) = _moments(x), _moments(y)
    u, s, vt = np.linalg.svd(root_x @ root_y.T, full_matrices=False)
    apart = mean_x - mean_y
    freedom_x, freedom_y = len(x) - 1, len(y) - 1
    variances = float(np.vdot(root_x, root_x)) / freedom_x
    variances += float(np.vdot(root_y, root_y)) / freedom_y
    spread = variances - 2 * float(s.sum()) / sqrt(freedom_x * freedom_y)
    real = s > _REAL * s[0]
    half = np.sqrt(s[real])
    ratio = (freedom_x / freedom_y) ** 0.25
    to_x, to_y = (vt[real] @ root_y).T * (ratio / half), (u.T[real] @ root_x).T / (ratio * half)
    return FrechetInfluences(
        float(np.vdot(apart, apart)) + max(0.0, spread),
        _along(x, mean_x, apart, to_x),
        _along(y, mean_y, -apart, to_y),
    )


def _moments(features: FloatArray) -> tuple[Array, Array]:
    """Mean, and (k, D) root with k at most D whose root^T root is the scatter matrix.

    The scatter matrix itself would lose half of the digits of nearly dependent features. The first
    row is taken off before the mean is formed, so that a constant column has no spread at all
    instead of the rounding of its mean.
    """
    first = np.asarray(features[0], dtype=np.float64)
    mean = first + sum(rows.sum(axis=0) for rows in _less(features, first)) / len(features)
    root = np.empty((0, len(first)))
    for rows in _less(features, mean):
        root = np.concatenate([root, rows])
        if len(root) > len(first):
            root = np.linalg.qr(root, mode="r")  # type: ignore[assignment] # typed for any mode
    return mean, root


def _less(features: FloatArray, point: Array) -> Iterator[Array]:
    """The rows less a point, in float64, max(1000, D) at a time."""
    at_once = max(_BLOCK, len(point))
    for low in range(0, len(features), at_once):
        yield features[low : low + at_once] - point


def _along(features: FloatArray, mean: Array, apart: Array, carried: Array) -> Array:
    """Influences of the rows of one set.

    apart: (D,) its mean less the other's.
    carried: (D, k) with |c carried|^2 = c^T A c.
    """
    parts = []
    for rows in _less(features, mean):
        images = rows @ carried
        own = np.einsum("ij,ij->i", rows, rows) - np.einsum("ij,ij->i", images, images)
        parts.append(own * (len(features) / (len(features) - 1)) + 2 * (rows @ apart))
    influences = np.concatenate(parts)
    centred: Array = influences - influences.mean()
    return centred


def gc_fid_at_t(distances: FloatArray) -> float:
    """GenCeption score by Frechet distance.

    distances: (T,) distance between all start images and all images of iteration t, iteration 1
    first.
    Returns sum_t t * fid(t) / sum_t t; lower is better; GC_FID@1 is fid(1).
    Source: GenCeption, Eq. 4, which measures on clean-fid's Inception features; the released code
    does not have it. The number of samples must be stated beside it, see `frechet_influences`.
    Raises ValueError when T is 0, the array is not one-dimensional or a distance is not finite.
    """
    values = np.asarray(distances, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"expected finite distances (T,) with T at least 1, got {values.tolist()}")
    weights = np.arange(1, len(values) + 1, dtype=np.float64)
    return float(values @ weights / weights.sum())


def kernel_distances(
    x: FloatArray,
    y: FloatArray,
    x_parts: Labels,
    y_parts: Labels,
    count: int,
    *,
    block: int = _BLOCK,
) -> tuple[float, list[float]]:
    """Kernel inception distance, and the same without each part of the samples.

    It is the unbiased squared MMD with the kernel (a . b / D + 1)^3.
    x, y: (n, D) features of any float type, in the order of the samples; n at least 2 each.
    x_parts, y_parts: (n,) the part of each row, 0 to count - 1; not read where count is 0.
    block: samples of each set compared at once, at least 2.
    Returns the mean of the estimates of consecutive blocks, in float64, and one for each part, part
    0 first: its samples are missing in their own blocks, which stay as they are but for them. Each
    is unbiased at any n, so it can be negative, and about 0 for two samples of one distribution;
    lower is better.
    Source: Binkowski et al. 2018 (KID). Published values (clean-fid) are means over 100 random
    subsets of 1,000 from an unseeded generator: a different number in each run, which a gate cannot
    use. Here each sample counts in exactly one block: ceil(n / block) of the larger set, fewer only
    where a block of the smaller would have under 2 samples; sizes within a set differ by at most 1.
    The leave-outs are those of a delete-block jackknife (Efron and Stein, 1981).
    Raises TooFewError for n < 2 and where a block would keep fewer than 2 samples of a set,
    ValueError for a block of fewer than 2, different D, parts that do not fit the rows, and
    features that are not finite or so large that the kernel leaves the range of float64.
    """
    _check(x, y)
    if block < 2:
        raise ValueError(f"a block of a kernel distance holds at least 2 samples, got {block}")
    for rows, parts in ((x, x_parts), (y, y_parts)):
        if count and (len(parts) != len(rows) or not 0 <= parts.min() <= parts.max() < count):
            raise ValueError(f"expected a part from 0 to {count - 1} for each of {len(rows)} rows")
    blocks = min(-(-max(len(x), len(y)) // block), min(len(x), len(y)) // 2)
    kept = [
        parts[:, None] != np.arange(count) if count else np.empty((len(rows), 0), dtype=np.bool_)
        for rows, parts in ((x, x_parts), (y, y_parts))
    ]
    estimates = []
    for part in range(blocks):  # sizes differ by at most 1
        of_x, of_y = (slice(n * part // blocks, n * (part + 1) // blocks) for n in (len(x), len(y)))
        estimates.append(_block(x[of_x], y[of_y], kept[0][of_x], kept[1][of_y]))
    whole, *without = (fsum(column) / blocks for column in zip(*estimates, strict=True))
    return whole, without


def _block(
    x: FloatArray, y: FloatArray, x_kept: npt.NDArray[np.bool_], y_kept: npt.NDArray[np.bool_]
) -> list[float]:
    """Unbiased squared MMD of a block, and of its rows that are true in each column (n, count)."""
    wide_x, wide_y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        pairs = ((wide_x, wide_x), (wide_y, wide_y), (wide_x, wide_y))
        bases = (a @ b.T / x.shape[1] + 1 for a, b in pairs)
        of_x, of_y, across = (base * base * base for base in bases)
        np.fill_diagonal(of_x, 0.0)  # a sample with itself is left out
        np.fill_diagonal(of_y, 0.0)
        if not all(isfinite(float(kernel.sum())) for kernel in (of_x, of_y, across)):
            raise ValueError(
                "features are too large: their kernel (a . b / D + 1)^3 leaves the range of float64"
            )
    within = [float(own.sum()) / (len(own) * (len(own) - 1)) for own in (of_x, of_y)]
    whole = sum(within) - 2 * float(across.mean())
    n_x, n_y = x_kept.sum(axis=0), y_kept.sum(axis=0)
    few = np.flatnonzero(np.minimum(n_x, n_y) < 2)
    if len(few):
        raise TooFewError(
            f"without part {few[0]} a block of the kernel distance keeps {n_x[few[0]]} and "
            f"{n_y[few[0]]} samples"
        )
    within_x = np.einsum("nc,nc->c", of_x @ x_kept, x_kept) / (n_x * (n_x - 1))
    within_y = np.einsum("nc,nc->c", of_y @ y_kept, y_kept) / (n_y * (n_y - 1))
    between = np.einsum("nc,nc->c", across @ y_kept, x_kept) / (n_x * n_y)
    return [whole, *(within_x + within_y - 2 * between).tolist()]


def _check(x: FloatArray, y: FloatArray) -> None:
    """Raise for what are no two sets of features of one encoder."""
    shapes = np.shape(x), np.shape(y)
    if any(len(shape) != 2 or not shape[1] for shape in shapes):
        raise ValueError(f"expected features (n, D) twice, got {shapes[0]} and {shapes[1]}")
    if shapes[0][1] != shapes[1][1]:
        raise ValueError(
            f"features of dimension {shapes[0][1]} and of dimension {shapes[1][1]} have no "
            "distance; take both sets from the same encoder"
        )
    if min(shapes[0][0], shapes[1][0]) < 2:
        raise TooFewError(
            "a distance of sets needs at least 2 samples in each, "
            f"got sets of {shapes[0][0]} and {shapes[1][0]}"
        )
    # Written so that NaN, of which every comparison is false, is refused too.
    if not all(float(rows.min()) >= -_LARGEST and float(rows.max()) <= _LARGEST for rows in (x, y)):
        raise ValueError(
            f"features hold NaN, infinity or values beyond {_LARGEST:g}; "
            "leave such samples out and count them as failed"
        )
