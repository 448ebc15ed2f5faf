"""Kernel distance (KID) of two sets of features, block by block in the order given."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import fsum, isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.errors import TooFewError

Array = npt.NDArray[np.float64]
FloatArray = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.integer[Any]]

_BLOCK = 1000  # the subset size of clean-fid and of the published KIDs


def kernel_distance(x: FloatArray, y: FloatArray, *, block: int = _BLOCK) -> float:
    """Kernel inception distance: unbiased squared MMD with the kernel (a . b / D + 1)^3.

    x, y: (n, D) features of any float type, in the order of the samples; n at least 2 each, and
    they may differ.
    block: samples of each set compared at once, at least 2.
    Returns the mean of the estimates of consecutive blocks, in float64. It is unbiased at any n, so
    it can be negative, and is about 0 for two samples of one distribution; lower is better.
    Source: Binkowski et al. 2018 (KID). Published values (clean-fid) are means over
    100 random subsets of 1,000 from an unseeded generator: a different number in each run, which
    a gate cannot use. Here each sample counts in exactly one block.
    Blocks: ceil(n / block) of the larger set, fewer only where a block of the smaller would have
    under 2 samples; sizes within a set differ by at most 1, so no remainder is left over.
    Raises ValueError for n < 2, for different D, and for features that are not finite or so large
    that the kernel leaves the range of float64.
    """
    if np.ndim(x) != 2 or np.ndim(y) != 2:
        raise ValueError(f"expected features (n, D) twice, got {np.shape(x)} and {np.shape(y)}")
    blocks = KernelBlocks(len(x), len(y), block=block)
    blocks.add(x, y)
    return blocks.distance()


class KernelBlocks:
    """`kernel_distance` of two sets that arrive in shards.

    n_x, n_y: samples that will come in each set; they decide the blocks, see `kernel_distance`. A
    row is held until its block is complete in both sets: fed in step, that is about one block per
    set.
    Raises ValueError for fewer than 2 samples or a block of fewer than 2.

    Rows may be added in parts, each of which can be left out afterwards, for a jackknife: of every
    block the sums of its kernel between any two parts are kept.
    """

    def __init__(self, n_x: int, n_y: int, *, block: int = _BLOCK) -> None:
        if min(n_x, n_y, block) < 2:
            raise ValueError(
                "a kernel distance needs at least 2 samples in each set and in each block, "
                f"got sets of {n_x} and {n_y} and blocks of {block}"
            )
        count = min(-(-max(n_x, n_y) // block), min(n_x, n_y) // 2)
        self._expected = (n_x, n_y)
        self._sizes = list(zip(_sizes(n_x, count), _sizes(n_y, count), strict=True))
        self._closed: list[_Block] = []
        self._held: tuple[list[Array], list[Array]] = ([], [])
        self._labels: tuple[list[Labels], list[Labels]] = ([], [])
        self._received = [0, 0]

    def add(self, x: FloatArray, y: FloatArray, parts: tuple[Labels, Labels] | None = None) -> None:
        """Add the next rows of each set, (k, D) and (l, D); k and l may differ or be 0.

        parts: (k,) and (l,), the part of each row, from 0; all are of part 0 when left out. They
        change no bit of the distance.
        Raises ValueError, and adds nothing, for other shapes, more rows than were announced, or
        values that are not finite.
        """
        shards = [np.array(rows, dtype=np.float64) for rows in (x, y)]
        self._check(shards)
        labels = parts or tuple(np.zeros(len(rows), dtype=np.intp) for rows in shards)
        for rows, own in zip(shards, labels, strict=True):
            if np.shape(own) != (len(rows),) or (len(rows) and own.min() < 0):
                raise ValueError(
                    f"expected a part from 0 for each of {len(rows)} rows, got {np.shape(own)}"
                )
        for side, (rows, own) in enumerate(zip(shards, labels, strict=True)):
            self._held[side].append(rows)
            self._labels[side].append(np.array(own, dtype=np.intp))
            self._received[side] += len(rows)
        self._close_blocks()

    def distance(self) -> float:
        """Mean over all blocks. Raises ValueError while rows are missing."""
        self._check_complete()
        return fsum(block.estimate for block in self._closed) / len(self._closed)

    def distance_without(self, part: int) -> float:
        """The same without the samples of a part, which are missing in their own blocks.

        The blocks stay as they are but for them: each is an unbiased estimate still, and the mean
        is over as many. Where all is one block this is `kernel_distance` of the remaining rows.
        Raises ValueError while rows are missing, TooFewError where a block would keep fewer than 2
        samples of a set.
        """
        self._check_complete()
        return fsum(block.without(part) for block in self._closed) / len(self._closed)

    def influences(self) -> tuple[Array, Array]:
        """How the distance answers to the weight of each row: (n_x,) and (n_y,), in their order.

        The influence of a row of x is the derivative of its block's estimate where the weights of
        the block's x go from 1 / n_b each towards that row alone, times n_x / (n_b count), so that
        all influences of a set over its n have the scale of the distance:

            2 (mean of k(row, other x) - mean over the x) - 2 (mean of k(row, y) - mean over both)

        It is the projection by which a U-statistic is a sum of terms of one sample each; it sums to
        0 in every block. Where both sets are of one law the projection vanishes and the rest, of
        the order 1 / n, is all that there is.
        Source: Hoeffding, A class of statistics with asymptotically normal distribution, 1948
        (the projection is also named after Hajek).
        Raises ValueError while rows are missing.
        """
        self._check_complete()
        count = len(self._closed)
        of_x, of_y = (
            np.concatenate(
                [
                    block.influences[side] * (n / (len(block.influences[side]) * count))
                    for block in self._closed
                ]
            )
            for side, n in enumerate(self._expected)
        )
        return of_x, of_y

    def _check_complete(self) -> None:
        if tuple(self._received) != self._expected:
            raise ValueError(
                f"expected {self._expected[0]} and {self._expected[1]} samples, "
                f"got {self._received[0]} and {self._received[1]}; add the missing ones first"
            )

    def _check(self, shards: list[Array]) -> None:
        if any(rows.ndim != 2 for rows in shards):
            raise ValueError(
                f"expected features (n, D) twice, got {shards[0].shape} and {shards[1].shape}"
            )
        widths = {rows.shape[1] for rows in (*shards, *self._held[0], *self._held[1])}
        if len(widths) != 1 or 0 in widths:
            raise ValueError(
                f"features of dimensions {sorted(widths)} have no kernel distance; "
                "take both sets from the same encoder"
            )
        if not all(np.isfinite(rows).all() for rows in shards):
            raise ValueError(
                "features hold NaN or infinity; leave such samples out and count them as failed"
            )
        for rows, had, expected in zip(shards, self._received, self._expected, strict=True):
            if had + len(rows) > expected:
                raise ValueError(f"expected {expected} samples in the set, got {had + len(rows)}")

    def _close_blocks(self) -> None:
        while len(self._closed) < len(self._sizes):
            sizes = self._sizes[len(self._closed)]
            if any(sum(map(len, self._held[side])) < sizes[side] for side in (0, 1)):
                return
            (x, x_parts), (y, y_parts) = (self._take(side, sizes[side]) for side in (0, 1))
            self._closed.append(_closed(x, y, x_parts, y_parts))

    def _take(self, side: int, size: int) -> tuple[Array, Labels]:
        rows, labels = np.concatenate(self._held[side]), np.concatenate(self._labels[side])
        self._held[side][:] = [rows[size:].copy()]
        self._labels[side][:] = [labels[size:].copy()]
        return rows[:size], labels[:size]


@dataclass(frozen=True)
class _Block:
    """One estimate, and what it is made of by parts.

    sizes: (2, P) rows of each set in each part.
    x, y, across: (P, P) sums of the kernel over pairs of rows of two parts, a row with itself left
    out.
    influences: of each row of x, and of y, on the estimate.
    """

    estimate: float
    sizes: Labels
    x: Array
    y: Array
    across: Array
    influences: tuple[Array, Array]

    def without(self, part: int) -> float:
        """The estimate of the other parts; the sums are added up anew, none is taken off."""
        others = np.arange(self.sizes.shape[1]) != part
        n_x, n_y = (int(size) for size in self.sizes[:, others].sum(axis=1))
        if min(n_x, n_y) < 2:
            raise TooFewError(
                f"without part {part} a block of the kernel distance keeps {n_x} and {n_y} samples"
            )
        x, y, across = (float(s[others][:, others].sum()) for s in (self.x, self.y, self.across))
        return x / (n_x * (n_x - 1)) + y / (n_y * (n_y - 1)) - 2 * across / (n_x * n_y)


def _sizes(n: int, count: int) -> list[int]:
    """Sizes of `count` consecutive parts of n, which differ by at most 1."""
    bounds = [n * part // count for part in range(count + 1)]
    return [high - low for low, high in pairwise(bounds)]


def _closed(x: Array, y: Array, x_parts: Labels, y_parts: Labels) -> _Block:
    """Unbiased squared MMD: pairs of a sample with itself are left out."""
    with np.errstate(over="ignore", invalid="ignore"):
        of_x, of_y, across = _kernel(x, x), _kernel(y, y), _kernel(x, y)
        within = _mean_of_others(of_x) + _mean_of_others(of_y)
        estimate = within - 2 * float(across.mean())
    if not isfinite(estimate):
        raise ValueError(
            "features are too large: their kernel (a . b / D + 1)^3 leaves the range of float64"
        )
    names = np.arange(max(int(x_parts.max()), int(y_parts.max())) + 1)
    in_x, in_y = ((parts[:, None] == names).astype(np.float64) for parts in (x_parts, y_parts))
    return _Block(
        estimate=estimate,
        sizes=np.array([in_x.sum(axis=0), in_y.sum(axis=0)]).astype(np.intp),
        x=in_x.T @ of_x @ in_x,
        y=in_y.T @ of_y @ in_y,
        across=in_x.T @ across @ in_y,
        influences=(_projected(of_x, across), _projected(of_y, across.T)),
    )


def _projected(own: Array, across: Array) -> Array:
    """Influence of each row of one set on the estimate of its block.

    own: (n, n) its kernel, the diagonal 0.
    across: (n, m) its kernel with the other set.
    """
    projected = 2 * (own.sum(axis=1) / (len(own) - 1) - across.mean(axis=1))
    centred: Array = projected - projected.mean()
    return centred


def _kernel(x: Array, y: Array) -> Array:
    base = x @ y.T / x.shape[1] + 1
    kernel: Array = base * base * base
    return kernel


def _mean_of_others(kernel: Array) -> float:
    """Mean of all but the diagonal, which is set to 0."""
    np.fill_diagonal(kernel, 0.0)
    return float(kernel.sum()) / (len(kernel) * (len(kernel) - 1))
