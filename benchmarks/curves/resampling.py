"""Bootstrap over samples: the same draws for every checkpoint, so their differences are paired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Draws = npt.NDArray[np.intp]

CONFIDENCE = 0.95
"""Of every interval, two-sided."""

_ENOUGH = 0.95  # of the draws must have a value, or there is no interval


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; ends are None where too few draws have a value."""

    value: float
    low: float | None
    high: float | None


def draw(categories: Sequence[str], count: int, seed: int) -> Draws:
    """(count, n) indices of samples, drawn with replacement within each category.

    A suite takes as many samples of each category on purpose, so their numbers are no chance.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    labels = np.asarray(categories)
    drawn = np.empty((count, len(labels)), dtype=np.intp)
    for category in dict.fromkeys(categories):
        places = np.flatnonzero(labels == category)
        drawn[:, places] = rng.choice(places, size=(count, len(places)))
    return drawn


def estimate(value: float, replicates: Array) -> Estimate:
    """A value with the percentile interval of its replicates, (B,); NaN: draws without a value."""
    there = replicates[np.isfinite(replicates)]
    if len(there) < _ENOUGH * len(replicates):
        return Estimate(rounded(value), None, None)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(there, [tail, 1 - tail])
    return Estimate(rounded(value), rounded(low), rounded(high))


def recentred(replicates: Array, value: float) -> Array:
    """Replicates of a distance of sets, moved to have their mean at the value.

    Draws with replacement hold some samples twice. Sets of fewer different images lie farther
    apart, by about as much at each checkpoint: a shift that is no part of the uncertainty.
    """
    moved: Array = replicates + (value - np.nanmean(replicates))
    return moved


def rounded(number: float) -> float:
    """With the decimals that figures are kept with."""
    return round(float(number), 6)
