"""Whole trainings: how often a series of gates stops a good one, and how soon it finds a drop.

The checkpoints of a training are measured on the same samples, checkpoints near one another may err
alike, and what passes becomes the baseline. The gate's own test, bounds and shares of alpha judge
them, beside gates at the whole alpha each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np

from benchmarks.error_rates.report import Promises
from benchmarks.error_rates.worlds import SD, Array
from pytest_cepbench.gate.measurement import DECIMALS
from pytest_cepbench.gate.statistics.bounds import flip_p_value, hall_steps, mean_bounds
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.gate.statistics.error_budget import checkpoint_share, reference_share

RULES = ("single gates", "series")
"""Gates at the whole alpha each, as without a series, and the gate's series."""

HEAD = ("training", "n", *(f"stopped, {rule}" for rule in RULES))

LATE_HEAD = ("training", "n", "found", "80 % after")

LENGTH = 40
"""Checkpoints of a training."""

_ALPHA, _TOLERANCE = 0.05, 0.01
_ANCHORED = 2.0  # tolerances since the anchor
_FAR = 3.0  # normal quantiles: no bound of 60 samples or more of these worlds is farther


@dataclass(frozen=True)
class Kind:
    """A kind of training.

    name: in tables.
    quality: (LENGTH + 1,) true, in tolerances, that of the first baseline first.
    drop: the checkpoint at which it begins to be bad; None where it never is.
    alike: correlation of the errors of checkpoints next to each other.
    losses: whether few samples err much, rather than all a little.
    """

    name: str
    quality: Array
    drop: int | None = None
    alike: float = 0.0
    losses: bool = False


def _lost(times: float, since: int) -> Array:
    return np.where(np.arange(LENGTH + 1) < since, 0.0, -times)


_LEVEL = np.zeros(LENGTH + 1)
_RISING = 4 * (1 - np.exp(-np.arange(LENGTH + 1) / 10)) + np.resize((0.5, -0.5), LENGTH + 1)

GOOD = (
    Kind("no change", _LEVEL),
    Kind("no change, neighbors err alike", _LEVEL, alike=0.9),
    Kind("no change, rare losses", _LEVEL, losses=True),
    Kind("one tolerance lost at once", _lost(1, 1)),
    Kind("one tolerance lost half way, rare losses", _lost(1, 20), losses=True),
    Kind("noisy improvement", _RISING),
)
"""Trainings of which no checkpoint lost more than the tolerance since an earlier one."""

BAD = (
    Kind("drop of 2 x", _lost(2, 30), drop=30),
    Kind("drop of 4 x", _lost(4, 30), drop=30),
    Kind("drop of 2 x, neighbors err alike", _lost(2, 30), drop=30, alike=0.9),
    Kind("decline of 0.5 x a checkpoint", -0.5 * np.clip(np.arange(LENGTH + 1.0) - 20, 0, 10), 21),
)


def good(runs: int, promises: Promises) -> Iterator[list[str]]:
    """Rows of trainings that each rule stops, in percent; the series promises alpha at most."""
    for kind in GOOD:
        for n in (60, 192):
            single, series = stopping(kind, n, runs) <= LENGTH
            what = f"false stops of {kind.name}, {n} samples"
            promised = promises.percent(what, series, _ALPHA)
            yield [kind.name, str(n), promises.percent("", single), promised]


def bad(runs: int, _: Promises) -> Iterator[list[str]]:
    """Rows of trainings that the series finds, of those that were running, and after how many."""
    for kind in BAD:
        assert kind.drop is not None
        for n in (60, 192):
            own = stopping(kind, n, runs)[RULES.index("series")]
            running = np.sort(own[own >= kind.drop])
            late = running[int(np.ceil(0.8 * len(running))) - 1]
            after = str(late - kind.drop + 1) if late <= LENGTH else "-"
            yield [kind.name, str(n), f"{100 * np.mean(running <= LENGTH):.0f}", after]


def stopping(kind: Kind, n: int, runs: int) -> Array:
    """(rules, trainings) the checkpoint that each is stopped at, LENGTH + 1 where it is not."""
    generator = np.random.default_rng([20_000, n, *kind.name.encode()])
    return np.array([stops_of(scores_of(generator, kind, n)) for _ in range(runs)]).T


def scores_of(generator: np.random.Generator, kind: Kind, n: int) -> Array:
    """(checkpoints + 1, n) of one training, beside a part that all checkpoints share."""
    shape = (LENGTH + 1, n)
    errors = generator.standard_normal(shape)
    if kind.losses:
        errors = 1 - generator.standard_exponential(shape)
    for number in range(1, LENGTH + 1):
        fresh = sqrt(1 - kind.alike**2) * errors[number]
        errors[number] = kind.alike * errors[number - 1] + fresh
    quality = _TOLERANCE * kind.quality[:, None]
    return np.asarray(np.round(quality + SD / sqrt(2) * errors, DECIMALS))


def stops_of(scores: Array) -> list[int]:
    """The checkpoint at which each rule stops a training.

    What passes depends on the lower bound alone, which is the same by every rule. So all of them
    see the same baselines until they stop.
    """
    stops = dict.fromkeys(RULES, LENGTH + 1)
    baseline = 0

    def stop(rule: str, number: int, *, when: bool) -> None:
        if when:
            stops[rule] = min(stops[rule], number)

    for number in range(1, LENGTH + 1):
        reference = baseline or None
        pairs = [(reference, _TOLERANCE)]
        pairs += [] if reference is None else [(None, _ANCHORED * _TOLERANCE)]
        held = False
        for position, (earlier, tolerance) in enumerate(pairs):
            drop = np.round(scores[number] - scores[earlier or 0], DECIMALS)
            part = checkpoint_share(number) * reference_share(number, earlier)
            level = _ALPHA / len(pairs)
            if position == 0 and _holds(drop, tolerance, level):
                held = True
                continue
            stop("single gates", number, when=_fails(drop, tolerance, level))
            stop("series", number, when=_proves(drop, tolerance, _ALPHA * part))
        if max(stops.values()) <= LENGTH:
            break
        baseline = number if held else baseline
    return [stops[rule] for rule in RULES]


def _holds(drop: Array, tolerance: float, level: float) -> bool:
    """Whether a drop larger than the tolerance is excluded; without bounds where it is plain."""
    nearest = -NormalDist().inv_cdf(level) * float(drop.std(ddof=1)) / sqrt(len(drop))
    mean = float(drop.mean())
    if mean - nearest <= -tolerance or mean - _FAR * nearest > -tolerance:
        return mean - nearest > -tolerance
    low = mean_bounds(_differences(drop), level).low
    return low is not None and low > -tolerance


def _fails(drop: Array, tolerance: float, level: float) -> bool:
    if drop.mean() >= -tolerance:
        return False
    return flip_p_value(_differences(drop).parts, level) <= level


def _proves(drop: Array, tolerance: float, level: float) -> bool:
    """Whether the upper bound, which is Hall's where nothing ties, is below -tolerance."""
    if drop.mean() >= -tolerance:
        return False
    d = _differences(drop)
    return d.mean + hall_steps(d, level)[1] * d.sd / sqrt(d.units) < -tolerance


def _differences(drop: Array) -> Differences:
    return Differences(drop, np.zeros(len(drop), np.int64), np.arange(len(drop)))
