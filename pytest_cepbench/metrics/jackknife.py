"""The delete-block jackknife: scores for the parts of a number that only a whole set has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import digest_text

BLOCKS = 10
"""Most blocks that a set is cut into: leaving out a tenth, ten times, is affordable for FID."""

FEWEST_UNITS = 4
"""Least units that make blocks: two blocks of two."""


def pseudo_values(
    whole: float, without: Sequence[float] | npt.NDArray[np.floating[Any]]
) -> npt.NDArray[np.float64]:
    """Jackknife pseudo-value of each block: B * whole - (B - 1) * without_j.

    whole: the statistic of all samples.
    without: (B,) the statistic of all samples but those of block j, B >= 2.
    Returns (B,): their spread is that of the statistic times sqrt(B), their mean is the statistic
    less its bias to first order (for a plain mean, each is the mean of its block). The blocks count
    as equally large; where sizes differ by one sample the error is of that order.
    Source: Tukey, Bias and confidence in not quite large samples (abstract), 1958.
    Raises ValueError for fewer than two blocks or a number that is not finite.
    """
    left = np.asarray(without, dtype=np.float64)
    if left.ndim != 1 or len(left) < 2 or not (np.isfinite(left).all() and np.isfinite(whole)):
        msg = (
            "expected a finite number for the whole and one for each of at least 2 blocks left "
            f"out, got {whole} and {left.tolist()}"
        )
        raise ValueError(msg)
    count = len(left)
    values: npt.NDArray[np.float64] = count * float(whole) - (count - 1) * left
    return values


def blocks_of(units: Iterable[str], count: int = BLOCKS) -> dict[str, int]:
    """Which block each unit belongs to, by its name alone.

    units: names of samples, or of clusters of them that must stay together; order and repetition do
    not matter.
    count: most blocks, at least 2.
    Returns unit -> block, 0 to blocks - 1, dealt out in the order of the names' digests: sizes
    differ by at most one, every block has at least two units, and the order that a data set has
    (all of one category first) has no say. Empty where there are fewer than four units. The same
    names always give the same blocks, so the blocks of a baseline and of a candidate hold the same
    samples.
    Raises ValueError for a count below 2.
    """
    if count < 2:
        msg = f"expected at least 2 blocks, got {count}"
        raise ValueError(msg)
    names = sorted(set(units), key=lambda unit: (digest_text(unit), unit))
    if len(names) < FEWEST_UNITS:
        return {}
    blocks = min(count, len(names) // 2)
    return {name: rank % blocks for rank, name in enumerate(names)}
