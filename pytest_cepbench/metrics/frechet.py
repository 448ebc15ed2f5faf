"""Frechet distance of two sets of features, whole or less a block, and GC_FID over a chain."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from math import frexp, ldexp, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.errors import TooFewError
from pytest_cepbench.metrics.moments import FeatureSet, Moments

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.floating[Any]]

_EPS = float(np.finfo(np.float64).eps)
_STRIP = 256  # columns of a triangular matrix multiplied at once, without the zeros beyond them
# Error that the quick way may make by its estimate, as a share of the variances. Where it was
# compared with the other ways the error was at most a hundredth of the estimate, mostly far less.
_TOLERANCE = 1e-9


def frechet_distance(x: FeatureSet | FloatArray, y: FeatureSet | FloatArray) -> float:
    """Squared Frechet distance of the Gaussians fitted to two sets of features (FID).

    x, y: (n, D) arrays of any float type, or the `FeatureSet`s of the same encoder; n at least 2
    each, and they may differ.
    Returns |mu_x - mu_y|^2 + Tr(Sx + Sy - 2 (Sx Sy)^(1/2)), covariances with ddof=1, in float64:
    0 or more, in squared units of the features, the same bits for (y, x); lower is better.
    Source: Heusel et al. 2017, Eq. 6; GenCeption, Eq. 4, and MMGenBench take it over.

    It is exact also where n <= D: with centred features Xc and Yc, Tr (Sx Sy)^(1/2) is the sum of
    the singular values of Xc Yc^T / sqrt((n_x - 1)(n_y - 1)). Released codes (clean-fid, the one of
    MMGenBench) take the square root of the singular matrix Sx Sy instead: there they are off by up
    to 1e-6 of the value, can be negative or fail, and may add 1e-6 to the diagonals.

    With few samples the distance is biased upwards, by far more than models differ: two samples of
    one law in D = 2048, variances falling as 1 / k, are nearly five times as far apart at n = 20 as
    at n = 1187. State n and D beside the value, and compare values of equal n only.
    Raises TooFewError for n < 2 (no covariance), ValueError for different D and for features that
    `FeatureSet` refuses.
    """
    first, second = in_order(moments_of(x), moments_of(y))
    apart = first.mean - second.mean
    variances = total_variance(first) + total_variance(second)
    spread = variances - 2 * _trace_of_root(first, second)
    return float(np.vdot(apart, apart)) + max(0.0, spread)


def frechet_distances_without(
    x: FloatArray, y: FloatArray, x_blocks: Labels, y_blocks: Labels, count: int
) -> list[float]:
    """`frechet_distance` of the rest of two sets, one block of samples taken out of both.

    x, y: (n, D) rows of any float type; n may differ.
    x_blocks, y_blocks: (n,) the block of each row, 0 to count - 1.
    Returns one distance for each block, block 0 first; up to rounding those that `frechet_distance`
    gives of the remaining rows.

    Where no set has more rows than D, all products of a row of x with a row of y are formed once:
    what is left of them, centred again, has the singular values. Wider sets are gathered by halves:
    what two blocks both lack is gathered for both at once, so that a row is added log2(count)
    times, not count - 1 times. Memory: up to log2(count) + 1 gathered sets for each of x and y.
    Source: the leave-outs of a delete-block jackknife (Efron and Stein, 1981); none of the papers
    gives its distances an error.
    Raises TooFewError where fewer than 2 rows of a set are left, and ValueError as
    `frechet_distance` does, and for labels that do not fit.
    """
    for rows, blocks in ((x, x_blocks), (y, y_blocks)):
        _check_blocks(np.shape(rows), blocks, count)
    if len(x) <= x.shape[1] and len(y) <= y.shape[1]:
        return _from_products(moments_of(x), moments_of(y), x_blocks, y_blocks, count)
    rests = (_rests(rows, blocks, count) for rows, blocks in ((x, x_blocks), (y, y_blocks)))
    return [frechet_distance(*pair) for pair in zip(*rests, strict=True)]


def gc_fid_at_t(distances: FloatArray) -> float:
    """GenCeption score by Frechet distance.

    distances: (T,) distance between all start images and all images of iteration t, iteration 1
    first.
    Returns sum_t t * fid(t) / sum_t t; lower is better; GC_FID@1 is fid(1).
    Source: GenCeption, Eq. 4, which measures on clean-fid's Inception features; the released code
    does not have it. The number of samples must be stated beside it, see `frechet_distance`.
    Raises ValueError when T is 0, the array is not one-dimensional or a distance is not finite.
    """
    values = np.asarray(distances, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"expected finite distances (T,) with T at least 1, got {values.tolist()}")
    weights = np.arange(1, len(values) + 1, dtype=np.float64)
    return float(values @ weights / weights.sum())


def _check_blocks(shape: tuple[int, ...], blocks: Labels, count: int) -> None:
    """Raise for labels that do not fit the rows, or a block that holds nearly all of them."""
    if len(shape) != 2 or np.shape(blocks) != shape[:1]:
        raise ValueError(
            f"expected features (n, D) and a block for each row, got {shape} and {blocks.shape}"
        )
    if count < 1 or (len(blocks) and not 0 <= blocks.min() <= blocks.max() < count):
        raise ValueError(
            f"expected blocks from 0 to count - 1 = {count - 1}, got {np.unique(blocks).tolist()}"
        )
    fewest = len(blocks) - int(np.bincount(blocks, minlength=count).max())
    if fewest < 2:
        raise TooFewError(
            f"a set of {len(blocks)} has {fewest} samples left without its largest block"
        )


def _from_products(
    x: Moments, y: Moments, x_blocks: Labels, y_blocks: Labels, count: int
) -> list[float]:
    """The distances without each block of two sets whose spread is their centred rows."""
    check_widths(x, y)
    (left, left_exponent), (right, right_exponent) = scaled(x), scaled(y)
    products = left @ right.T
    distances = []
    for block in range(count):
        x_kept, y_kept = x_blocks != block, y_blocks != block
        cross = products[np.ix_(x_kept, y_kept)]
        cross -= cross.mean(axis=0)
        cross -= cross.mean(axis=1, keepdims=True)
        root = nuclear(cross) / sqrt((x_kept.sum() - 1) * (y_kept.sum() - 1))
        x_moved, x_variance = _of_rows(left, x_kept)
        y_moved, y_variance = _of_rows(right, y_kept)
        apart = x.mean - y.mean + np.ldexp(x_moved, left_exponent)
        apart -= np.ldexp(y_moved, right_exponent)
        spread = ldexp(x_variance, 2 * left_exponent) + ldexp(y_variance, 2 * right_exponent)
        spread -= 2 * ldexp(root, left_exponent + right_exponent)
        distances.append(float(np.vdot(apart, apart)) + max(0.0, spread))
    return distances


def _of_rows(rows: Array, kept: npt.NDArray[np.bool_]) -> tuple[Array, float]:
    """Mean and total variance of some of the rows, which are centred on the mean of all."""
    n = int(kept.sum())
    mean = kept @ rows / n
    squares = float(kept @ np.einsum("ij,ij->i", rows, rows)) - n * float(np.vdot(mean, mean))
    return mean, max(0.0, squares) / (n - 1)


def _rests(rows: FloatArray, blocks: Labels, count: int) -> Iterator[FeatureSet]:
    """The set without each block, in order."""

    def without(low: int, high: int, others: FeatureSet) -> Iterator[FeatureSet]:
        """Without each of low..high - 1, given the set without any of them."""
        if high - low == 1:
            yield others
            return
        middle = (low + high) // 2
        for own, more in (((low, middle), (middle, high)), ((middle, high), (low, middle))):
            wider = deepcopy(others)
            wider.add(rows[(blocks >= more[0]) & (blocks < more[1])])
            yield from without(*own, wider)

    return without(0, count, FeatureSet(rows.shape[1]))


def moments_of(features: FeatureSet | FloatArray) -> Moments:
    """Moments of at least 2 samples, gathered where they were given as rows."""
    if not isinstance(features, FeatureSet):
        rows = np.asarray(features)
        if rows.ndim != 2 or not rows.shape[1]:
            raise ValueError(f"expected features (n, D) with D at least 1, got {rows.shape}")
        features = FeatureSet(rows.shape[1])
        features.add(rows)
    if features.n < 2:
        raise TooFewError(
            f"a set of {features.n} has no covariance; a Frechet distance needs at least 2 samples"
        )
    return features.moments()


def check_widths(x: Moments, y: Moments) -> None:
    """Raise ValueError for sets of features of different dimensions."""
    if x.mean.shape != y.mean.shape:
        raise ValueError(
            f"features of dimension {len(x.mean)} and of dimension {len(y.mean)} have no distance; "
            "take both sets from the same encoder"
        )


def in_order(x: Moments, y: Moments) -> tuple[Moments, Moments]:
    """The pair in an order that does not depend on which came first; roots before squares."""
    check_widths(x, y)
    left: tuple[object, ...] = (x.squared, x.n, x.mean.tobytes())
    right: tuple[object, ...] = (y.squared, y.n, y.mean.tobytes())
    if left == right:
        left, right = (*left, x.spread.tobytes()), (*right, y.spread.tobytes())
    return (x, y) if left <= right else (y, x)


def total_variance(x: Moments) -> float:
    """Trace of the covariance."""
    return x.total_scatter / (x.n - 1)


def _trace_of_root(x: Moments, y: Moments) -> float:
    """Tr (Sx Sy)^(1/2), the pair in order."""
    left, left_exponent = scaled(x)
    right, right_exponent = scaled(y)
    if not x.squared and not y.squared:
        total = nuclear(left @ right.T)
    elif not x.squared:
        total = nuclear(left @ factor_of(right))
    else:
        quick = _quick_trace_of_root(left, right)
        total = nuclear(factor_of(left).T @ factor_of(right)) if quick is None else quick
    return ldexp(total / sqrt((x.n - 1) * (y.n - 1)), left_exponent + right_exponent)


def scaled(x: Moments) -> tuple[Array, int]:
    """The spread in units of a power of two near its size, whose products cannot overflow."""
    exponent = frexp(sqrt(x.total_scatter))[1]
    return np.ldexp(x.spread, -2 * exponent if x.squared else -exponent), exponent


def nuclear(matrix: Array) -> float:
    """Sum of singular values."""
    return float(np.linalg.svd(matrix, compute_uv=False).sum())


def _quick_trace_of_root(left: Array, right: Array) -> float | None:
    """Trace of (left right)^(1/2) for two scatter matrices of trace at most 1, or None.

    With left = L L^T these are the roots of the eigenvalues of L^T right L. Squaring costs digits
    of the small ones: None where more than the tolerance may be lost.
    """
    # From the largest variance to the smallest, the order in which Cholesky keeps most digits.
    order = np.argsort(-left.diagonal(), kind="stable")
    lower = cholesky(left[np.ix_(order, order)])
    if lower is None:
        return None
    right = right[np.ix_(order, order)]
    values = np.linalg.eigvalsh(congruent(lower, right))
    # An eigenvalue is known up to a few roundings of the largest, and so is its root; the errors
    # of different eigenvalues have no common sign.
    unsure = 8 * _EPS * values[-1]
    if values[0] <= unsure or float(np.linalg.norm(unsure / np.sqrt(values))) > _TOLERANCE:
        return None
    return float(np.sqrt(values).sum())


def congruent(lower: Array, symmetric: Array) -> Array:
    """Lower triangle of lower^T symmetric lower, without multiplying by the zeros of `lower`."""
    size = len(lower)
    strips = [slice(low, min(low + _STRIP, size)) for low in range(0, size, _STRIP)]
    half = np.empty_like(symmetric)
    for strip in strips:
        half[:, strip] = symmetric[:, strip.start :] @ lower[strip.start :, strip]
    whole = np.zeros_like(symmetric)
    for strip in strips:
        below = lower[strip.start :, strip].T
        whole[strip, : strip.stop] = below @ half[strip.start :, : strip.stop]
    return whole


def factor_of(scatter: Array) -> Array:
    """(D, k) with factor factor^T = scatter; directions that are only rounding are left out."""
    lower = cholesky(scatter)
    if lower is not None:
        return lower
    values, vectors = np.linalg.eigh(scatter)
    real = values > len(values) * _EPS * values[-1]
    factor: Array = vectors[:, real] * np.sqrt(values[real])
    return factor


def cholesky(scatter: Array) -> Array | None:
    """Lower Cholesky factor, or None for features that are dependent within rounding."""
    try:
        lower = np.asarray(np.linalg.cholesky(scatter), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    smallest = float(lower.diagonal().min()) ** 2
    return lower if smallest > len(scatter) * _EPS * float(scatter.diagonal().max()) else None
