"""Samples that a gate on win rates needs, by the tolerance and the judge's accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.arena_figures.rates import EVEN, verdict_by_bounds
from benchmarks.arena_figures.soft_worlds import SoftWorld
from benchmarks.arena_figures.worlds import BattleWorld, JudgeWorld
from pytest_cepbench.gate import Verdict
from pytest_cepbench.gate.statistics import Design, units_needed

POWER = 0.8

_STEP = 1.05  # between the numbers of samples that are tried
_WIDEST = 12  # steps to each side of what is planned


@dataclass(frozen=True)
class Needed:
    """Samples with which 80 % of runs of equal models are held.

    accuracy: of the judge. sees: share of a drop that its verdicts show. drop: of people's win
    rate, which is tolerated. tolerance: what the judge shows of it. samples: needed.
    """

    accuracy: float
    sees: float
    drop: float
    tolerance: float
    samples: int
    runs: int


def needed(
    accuracies: Sequence[float], drops: Sequence[float], runs: int, alpha: float = 0.05
) -> Iterator[Needed]:
    """By simulation through the gate's own bounds: both orders, order effect .45, ties 30 %."""
    for accuracy in accuracies:
        world = JudgeWorld(accuracy, 0.45, 0.3, "both")
        for drop in drops:
            seed = (round(1000 * accuracy), round(1000 * drop))
            tolerance = drop * world.sees
            samples = samples_to_hold(world, tolerance, runs, alpha, seed)
            yield Needed(accuracy, world.sees, drop, tolerance, samples, runs)


@dataclass(frozen=True)
class SoftNeeded:
    """Samples with which 80 % of runs of equal models are held, by verdicts and softly.

    accuracy, order_effect, confidence, design: of the judge and the battles, as of `SoftWorld`.
    drop: of people's win rate, which is tolerated.
    verdict_sees, soft_sees: share of a drop that either score shows.
    verdict_samples, soft_samples: needed.
    ratio: of soft to verdict samples, by the spread of the scores and what they show.
    calls: a battle, between equal models.
    """

    accuracy: float
    order_effect: float
    confidence: float
    design: str
    drop: float
    verdict_sees: float
    soft_sees: float
    verdict_samples: int
    soft_samples: int
    ratio: float
    calls: float


def soft_needed(
    worlds: Iterable[SoftWorld], drop: float, runs: int, alpha: float = 0.05
) -> Iterator[SoftNeeded]:
    """Of each world whose scores are soft, beside the same world by verdicts."""
    for soft in worlds:
        if soft.score != "soft":
            continue
        verdict = replace(soft, score="verdict")
        samples = [
            samples_to_hold(world, drop * world.sees, runs, alpha, (7, round(1000 * drop)))
            for world in (verdict, soft)
        ]
        ratio = (soft.spread / soft.sees / (verdict.spread / verdict.sees)) ** 2
        yield SoftNeeded(
            soft.accuracy,
            soft.order_effect,
            soft.confidence,
            soft.design,
            drop,
            verdict.sees,
            soft.sees,
            samples[0],
            samples[1],
            ratio,
            soft.calls,
        )


def samples_to_hold(
    world: BattleWorld, tolerance: float, runs: int, alpha: float, seed: Sequence[int]
) -> int:
    """Samples with which `POWER` of the runs of equal models are held."""
    generator = np.random.default_rng(seed)
    sd = float(world.draw(generator, (1, 100_000), EVEN, equal=True).std())
    planned = units_needed(Design.plain(sd, 100), tolerance, alpha)
    assert planned is not None
    # The share that is held rises with the samples, so the first of the sizes that holds enough is
    # found by halving; each size is drawn anew.
    sizes = [round(planned * _STEP**k) for k in range(-_WIDEST, _WIDEST + 1)]
    low, high = 0, len(sizes) - 1
    while low < high:
        middle = (low + high) // 2
        held = 0
        for _ in range(runs):
            scores = world.draw(generator, (1, sizes[middle]), EVEN, equal=True)[0]
            held += verdict_by_bounds(scores, tolerance, alpha) in (Verdict.HELD, Verdict.IMPROVED)
        low, high = (low, middle) if held >= POWER * runs else (middle + 1, high)
    return sizes[low]
