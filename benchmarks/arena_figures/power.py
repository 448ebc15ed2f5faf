"""Samples that a gate on win rates needs, by the tolerance and the judge's accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.arena_figures.rates import EVEN, verdict_by_bounds
from benchmarks.arena_figures.worlds import JudgeWorld
from pytest_cepbench.gate import Verdict
from pytest_cepbench.gate.statistics import samples_needed

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
            yield _needed(world, drop, runs, alpha)


def _needed(world: JudgeWorld, drop: float, runs: int, alpha: float) -> Needed:
    tolerance = drop * world.sees
    generator = np.random.default_rng([round(1000 * world.accuracy), round(1000 * drop)])
    sd = float(world.draw(generator, (1, 100_000), EVEN, equal=True).std())
    planned = samples_needed(sd, tolerance, alpha)
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
    return Needed(world.accuracy, world.sees, drop, tolerance, sizes[low], runs)
