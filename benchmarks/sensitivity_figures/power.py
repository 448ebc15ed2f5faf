"""Power at equal false alarm: thresholds from runs without damage, power of runs with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

ALPHA = 0.05
"""The share of undamaged runs that alarm, the same for every metric."""

TARGET = 0.8
"""The power that the cost of a metric is stated for."""

_DECIMALS = 9  # drops that differ by rounding alone are ties


@dataclass(frozen=True)
class Threshold:
    """When a metric alarms.

    drop: the drop beyond which it does.
    tie: the probability that it does at exactly this drop, so that metrics with few values have
        the same false alarm as all others (a randomized test, as in the lemma of Neyman and
        Pearson).
    """

    drop: float
    tie: float


def calibrate(null: Array, alpha: float = ALPHA) -> Threshold:
    """The threshold that a share alpha of the drops without damage exceeds.

    null: (runs,) drops between two undamaged runs, positive where the second is worse.
    alpha: in (0, 1).
    Raises ValueError for another alpha, for no drops, and for drops that are not finite.
    """
    if not 0 < alpha < 1 or null.size == 0 or not np.isfinite(null).all():
        raise ValueError(
            f"expected an alpha in (0, 1) and finite drops, got {alpha} and {null.size} drops"
        )
    drops = np.round(null, _DECIMALS)
    values, counts = np.unique(drops, return_counts=True)
    above = 1 - np.cumsum(counts) / drops.size  # the share beyond each value
    first = int(np.argmax(above <= alpha + 1e-12))
    at = counts[first] / drops.size
    return Threshold(float(values[first]), float(min(1.0, max(0.0, alpha - above[first]) / at)))


def alarm_rate(threshold: Threshold, drops: Array) -> float:
    """The share of runs that alarm: the power where they are damaged, in [0, 1].

    drops: (runs,), infinite where the damaged run has no value, which fails it.
    Raises ValueError for no runs, and for NaN.
    """
    if drops.size == 0 or np.isnan(drops).any():
        raise ValueError(
            f"expected drops that are numbers, got {drops.size} of which some may be NaN"
        )
    rounded = np.round(drops, _DECIMALS)
    beyond, even = (rounded > threshold.drop).mean(), (rounded == threshold.drop).mean()
    return float(beyond + threshold.tie * even)


def drops_between(before: Sequence[Array], now: Sequence[Array], sign: int) -> Array:
    """The drops of every run with a metric after against every one before, whose seeds differ.

    before, now: (draws,) values of each run over the same draws of samples. sign: 1 where higher is
    better, else -1. Where both are the same runs, no run stands against itself.
    """
    pairs = [sign * (first - second) for first in before for second in now if first is not second]
    return np.concatenate(pairs) if pairs else np.empty(0)


@dataclass(frozen=True)
class Need:
    """The samples that reach the target.

    samples: how many; the largest number that was tried where it was never reached.
    bound: "" for a number between two that were tried, "at most" for the smallest one, "over" where
        it was never reached.
    """

    samples: float
    bound: str = ""


def samples_needed(rates: Mapping[int, float], target: float = TARGET) -> Need:
    """The fewest samples with the target power, between two sizes by the logarithm of the size.

    rates: number of samples -> power. A larger number is taken to see at least as much as a
    smaller one: where the rates fall, the earlier one holds.
    Raises ValueError where there are none.
    """
    if not rates:
        raise ValueError("expected the power at one number of samples at least")
    sizes = sorted(rates)
    best = np.maximum.accumulate([rates[size] for size in sizes]).tolist()
    if best[0] >= target:
        return Need(float(sizes[0]), "at most")
    for place in range(1, len(sizes)):
        if best[place] >= target:
            part = (target - best[place - 1]) / (best[place] - best[place - 1])
            low, high = log2(sizes[place - 1]), log2(sizes[place])
            return Need(float(2 ** (low + part * (high - low))))
    return Need(float(sizes[-1]), "over")
