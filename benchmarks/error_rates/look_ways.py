"""Ways of looking again at samples of a case: when, and at which level.

What is drawn is a case of the embedded kind: categories of equal size, and a difference of each
sample. Bounds, levels and verdicts are the gate's own; calls of models are counted as a run with an
empty store makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from benchmarks.error_rates.worlds import Array
from pytest_cepbench.gate import Verdict
from pytest_cepbench.gate.compare import verdict_of
from pytest_cepbench.gate.statistics import (
    FIRST_SEQUENTIAL_LOOK,
    SEQUENTIAL_GROWTH,
    Differences,
    look_shares,
    look_sizes,
    mean_bounds,
    separate_shares,
    sequential_levels,
)
from pytest_cepbench.gate.statistics.bounds import find_lump
from pytest_cepbench.gate.statistics.sign_flips import upper_flipped

_NEAREST = 0.5  # of a normal quantile in standard errors: no bound that decides is nearer


@dataclass(frozen=True)
class Way:
    """One way of looking again.

    sequential: fine looks at levels that know each other, or doublings at shares of alpha.
    former: whether bounds are those of before signs were flipped: Hoeffding's of lumps, and every
    category a stratum however few samples it has.
    """

    name: str
    sequential: bool = False
    former: bool = False


FORMER = Way("former bounds", former=True)
"""Doublings with the bounds of before: what all other ways are compared with."""

WAYS = (FORMER, Way("bounds"), Way("sequential", sequential=True))


@dataclass(frozen=True)
class Drawn:
    """A case that was drawn, its samples in the order in which they are looked at.

    differences: (n,) positive is better.
    categories: (n,) numbers from 0, as many samples in each, in turn.
    iterations: T of a chain.
    """

    differences: Array
    categories: npt.NDArray[np.int64]
    iterations: int = 3


@dataclass(frozen=True)
class Ended:
    """How a case ended. calls: of describer and generator; drawings: those of the generator."""

    verdict: Verdict
    calls: int
    drawings: int

    @property
    def decided(self) -> bool:
        """Whether it is anything but inconclusive."""
        return self.verdict is not Verdict.INCONCLUSIVE


def look_again_by(way: Way, drawn: Drawn, alpha: float, tolerance: float) -> Ended:
    """The case looked at until it is decided or all samples were looked at."""
    count = int(drawn.categories.max()) + 1
    most = len(drawn.differences)
    fine = (FIRST_SEQUENTIAL_LOOK, SEQUENTIAL_GROWTH) if way.sequential else ()
    sizes = [min(most, ceil(size / count) * count) for size in look_sizes(most, *fine)]
    sizes = list(dict.fromkeys(sizes))
    divided = separate_shares(sizes) if way.sequential else look_shares(len(sizes))
    shares = [alpha * share for share in divided]
    levels = sequential_levels(tuple(sizes), alpha) if way.sequential else shares
    for size, level, share in zip(sizes, levels, shares, strict=True):
        verdict = _verdict(way, drawn, size, level, share, tolerance)
        if verdict is not Verdict.INCONCLUSIVE:
            break
    return Ended(verdict, 2 * drawn.iterations * size, drawn.iterations * size)


def _verdict(
    way: Way, drawn: Drawn, size: int, level: float, share: float, tolerance: float
) -> Verdict:
    d = _first(drawn, size)
    if not _may_decide(d, level, share, tolerance):
        return Verdict.INCONCLUSIVE
    early = not way.former and size < len(drawn.differences)
    bounds = mean_bounds(d, level, exchangeable=not way.former, early=early)
    if way.sequential and "exact" in bounds.method and share < level:
        bounds = mean_bounds(d, share, exchangeable=not way.former, early=early)
    return verdict_of(bounds.mean, bounds.low, bounds.high, tolerance)


def _may_decide(d: Differences, level: float, share: float, tolerance: float) -> bool:
    """Whether a bound could lie on the right side; where not, it need not be made."""
    mean, count = d.mean, d.units
    if find_lump(d, 1.0).share == 1:
        if mean < -tolerance:
            # Hoeffding's bound is no lower: where this one is not below 0, that is not.
            weights = d.weights()
            high = upper_flipped(d.weighted() / weights, weights, min(level, share))
            return high is not None and high < 0
        unseen = 1.0 - float(min(level, share) ** (1 / count))
        return mean - (1 + mean) * unseen > -tolerance
    away = -mean if mean < -tolerance else mean + tolerance
    return away >= -_NEAREST * NormalDist().inv_cdf(level) * d.sd / sqrt(count)


def _first(drawn: Drawn, size: int) -> Differences:
    parts: dict[str, dict[str, float]] = {}
    for place in range(size):
        category = parts.setdefault(f"c{drawn.categories[place]}", {})
        category[f"s{place:04}"] = float(drawn.differences[place])
    return Differences.of(parts)
