"""Ways of looking again at samples of a case: when, at which level, and what stands for a chain.

What is drawn is a case of the embedded kind: categories of equal size, whole differences, those of
proxies, and what calibration said of each sample. Bounds, levels, proxies and verdicts are the
gate's own; calls of models are counted as a run with an empty store makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from math import ceil, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchmarks.error_rates.worlds import Array
from pytest_cepbench.gate import Verdict
from pytest_cepbench.gate.compare import verdict_of
from pytest_cepbench.gate.statistics import (
    FIRST_SEQUENTIAL_LOOK,
    SEQUENTIAL_GROWTH,
    Bounds,
    Differences,
    look_shares,
    look_sizes,
    mean_bounds,
    separate_shares,
    sequential_levels,
)
from pytest_cepbench.gate.statistics.bounds import find_lump
from pytest_cepbench.gate.statistics.control_variates import (
    LEAST_WHOLE,
    TwoPhaseSample,
    two_phase_bounds,
)
from pytest_cepbench.gate.statistics.sign_flips import upper_flipped

ProxyKind = Literal["first", "text"]

_ODDS = 2.0  # of what a proxy explains to what it does not, as runs take it to be

_CALMEST = 0.5  # of the usual spread: a stratum's planned spread is never taken to be less

_NEAREST = 0.5  # of a normal quantile in standard errors: no bound that decides is nearer


@dataclass(frozen=True)
class Way:
    """One way of looking again.

    sequential: fine looks at levels that know each other, or doublings at shares of alpha.
    proxy: what stands for whole chains of further samples; None for nothing.
    strata: whether samples that were lively in calibration come first (Neyman's allocation).
    former: whether bounds are those of before signs were flipped: Hoeffding's of lumps, and every
    category a stratum however few samples it has.
    """

    name: str
    sequential: bool = False
    proxy: ProxyKind | None = None
    strata: bool = False
    former: bool = False


FORMER = Way("former bounds", former=True)
"""Doublings with the bounds of before: what all other ways are compared with."""

WAYS = (
    FORMER,
    Way("bounds"),
    Way("sequential", sequential=True),
    Way("sequential, strata", sequential=True, strata=True),
    Way("sequential, first", sequential=True, proxy="first"),
    Way("sequential, text", sequential=True, proxy="text"),
)


@dataclass(frozen=True)
class Drawn:
    """A case that was drawn, its samples in the order in which they are looked at.

    whole: (n,) differences, positive is better.
    proxies: kind -> (n,) those of the proxy.
    categories: (n,) numbers from 0, as many samples in each, in turn.
    spreads: (n,) standard deviation of a sample's score over seeds, as calibration saw it.
    iterations: T of a chain.
    """

    whole: Array
    categories: npt.NDArray[np.int64]
    proxies: Mapping[ProxyKind, Array] = field(default_factory=dict)
    spreads: Array | None = None
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
    """The case looked at until it is decided or all chains are whole."""
    count = int(drawn.categories.max()) + 1
    most = len(drawn.whole)
    fine = (FIRST_SEQUENTIAL_LOOK, SEQUENTIAL_GROWTH) if way.sequential else ()
    sizes = [min(most, ceil(size / count) * count) for size in look_sizes(most, *fine)]
    sizes = list(dict.fromkeys(sizes))
    divided = separate_shares(sizes) if way.sequential else look_shares(len(sizes))
    shares = [alpha * share for share in divided]
    levels = sequential_levels(tuple(sizes), alpha) if way.sequential else shares
    begun = 0
    for size, level, share in zip(sizes, levels, shares, strict=True):
        begun = max(begun, _begun(way, drawn, size, count))
        verdict = _verdict(way, drawn, size, begun, level, share, tolerance)
        if verdict is not Verdict.INCONCLUSIVE:
            break
    of_proxy = 1 if way.proxy == "text" else 2
    further = begun - size
    return Ended(
        verdict,
        2 * drawn.iterations * size + of_proxy * further,
        drawn.iterations * size + (of_proxy - 1) * further,
    )


def _begun(way: Way, drawn: Drawn, size: int, count: int) -> int:
    """Samples whose chains are begun at a look."""
    most = len(drawn.whole)
    if way.proxy is None or size == most or size < LEAST_WHOLE:
        return size
    of_proxy = 1 if way.proxy == "text" else 2
    ratio = max(1.0, sqrt((2 * drawn.iterations - of_proxy) / of_proxy * _ODDS))
    return min(most, ceil(ratio * size / count) * count)


def _verdict(
    way: Way, drawn: Drawn, size: int, begun: int, level: float, share: float, tolerance: float
) -> Verdict:
    chosen = _chosen(way, drawn, size)
    if not way.strata:
        whole = Differences.of(_by_category(drawn.whole, drawn.categories, chosen))
        proxied = way.proxy is not None and begun > size >= LEAST_WHOLE
        if not _may_decide(whole, level, share, tolerance, proxied=proxied):
            return Verdict.INCONCLUSIVE
    bounds = _bounds(way, drawn, chosen, begun, level)
    if way.sequential and "exact" in bounds.method and share < level:
        bounds = _bounds(way, drawn, chosen, begun, share)
    return verdict_of(bounds.mean, bounds.low, bounds.high, tolerance)


def _may_decide(
    whole: Differences, level: float, share: float, tolerance: float, *, proxied: bool
) -> bool:
    """Whether a bound could lie on the right side; where not, it need not be made.

    A proxy moves mean and error, so that nothing is said of a look that has one.
    """
    mean, count = whole.mean, whole.units
    if proxied:
        return True
    if find_lump(whole, 1.0).share == 1:
        if mean < -tolerance:
            # Hoeffding's bound is no lower: where this one is not below 0, that is not.
            weights = whole.weights()
            high = upper_flipped(whole.weighted() / weights, weights, min(level, share))
            return high is not None and high < 0
        unseen = 1.0 - float(min(level, share) ** (1 / count))
        return mean - (1 + mean) * unseen > -tolerance
    away = -mean if mean < -tolerance else mean + tolerance
    return away >= -_NEAREST * NormalDist().inv_cdf(level) * whole.sd / sqrt(count)


def _bounds(way: Way, drawn: Drawn, chosen: Sequence[int], begun: int, level: float) -> Bounds:
    if way.strata and len(chosen) < len(drawn.whole) and drawn.spreads is not None:
        sample = _stratified(drawn, chosen)
        return two_phase_bounds(sample, level, span=1.0)[0]
    whole = _by_category(drawn.whole, drawn.categories, chosen)
    if way.proxy is None or len(chosen) == len(drawn.whole) or begun == len(chosen):
        early = not way.former and len(chosen) < len(drawn.whole)
        d = Differences.of(whole)
        return mean_bounds(d, level, exchangeable=not way.former, early=early)
    proxies = _by_category(drawn.proxies[way.proxy], drawn.categories, range(begun))
    sample = TwoPhaseSample(whole, proxies, dict.fromkeys(whole, 1 / len(whole)))
    return two_phase_bounds(sample, level, span=1.0)[0]


def _by_category(
    values: Array, categories: npt.NDArray[np.int64], chosen: Sequence[int]
) -> dict[str, dict[str, float]]:
    parts: dict[str, dict[str, float]] = {}
    for place in chosen:
        parts.setdefault(f"c{categories[place]}", {})[f"s{place:04}"] = float(values[place])
    return parts


# -- strata of calibration -------------------------------------------------------------------------


def _lively(drawn: Drawn) -> npt.NDArray[np.bool_]:
    """(n,) whether a sample scattered more in calibration than half of its category."""
    assert drawn.spreads is not None
    lively = np.zeros(len(drawn.whole), bool)
    for category in np.unique(drawn.categories):
        own = drawn.categories == category
        lively[own] = drawn.spreads[own] > np.median(drawn.spreads[own])
    return lively


def _chosen(way: Way, drawn: Drawn, size: int) -> Sequence[int]:
    """The samples of a look: the first ones, or those that Neyman's allocation puts first."""
    if not way.strata or size == len(drawn.whole) or drawn.spreads is None:
        return range(size)
    lively, usual = _lively(drawn), float(np.sqrt(np.mean(drawn.spreads**2)))
    count = int(drawn.categories.max()) + 1
    chosen: list[int] = []
    for category in range(count):
        own = drawn.categories == category
        parts = [np.flatnonzero(own & (lively == kind)) for kind in (False, True)]
        parts = [part for part in parts if len(part)]
        spreads = [
            max(float(np.sqrt(np.mean(drawn.spreads[part] ** 2))), _CALMEST * usual, 1e-9)
            for part in parts
        ]
        for part, n in zip(parts, allocated(size // count, parts, spreads), strict=True):
            chosen += part[:n].tolist()
    return sorted(chosen)


def allocated(size: int, parts: Sequence[Sized], spreads: Sequence[float]) -> list[int]:
    """Samples of each stratum: as their number times their spread, at least one, at most all.

    Source: Neyman, On the two different aspects of the representative method, 1934.
    """
    wants = np.array([len(part) * spread for part, spread in zip(parts, spreads, strict=True)])
    plan = [
        min(len(part), max(1, round(size * want / wants.sum())))
        for part, want in zip(parts, wants.tolist(), strict=True)
    ]
    while sum(plan) < size and any(n < len(part) for n, part in zip(plan, parts, strict=True)):
        short = max(
            (k for k, part in enumerate(parts) if plan[k] < len(part)),
            key=lambda k: wants[k] / plan[k],
        )
        plan[short] += 1
    while sum(plan) > max(size, len(plan)):
        plan[int(np.argmax(plan))] -= 1
    return plan


def _stratified(drawn: Drawn, chosen: Sequence[int]) -> TwoPhaseSample:
    lively = _lively(drawn)
    names = [f"c{c}/{k}" for c, k in zip(drawn.categories, lively.astype(int), strict=True)]
    count = int(drawn.categories.max()) + 1
    sizes: dict[str, int] = {}
    for name in names:
        sizes[name] = sizes.get(name, 0) + 1
    per_category = len(drawn.whole) / count
    whole: dict[str, dict[str, float]] = {}
    for place in chosen:
        whole.setdefault(names[place], {})[f"s{place:04}"] = float(drawn.whole[place])
    shares = {name: sizes[name] / per_category / count for name in whole}
    total = sum(shares.values())
    return TwoPhaseSample(
        whole, {}, {name: share / total for name, share in shares.items()}, len(drawn.whole)
    )
