"""Intervals of any statistic of rated items, by drawing whole items again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

DRAWS = 1000

_ENOUGH = 0.9
"""Share of draws in which the statistic must be defined; with fewer there is no interval."""


@dataclass(frozen=True)
class Estimate:
    """A statistic with its interval.

    value: None where it is not defined.
    low, high: ends of the 95 % interval; None of fewer than two items, and where too many draws
        leave the statistic undefined.
    items: that it is of.
    """

    value: float | None
    low: float | None
    high: float | None
    items: int


def estimate_by_items(
    statistic: Callable[[FloatArray], float | None],
    items: int,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    confidence: float = 0.95,
) -> Estimate:
    """A statistic with the percentile interval of the bootstrap by item.

    statistic: gives the value for (items,) weights, how often each item counts; None where it is
        not defined.
    items: how many there are; all votes on one are drawn together, since they are not independent.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13.
    """
    value = statistic(np.ones(items)) if items else None
    if value is None or items < 2:
        return Estimate(value, None, None, items)
    source = np.random.Generator(np.random.PCG64(seed))
    weights = source.multinomial(items, np.full(items, 1 / items), size=draws).astype(float)
    drawn = [result for row in weights if (result := statistic(row)) is not None]
    if len(drawn) < _ENOUGH * draws:
        return Estimate(value, None, None, items)
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value, float(low), float(high), items)
