"""How different the items of a set are from each other: Vendi score and mean pairwise distance.

Nothing is compared with a start. So a set can keep its diversity and have lost every meaning, and
noise raises it: read diversity beside retrieval or a similarity to the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.errors import TooFewError

FloatArray = npt.NDArray[np.floating[Any]]
Array = npt.NDArray[np.float64]

_ROWS = 512  # rows widened to float64 at once


@dataclass(frozen=True)
class DiversityTotals:
    """Products of a set's vectors at length 1, kept so that a block of it can be left out.

    vectors: (n, d), of any length but 0, any float type.
    blocks: (n,) the block of each, from 0; empty where none is to be left out.

    The kernel is the cosine: K_ij = cos(x_i, x_j), positive semidefinite with ones on its diagonal.
    K / n and the (d, d) matrix of second moments sum_i u_i u_i' / n have the same eigenvalues other
    than 0, so the smaller of the two is made: no array is larger than the vectors, min(n, d)^2, and
    for fewer vectors than dimensions (n, n).
    Raises ValueError for shapes that do not fit, or a vector that is zero or not finite;
    TooFewError for fewer than two vectors.
    """

    vectors: FloatArray
    blocks: npt.NDArray[np.integer[Any]]

    def __post_init__(self) -> None:
        shape = np.shape(self.vectors)
        if len(shape) != 2 or len(self.blocks) not in (0, shape[0]):
            raise ValueError(
                f"expected (n, d) vectors and n blocks or none, got {shape}, {len(self.blocks)}"
            )
        if shape[0] < 2:
            raise TooFewError(f"the diversity of a set needs at least 2 vectors, got {shape[0]}")
        largest = np.abs(self.vectors).max(axis=1)
        if not np.isfinite(largest).all() or not largest.all():
            raise ValueError("a vector is zero or not finite")

    def vendi_score(self) -> float:
        """Vendi score of the whole set; see `vendi_score`."""
        return _effective_number(self._whole, len(self.vectors))

    def vendi_score_without(self, block: int) -> float:
        """The same without a block. Raises TooFewError where fewer than two vectors are left."""
        kept, count = self._kept(block)
        if self._wide:
            return _effective_number(self._whole[np.ix_(kept, kept)], count)
        return _effective_number(self._whole - _moments(self.vectors[~kept]), count)

    def mean_distance(self) -> float:
        """Mean pairwise distance of the whole set; see `mean_pairwise_distance`."""
        return _mean_distance(self._sums.sum(axis=0), len(self.vectors))

    def mean_distance_without(self, block: int) -> float:
        """The same without a block. Raises TooFewError where fewer than two vectors are left."""
        _, count = self._kept(block)
        return _mean_distance(self._sums.sum(axis=0) - self._sums[block], count)

    @property
    def _wide(self) -> bool:
        return len(self.vectors) < len(self.vectors[0])

    @cached_property
    def _whole(self) -> Array:
        """The smaller of the kernel matrix and the sum of second moments."""
        return _kernel(self.vectors) if self._wide else _moments(self.vectors)

    @cached_property
    def _sums(self) -> Array:
        """(blocks, d) sum of the unit vectors of each block."""
        blocks = self.blocks if len(self.blocks) else np.zeros(len(self.vectors), np.intp)
        sums = np.zeros((int(blocks.max()) + 1, self.vectors.shape[1]))
        for low in range(0, len(self.vectors), _ROWS):
            rows = slice(low, low + _ROWS)
            np.add.at(sums, blocks[rows], unit_rows(self.vectors[rows]))
        return sums

    def _kept(self, block: int) -> tuple[npt.NDArray[np.bool_], int]:
        kept = np.asarray(self.blocks) != block
        count = int(kept.sum())
        if count < 2:
            raise TooFewError(
                f"without a block {count} of {len(kept)} vectors are left, at least 2 are needed"
            )
        return kept, count


def vendi_score(vectors: FloatArray) -> float:
    """Effective number of different items in a set: 1 for equal ones, n for n orthogonal ones.

    vectors: (n, d), n at least 2.
    Returns exp(-sum_i l_i log l_i) of the eigenvalues l of K / n, K_ij = cos(x_i, x_j), in [1, n].
    It depends on n, and on how wide the cone is that an encoder's vectors lie in: compare sets of
    one size by one encoder. No value is given by chance.
    Source: Friedman and Dieng, The Vendi Score, TMLR 2023, Definition 3.1; of second moments, as in
    its section 3.1 for embeddings.
    Raises as `DiversityTotals`.
    """
    return DiversityTotals(vectors, np.empty(0, np.intp)).vendi_score()


def mean_pairwise_distance(vectors: FloatArray) -> float:
    """Mean of 1 - cos(x_i, x_j) over all pairs of different items.

    vectors: (n, d), n at least 2.
    Returns a number in [0, 2], at most n / (n - 1); 0 for equal directions. Exact over all pairs in
    O(n d): the sum of all cosines is the squared length of the sum of the unit vectors.
    Raises as `DiversityTotals`.
    """
    return DiversityTotals(vectors, np.empty(0, np.intp)).mean_distance()


def unit_rows(vectors: FloatArray) -> Array:
    """(n, d) float64 of length 1; none may be of length 0."""
    wide = np.asarray(vectors, dtype=np.float64)
    # Scaled by the largest entry first, so that squares neither overflow nor vanish.
    wide = wide / np.abs(wide).max(axis=1, keepdims=True)
    unit: Array = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    return unit


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


def _mean_distance(total: Sequence[float] | Array, count: int) -> float:
    cosines = float(np.dot(total, total)) - count
    return max(0.0, 1.0 - cosines / (count * (count - 1)))
