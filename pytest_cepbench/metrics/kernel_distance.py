"""Kernel distance (KID) of two sets of features, block by block in the order given."""

from __future__ import annotations

from itertools import pairwise
from math import fsum, isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
FloatArray = npt.NDArray[np.floating[Any]]

_BLOCK = 1000  # the subset size of clean-fid and of the published KIDs


def kernel_distance(x: FloatArray, y: FloatArray, *, block: int = _BLOCK) -> float:
    """Kernel inception distance: unbiased squared MMD with the kernel (a . b / D + 1)^3.

    x, y: (n, D) features of any float type, in the order of the samples; n at least 2 each, and
    they may differ. block: samples of each set compared at once, at least 2.
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
        msg = f"expected features (n, D) twice, got {np.shape(x)} and {np.shape(y)}"
        raise ValueError(msg)
    blocks = KernelBlocks(len(x), len(y), block=block)
    blocks.add(x, y)
    return blocks.distance()


class KernelBlocks:
    """`kernel_distance` of two sets that arrive in shards.

    n_x, n_y: samples that will come in each set; they decide the blocks, see `kernel_distance`. A
    row is held until its block is complete in both sets: fed in step, that is about one block per
    set. Raises ValueError for fewer than 2 samples or a block of fewer than 2.
    """

    def __init__(self, n_x: int, n_y: int, *, block: int = _BLOCK) -> None:
        if min(n_x, n_y, block) < 2:
            msg = (
                "a kernel distance needs at least 2 samples in each set and in each block, "
                f"got sets of {n_x} and {n_y} and blocks of {block}"
            )
            raise ValueError(msg)
        count = min(-(-max(n_x, n_y) // block), min(n_x, n_y) // 2)
        self._expected = (n_x, n_y)
        self._sizes = list(zip(_sizes(n_x, count), _sizes(n_y, count), strict=True))
        self._estimates: list[float] = []
        self._held: tuple[list[Array], list[Array]] = ([], [])
        self._received = [0, 0]

    def add(self, x: FloatArray, y: FloatArray) -> None:
        """Add the next rows of each set, (k, D) and (l, D); k and l may differ or be 0.

        Raises ValueError, and adds nothing, for other shapes, more rows than were announced, or
        values that are not finite.
        """
        shards = [np.array(rows, dtype=np.float64) for rows in (x, y)]
        self._check(shards)
        for side, rows in enumerate(shards):
            self._held[side].append(rows)
            self._received[side] += len(rows)
        self._close_blocks()

    def distance(self) -> float:
        """Mean over all blocks. Raises ValueError while rows are missing."""
        if tuple(self._received) != self._expected:
            msg = (
                f"expected {self._expected[0]} and {self._expected[1]} samples, "
                f"got {self._received[0]} and {self._received[1]}; add the missing ones first"
            )
            raise ValueError(msg)
        return fsum(self._estimates) / len(self._estimates)

    def _check(self, shards: list[Array]) -> None:
        if any(rows.ndim != 2 for rows in shards):
            msg = f"expected features (n, D) twice, got {shards[0].shape} and {shards[1].shape}"
            raise ValueError(msg)
        widths = {rows.shape[1] for rows in (*shards, *self._held[0], *self._held[1])}
        if len(widths) != 1 or 0 in widths:
            msg = (
                f"features of dimensions {sorted(widths)} have no kernel distance; "
                "take both sets from the same encoder"
            )
            raise ValueError(msg)
        if not all(np.isfinite(rows).all() for rows in shards):
            msg = "features hold NaN or infinity; leave such samples out and count them as failed"
            raise ValueError(msg)
        for rows, had, expected in zip(shards, self._received, self._expected, strict=True):
            if had + len(rows) > expected:
                msg = f"expected {expected} samples in the set, got {had + len(rows)}"
                raise ValueError(msg)

    def _close_blocks(self) -> None:
        while len(self._estimates) < len(self._sizes):
            sizes = self._sizes[len(self._estimates)]
            if any(sum(map(len, self._held[side])) < sizes[side] for side in (0, 1)):
                return
            x, y = (self._take(side, sizes[side]) for side in (0, 1))
            self._estimates.append(_unbiased(x, y))

    def _take(self, side: int, size: int) -> Array:
        rows = np.concatenate(self._held[side])
        self._held[side][:] = [rows[size:].copy()]
        return rows[:size]


def _sizes(n: int, count: int) -> list[int]:
    """Sizes of `count` consecutive parts of n, which differ by at most 1."""
    bounds = [n * part // count for part in range(count + 1)]
    return [high - low for low, high in pairwise(bounds)]


def _unbiased(x: Array, y: Array) -> float:
    """Unbiased squared MMD: pairs of a sample with itself are left out."""
    with np.errstate(over="ignore", invalid="ignore"):
        within = _mean_of_others(_kernel(x, x)) + _mean_of_others(_kernel(y, y))
        estimate = within - 2 * float(_kernel(x, y).mean())
    if not isfinite(estimate):
        msg = "features are too large: their kernel (a . b / D + 1)^3 leaves the range of float64"
        raise ValueError(msg)
    return estimate


def _kernel(x: Array, y: Array) -> Array:
    base = x @ y.T / x.shape[1] + 1
    kernel: Array = base * base * base
    return kernel


def _mean_of_others(kernel: Array) -> float:
    np.fill_diagonal(kernel, 0.0)
    return float(kernel.sum()) / (len(kernel) * (len(kernel) - 1))
