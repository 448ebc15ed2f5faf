"""Mean and spread of the features of one set, gathered shard by shard in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
FloatArray = npt.NDArray[np.floating[Any]]

_BLOCK = 256  # rows folded at once, counted from the set's first row
_STRIP = 256  # rows of the scatter matrix updated at once: what lies above its diagonal is skipped
_LARGEST = 1e140  # sums of squares of larger values leave the range of float64


@dataclass(frozen=True)
class Moments:
    """Number, mean and spread of the features of one set.

    n: samples.
    mean: (D,).
    spread: with centred features C (n, D), either a root, (k, D) with k <= D and root^T root = C^T
    C, or, where `squared`, the scatter matrix C^T C itself, (D, D). The covariance with ddof=1 is
    C^T C / (n - 1). A root keeps all digits of nearly dependent features, of which a scatter matrix
    loses half.
    """

    n: int
    mean: Array
    spread: Array
    squared: bool

    @property
    def total_scatter(self) -> float:
        """Trace of C^T C: the sum of squared distances from the mean."""
        return float(np.trace(self.spread) if self.squared else np.vdot(self.spread, self.spread))


class FeatureSet:
    """Features of one set, added in shards; what two of these hold gives their Frechet distance.

    dimension: D, at least 1. The rows themselves are kept, as float64 and in the order given, until
    there are more than max(D, 256); from then on they are folded in blocks of 256 into their mean
    and spread (pairwise updates of Chan, Golub and LeVeque, 1983), so that memory stays at a few
    D x D matrices however many samples come.
    root_up_to: the largest D whose folded spread is kept as a triangular root (updated by QR: most
    accurate, some 3 times the work); wider features keep the scatter matrix.

    Sets that were given the same rows hold the same bits, whatever the shards.
    """

    def __init__(self, dimension: int, *, root_up_to: int = 512) -> None:
        if dimension < 1:
            raise ValueError(f"features have at least 1 dimension, got {dimension}")
        self.dimension = dimension
        self._squared = dimension > root_up_to
        self._held: list[Array] = []  # blocks of rows not folded yet; only the last has room
        self._n_held = 0
        rows = dimension if self._squared else 0
        nothing = np.zeros((rows, dimension))
        self._folded = Moments(0, np.zeros(dimension), nothing, self._squared)

    @property
    def n(self) -> int:
        """Samples added so far."""
        return self._n_held + self._folded.n

    def add(self, features: FloatArray) -> None:
        """Add a shard.

        features: (n, D), any float type, n may be 0. The array is copied.
        Raises ValueError, and adds nothing, for another shape, for anything but real numbers, and
        for values that are NaN, infinite or beyond 1e140: the caller must count that sample
        as failed.
        """
        rows = np.asarray(features)
        self._check(rows)
        while len(rows):
            used = self._n_held % _BLOCK
            if not used:
                self._held.append(np.empty((_BLOCK, self.dimension)))
            part = rows[: _BLOCK - used]
            self._held[-1][used : used + len(part)] = part
            self._n_held += len(part)
            rows = rows[len(part) :]
            if self._folded.n or self._n_held > max(self.dimension, _BLOCK):
                self._fold_full_blocks()

    def moments(self) -> Moments:
        """Moments of the rows so far, as own arrays. Raises ValueError for an empty set."""
        if not self.n:
            raise ValueError("an empty set of features has no mean; add at least one sample")
        if self._folded.n:
            whole = self._all_folded()
            if self._squared:
                _mirror(whole.spread)
            return whole
        mean, centred = _centred(self._held_rows())
        # More rows than dimensions only make every later product larger.
        root = centred if self.n <= self.dimension else _triangle(centred)
        return Moments(self.n, mean, root, squared=False)

    def _check(self, rows: npt.NDArray[Any]) -> None:
        if rows.ndim != 2 or rows.shape[1] != self.dimension or rows.dtype.kind not in "fiu":
            raise ValueError(
                f"expected real features (n, {self.dimension}), got {rows.dtype} {rows.shape}; "
                "all features of a set come from one encoder"
            )
        # Written so that NaN, of which every comparison is false, is refused too.
        if rows.size and not (float(rows.max()) <= _LARGEST and float(rows.min()) >= -_LARGEST):
            raise ValueError(
                f"features hold NaN, infinity or values beyond {_LARGEST:g}; "
                "leave such samples out and count them as failed"
            )

    def _held_rows(self) -> Array:
        return np.concatenate([*self._held, np.empty((0, self.dimension))])[: self._n_held]

    def _all_folded(self) -> Moments:
        """Everything, in arrays of their own; of a scatter matrix the lower triangle only."""
        whole = replace(self._folded, spread=self._folded.spread.copy())
        rows = self._held_rows()
        for low in range(0, len(rows), _BLOCK):
            whole = _with_block(whole, rows[low : low + _BLOCK])
        return whole

    def _fold_full_blocks(self) -> None:
        while self._n_held >= _BLOCK:
            self._folded = _with_block(self._folded, self._held.pop(0))
            self._n_held -= _BLOCK


def _with_block(whole: Moments, rows: Array) -> Moments:
    """Moments of the union, kept as `whole` is; a scatter matrix of `whole` is updated in place."""
    mean, centred = _centred(rows)
    n = whole.n + len(rows)
    delta = mean - whole.mean
    # The distance of the two means spreads the union like one more centred row.
    between = delta[None] * sqrt(whole.n * len(rows) / n)
    spread = whole.spread
    if whole.squared:
        _add_squares(spread, np.concatenate([centred, between]))
    else:
        spread = _triangle(np.concatenate([spread, centred, between]))
    return Moments(n, whole.mean + delta * (len(rows) / n), spread, whole.squared)


def _triangle(rows: Array) -> Array:
    """A triangular root of rows^T rows, found without forming that product."""
    triangle: Array = np.linalg.qr(rows, mode="r")  # type: ignore[assignment] # typed for any mode
    return triangle


def _centred(rows: Array) -> tuple[Array, Array]:
    """Mean of at least one row, and the rows less it.

    The first row is taken off before the mean is formed, so that a constant column has no spread at
    all instead of the rounding of its mean.
    """
    mean = rows[0] + (rows - rows[0]).mean(axis=0)
    return mean, rows - mean


def _add_squares(scatter: Array, rows: Array) -> None:
    """Add rows^T rows in place, to the lower triangle and the rest of its diagonal's strips."""
    for low in range(0, len(scatter), _STRIP):
        high = min(low + _STRIP, len(scatter))
        scatter[low:high, :high] += rows[:, low:high].T @ rows[:, :high]


def _mirror(scatter: Array) -> None:
    """Make the matrix of which `_add_squares` wrote the lower part exactly symmetric, in place."""
    for low in range(0, len(scatter), _STRIP):
        strip = slice(low, low + _STRIP)
        scatter[:low, strip] = scatter[strip, :low].T
        square = scatter[strip, strip]
        scatter[strip, strip] = (square + square.T) / 2
