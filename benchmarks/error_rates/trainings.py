"""Whole trainings: how often a series of gates stops a good one, and how soon it finds a drop.

The checkpoints of a training are measured on the same samples, checkpoints near one another may err
alike, and what passes becomes the baseline. The gate's own bounds, acceptance and shares of alpha
judge them, beside rules that divide the error in other ways or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import log, pi, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from benchmarks.error_rates.figures import Cell, Figure
from benchmarks.error_rates.worlds import SD, Array
from pytest_cepbench.gate.measurement import DECIMALS
from pytest_cepbench.gate.statistics import (
    Differences,
    checkpoint_share,
    mean_bounds,
    reference_share,
)

Hits = npt.NDArray[np.bool_]

TRAINING = "training: "
"""Before the names of these worlds: their tables are their own."""

RULES = (
    "single gates",
    "strict gates",
    "series",
    "inverse squares",
    "e-values",
    "one index",
    "products",
)
"""Gates at the whole alpha each, as without a series; the same where only a drop that exceeds the
tolerance beyond doubt is a regression; the gate's series; the same with 6 / (pi k)^2 as the share
of checkpoint k; sums of weighted e-values; and two that are not valid: shares of checkpoints that
are not divided among references, and products of e-values."""

VALID = RULES[2:5]
"""Those that promise that a good training is stopped with probability alpha at most."""

DELAY = "found by 80 % after"
"""Checkpoints until four of five trainings that were running at the drop are stopped."""

_ANCHORED = 2.0  # tolerances since the anchor
_SEED = 20_000
_FAR = 3.0  # normal quantiles: no bound of 60 samples or more of these worlds is farther


@dataclass(frozen=True)
class Trainings:
    """How much is simulated.

    runs: trainings of each kind. lengths: checkpoints of one. sizes: samples. alpha: of a whole
    training. tolerance: in the unit of the scores. seed: of all draws.
    """

    runs: int = 400
    lengths: tuple[int, ...] = (40, 200)
    sizes: tuple[int, ...] = (60, 192, 1284)
    alpha: float = 0.05
    tolerance: float = 0.01
    seed: int = 0


Course = Callable[[np.random.Generator, int, int], Array]
"""(generator, trainings, checkpoints) -> (trainings, checkpoints + 1) true quality in tolerances,
that of the first baseline first."""


@dataclass(frozen=True)
class Kind:
    """A kind of training.

    name: in tables. course: its true quality. drop: the checkpoint at which it begins to be bad, as
    a share of the length; None where it never is. later: so many checkpoints after that. alike:
    correlation of the errors of checkpoints next to each other. losses: whether few samples err
    much, rather than all a little.
    """

    name: str
    course: Course
    drop: float | None = None
    later: int = 0
    alike: float = 0.0
    losses: bool = False


def _level(_: np.random.Generator, runs: int, length: int) -> Array:
    return np.zeros((runs, length + 1))


def _lost(times: float, since: float) -> Course:
    """A drop of so many tolerances after a share of the training; of 0, just after the baseline."""

    def course(_: np.random.Generator, runs: int, length: int) -> Array:
        quality = np.zeros((runs, length + 1))
        quality[:, max(1, int(since * length)) :] = -times
        return quality

    return course


def _decline(_: np.random.Generator, runs: int, length: int) -> Array:
    """Half a tolerance less at each of ten checkpoints, from the middle on."""
    since = np.arange(length + 1) - length // 2
    quality: Array = np.tile(-0.5 * np.clip(since, 0, 10), (runs, 1))
    return quality


def _noisy(generator: np.random.Generator, runs: int, length: int) -> Array:
    """Quality rises by four tolerances, and wobbles by half a tolerance to both sides."""
    rising = 4 * (1 - np.exp(-np.arange(length + 1) / 10))
    return np.asarray(rising + generator.uniform(-0.5, 0.5, (runs, length + 1)))


GOOD = (
    Kind("no change", _level),
    Kind("no change, neighbors err alike", _level, alike=0.9),
    Kind("no change, rare losses", _level, losses=True),
    Kind("one tolerance lost half way", _lost(1, 0.5)),
    Kind("one tolerance lost half way, rare losses", _lost(1, 0.5), losses=True),
    Kind("one tolerance lost at once", _lost(1, 0)),
    Kind("noisy improvement", _noisy),
)
"""Trainings of which no checkpoint lost more than the tolerance since an earlier one."""

DROPS = (1, 2, 4)

BAD = (
    *(Kind(f"drop of {times} x", _lost(times, 0.75), drop=0.75) for times in DROPS),
    Kind("drop of 2 x, neighbors err alike", _lost(2, 0.75), drop=0.75, alike=0.9),
    Kind("decline of 0.5 x a checkpoint", _decline, drop=0.5, later=1),
)

FEW = (GOOD[0], GOOD[3], BAD[1], BAD[2], BAD[4])
"""One of each; long trainings are of these alone, and half as many."""


def figures(settings: Trainings, *, quick: bool = False) -> Iterator[Figure]:
    """False stops of good trainings, and delays of bad ones, by each rule."""
    fewer = replace(settings, runs=max(2, settings.runs // 2))
    for kind in FEW if quick else (*GOOD, *BAD):
        for n in settings.sizes:
            yield from of_kind(kind, settings.lengths[0], n, settings)
    for kind in FEW:
        for length, n in product(settings.lengths[1:], settings.sizes):
            yield from of_kind(kind, length, n, fewer)


def of_kind(kind: Kind, length: int, n: int, settings: Trainings) -> Iterator[Figure]:
    """The figures of one kind of training of so many checkpoints and samples, by each rule."""
    stops = stopping(kind, length, n, settings)
    world = f"{TRAINING}{kind.name}, {length} checkpoints"
    for rule, stop in stops.items():
        cell = Cell(rule, world, n, 1, 0.0, settings.tolerance)
        if kind.drop is None:
            promise = settings.alpha if rule in VALID else None
            yield cell.rate("false stops", stop <= length, promise)
            continue
        first = int(kind.drop * length) + kind.later
        yield cell.rate("stopped before", stop < first)
        running = stop[stop >= first]
        if len(running) < 2:
            continue
        stopped = running <= length
        yield cell.rate("found", stopped)
        delays = np.sort(np.where(stopped, running - first + 1.0, np.inf))
        late = delays[int(np.ceil(0.8 * len(delays))) - 1]
        if np.isfinite(late):
            yield replace(cell.rate(DELAY, stopped), value=float(late), error=0.0)


def stopping(kind: Kind, length: int, n: int, settings: Trainings) -> Mapping[str, Hits]:
    """Rule -> (trainings,) the checkpoint that it stops at, length + 1 where it does not."""
    name = [ord(letter) for letter in kind.name]
    generator = np.random.default_rng([settings.seed, _SEED, length, n, *name])
    qualities = kind.course(generator, settings.runs, length) * settings.tolerance
    results = [stops_of(scores_of(generator, kind, quality, n), settings) for quality in qualities]
    return {rule: np.array([stop[rule] for stop in results]) for rule in RULES}


def scores_of(generator: np.random.Generator, kind: Kind, quality: Array, n: int) -> Array:
    """(checkpoints + 1, n) of one training, beside a part that all checkpoints share."""
    shape = (len(quality), n)
    if kind.losses:
        own = 1 - generator.standard_exponential(shape)
    else:
        own = generator.standard_normal(shape)
    errors = own
    if kind.alike:
        errors = np.empty(shape)
        errors[0] = own[0]
        for number in range(1, len(quality)):
            fresh = sqrt(1 - kind.alike**2) * own[number]
            errors[number] = kind.alike * errors[number - 1] + fresh
    return np.asarray(np.round(quality[:, None] + SD / sqrt(2) * errors, DECIMALS))


def stops_of(scores: Array, settings: Trainings) -> dict[str, int]:
    """Rule -> the checkpoint at which it stops a training.

    What passes depends on the lower bound alone, which is the same by every rule. So all of them
    see the same baselines until they stop.
    """
    length = len(scores) - 1
    alpha, tolerance = settings.alpha, settings.tolerance
    stops = dict.fromkeys(RULES, length + 1)
    wealth = {"fixed": 0.0, "moved": 0.0}
    products = {"fixed": 0.0, "moved": 0.0}
    baseline = 0
    for number in range(1, length + 1):
        reference = baseline or None
        pairs = [(reference, tolerance)]
        pairs += [] if reference is None else [(None, _ANCHORED * tolerance)]
        held = False
        for position, (earlier, tolerated) in enumerate(pairs):
            drop = np.round(scores[number] - scores[earlier or 0], DECIMALS)
            pair = _Pair(drop, tolerated, alpha / len(pairs))
            if position == 0:
                held = pair.held
            kind = "fixed" if earlier is None else "moved"
            evidence = pair.e_value()
            share = checkpoint_share(number)
            wealth[kind] += 2 * share * reference_share(number, earlier) * evidence
            products[kind] += log(evidence)
            if position == 0 and held:
                continue
            regressed = {
                "single gates": pair.is_below(alpha / len(pairs), strict=False),
                "strict gates": pair.is_below(alpha / len(pairs)),
                "series": pair.is_below(alpha * share * reference_share(number, earlier)),
                "inverse squares": pair.is_below(
                    alpha * 6 / (pi * number) ** 2 * reference_share(number, earlier)
                ),
                "one index": pair.is_below(alpha * share / len(pairs)),
            }
            for rule, is_regressed in regressed.items():
                if is_regressed:
                    stops[rule] = min(stops[rule], number)
        if any(total >= 2 / alpha for total in wealth.values()):
            stops["e-values"] = min(stops["e-values"], number)
        if any(product >= log(2 / alpha) for product in products.values()):
            stops["products"] = min(stops["products"], number)
        if max(stops.values()) <= length:
            break
        baseline = number if held else baseline
    return stops


class _Pair:
    """One comparison of a checkpoint.

    drop: (n,) paired differences. tolerance: of this reference. alpha: of the lower bound.
    """

    def __init__(self, drop: Array, tolerance: float, alpha: float) -> None:
        n = len(drop)
        self._units = n
        self._tolerance = tolerance
        self._mean = float(drop.mean())
        self._error = float(drop.std(ddof=1)) / sqrt(n)
        self._differences = Differences(drop, np.zeros(n, np.int64), np.arange(n))
        self._alpha = alpha

    @property
    def held(self) -> bool:
        """Whether a drop larger than the tolerance is excluded."""
        near = self._quantile(self._alpha) * self._error
        if self._mean - near <= -self._tolerance:
            return False  # a bound is never nearer than a normal quantile
        if self._mean - _FAR * near > -self._tolerance:
            return True
        low = mean_bounds(self._differences, self._alpha).low
        return low is not None and low > -self._tolerance

    def is_below(self, alpha: float, *, strict: bool = True) -> bool:
        """Whether the upper bound is below minus the tolerance; or 0, if the mean is below it."""
        wanted = -self._tolerance if strict else 0.0
        nearest = self._mean + self._quantile(alpha) * self._error
        if self._mean >= -self._tolerance or nearest >= wanted:
            return False
        high = mean_bounds(self._differences, alpha, exchangeable=not strict).high
        return high is not None and high < wanted

    def e_value(self) -> float:
        """Evidence against a drop of at most the tolerance, expected to be at most 1 without one.

        Of Student's p, by the mean of all calibrators k p^(k - 1): (1 - p + p ln p) / (p ln^2 p).
        Source: Vovk and Wang, E-values, 2021, equation 1.
        """
        below = (self._mean + self._tolerance) / self._error
        p = min(max(float(stdtr(self._units - 1, below)), 1e-200), 1 - 1e-9)
        return (1 - p + p * log(p)) / (p * log(p) ** 2)

    @staticmethod
    def _quantile(alpha: float) -> float:
        return -NormalDist().inv_cdf(alpha)
