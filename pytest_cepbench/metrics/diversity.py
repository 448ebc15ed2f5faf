"""How different the items of a set are from each other: Vendi score and mean pairwise distance.

Nothing is compared with a start. So a set can keep its diversity and have lost every meaning, and
noise raises it: read diversity beside retrieval or a similarity to the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.errors import TooFewError

FloatArray = npt.NDArray[np.floating[Any]]
Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.integer[Any]]

_ROWS = 512  # rows widened to float64 at once
_NONE = np.empty(0, dtype=np.intp)


def vendi_score(vectors: FloatArray) -> float:
    """Effective number of different items in a set: 1 for equal ones, n for n orthogonal ones.

    vectors: (n, d), of any length but 0, any float type; n at least 2.
    Returns exp(-sum_i l_i log l_i) of the eigenvalues l of K / n, K_ij = cos(x_i, x_j), in [1, n].
    It depends on n, and on how wide the cone is that an encoder's vectors lie in: compare sets of
    one size by one encoder. No value is given by chance.
    Source: Friedman and Dieng, The Vendi Score, TMLR 2023, Definition 3.1; of second moments, as in
    its section 3.1 for embeddings.
    Raises ValueError for another shape, or a vector that is zero or not finite; TooFewError for
    fewer than two vectors.
    """
    return vendi_scores(vectors, _NONE, 0)[0]


def vendi_scores(vectors: FloatArray, blocks: Labels, count: int) -> tuple[float, list[float]]:
    """`vendi_score` of a set, and of the set without each block, block 0 first.

    blocks: (n,) the block of each vector, 0 to count - 1; not read where count is 0.
    K / n and the (d, d) matrix of second moments sum_i u_i u_i' / n have the same eigenvalues other
    than 0, so the smaller of the two is made: no array is larger than the vectors, min(n, d)^2, and
    for fewer vectors than dimensions (n, n).
    Raises as `vendi_score` does, and TooFewError where fewer than two vectors are left.
    """
    _check(vectors)
    wide = len(vectors) < len(vectors[0])
    whole = _kernel(vectors) if wide else _moments(vectors)
    without = []
    for kept in _rests(blocks, count):
        rest = whole[np.ix_(kept, kept)] if wide else whole - _moments(vectors[~kept])
        without.append(_effective_number(rest, int(kept.sum())))
    return _effective_number(whole, len(vectors)), without


def mean_pairwise_distance(vectors: FloatArray) -> float:
    """Mean of 1 - cos(x_i, x_j) over all pairs of different items.

    vectors: as of `vendi_score`, which says what is raised.
    Returns a number in [0, 2], at most n / (n - 1); 0 for equal directions. Exact over all pairs in
    O(n d): the sum of all cosines is the squared length of the sum of the unit vectors.
    """
    return mean_pairwise_distances(vectors, _NONE, 0)[0]


def mean_pairwise_distances(
    vectors: FloatArray, blocks: Labels, count: int
) -> tuple[float, list[float]]:
    """`mean_pairwise_distance` of a set, and of the set without each block; see `vendi_scores`."""
    _check(vectors)
    total = _sum(vectors)
    without = [
        _mean_distance(total - _sum(vectors[~kept]), int(kept.sum()))
        for kept in _rests(blocks, count)
    ]
    return _mean_distance(total, len(vectors)), without


def _check(vectors: FloatArray) -> None:
    shape = np.shape(vectors)
    if len(shape) != 2:
        raise ValueError(f"expected (n, d) vectors, got {shape}")
    if shape[0] < 2:
        raise TooFewError(f"the diversity of a set needs at least 2 vectors, got {shape[0]}")
    largest = np.abs(vectors).max(axis=1)
    if not np.isfinite(largest).all() or not largest.all():
        raise ValueError("a vector is zero or not finite")


def _rests(blocks: Labels, count: int) -> Iterator[npt.NDArray[np.bool_]]:
    """Which vectors are not in each block."""
    for block in range(count):
        kept = blocks != block
        if kept.sum() < 2:
            raise TooFewError(
                f"without a block {kept.sum()} of {len(kept)} vectors are left, "
                "at least 2 are needed"
            )
        yield kept


def unit_rows(vectors: FloatArray) -> Array:
    """(n, d) float64 of length 1; none may be of length 0."""
    wide = np.asarray(vectors, dtype=np.float64)
    # Scaled by the largest entry first, so that squares neither overflow nor vanish.
    wide = wide / np.abs(wide).max(axis=1, keepdims=True)
    unit: Array = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    return unit


def _sum(vectors: FloatArray) -> Array:
    """(d,) sum of the unit vectors."""
    total = np.zeros(vectors.shape[1])
    for low in range(0, len(vectors), _ROWS):
        total += unit_rows(vectors[low : low + _ROWS]).sum(axis=0)
    return total


def _moments(vectors: FloatArray) -> Array:
    moments = np.zeros((vectors.shape[1], vectors.shape[1]))
    for low in range(0, len(vectors), _ROWS):
        rows = unit_rows(vectors[low : low + _ROWS])
        moments += rows.T @ rows
    return moments


def _kernel(vectors: FloatArray) -> Array:
    unit = unit_rows(vectors)
    kernel: Array = unit @ unit.T
    return kernel


def _effective_number(products: Array, count: int) -> float:
    shares = np.linalg.eigvalsh(products) / count
    shares = shares[shares > 0.0]  # rounding alone makes them negative
    entropy = -float((shares * np.log(shares)).sum())
    return float(min(count, max(1.0, np.exp(entropy))))


def _mean_distance(total: Array, count: int) -> float:
    cosines = float(np.dot(total, total)) - count
    return max(0.0, 1.0 - cosines / (count * (count - 1)))
