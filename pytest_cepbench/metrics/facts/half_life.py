"""The half-life of a kind of fact: how many generations until half of them are gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.metrics.facts.answers import mean_answered
from pytest_cepbench.metrics.uncertainty import wilson_interval

FloatArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class HalfLife:
    """When half of the facts of a kind are gone, with its confidence interval, in generations.

    units: independent samples that have the kind.
    last: the last generation that was checked.
    curve: share of facts that are right at each checked generation, the start's 1 left out.
    value: first generation, between two checked ones by a straight line, at which the share is
    one half; None where it stays above: the half-life is more than `last`.
    low, high: ends of the interval; None for one that is more than `last`.
    """

    units: int
    last: int
    curve: tuple[float, ...]
    value: float | None
    low: float | None
    high: float | None

    def __str__(self) -> str:
        value, low, high = (
            f"more than {self.last}" if end is None else f"{end:.1f}"
            for end in (self.value, self.low, self.high)
        )
        if self.value is None:
            return value if self.low is None else f"{value} (from {low})"
        return f"{value} ({low} to {high})"


def half_life(shares: FloatArray, generations: Sequence[int], confidence: float = 0.95) -> HalfLife:
    """The half-life of a kind of fact over the chains of many samples.

    shares: (n_units, n_generations) in [0, 1]: of each sample's facts of the kind the share that is
    right at each generation; NaN where none was answered. Samples that are not independent are
    averaged to one row before.
    generations: rising, from 1 on; at generation 0 all facts are right, by definition.
    confidence: of the interval, in (0, 1).

    The curve is the mean over units. The interval is the set of times at which one half cannot be
    excluded, as Brookmeyer and Crowley (1982) make one for a median survival time: where the upper
    and the lower band of the curve cross one half. The band is Wilson's with one trial a unit,
    which is wide enough for any scores in [0, 1], as no such score varies more than a coin with its
    mean. Nothing is ever extrapolated: what the chain did not reach is "more than" its end. Facts
    may come back; the first crossing counts.
    Raises ValueError for shapes that do not fit, or where nothing was answered.
    """
    table = np.asarray(shares, dtype=np.float64)
    steps = list(generations)
    rising = all(before < after for before, after in zip([0, *steps], steps, strict=False))
    if table.ndim != 2 or table.shape[1] != len(steps) or not steps or not rising:
        raise ValueError(
            f"expected shares (n, {len(steps)}) at rising generations from 1, got {table.shape}"
        )
    curve = mean_answered(table)
    units = (~np.isnan(table)).sum(axis=0)
    checked = [place for place in range(len(steps)) if units[place]]
    if not checked:
        raise ValueError("no fact of the kind was answered at any generation")
    times = [steps[place] for place in checked]
    means = [float(curve[place]) for place in checked]
    bands = [wilson_interval(float(curve[p]), int(units[p]), confidence) for p in checked]
    return HalfLife(
        units=int((~np.isnan(table)).any(axis=1).sum()),
        last=times[-1],
        curve=tuple(curve.tolist()),
        value=_crossing(times, means),
        low=_crossing(times, [low for low, _ in bands]),
        high=_crossing(times, [high for _, high in bands]),
    )


def _crossing(times: Sequence[int], curve: Sequence[float]) -> float | None:
    """First time at which a curve that is 1 at time 0 is one half; None where it never is."""
    before, height = 0, 1.0
    for time, value in zip(times, curve, strict=True):
        if value <= 0.5:
            return before + (time - before) * (height - 0.5) / (height - value)
        before, height = time, value
    return None
