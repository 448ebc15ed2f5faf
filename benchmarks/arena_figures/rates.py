"""Error rates of the two stopping rules, and of judging all samples once, on simulated battles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.arena_figures.figures import Cell, Figure
from benchmarks.arena_figures.worlds import Array, BattleWorld
from pytest_cepbench.gate import Verdict
from pytest_cepbench.gate.compare import verdict_of
from pytest_cepbench.gate.statistics import (
    Differences,
    Rounds,
    look_shares,
    look_sizes,
    mean_bounds,
    stops_of,
)

EVEN = 0.5

RULES = ("once", "looks", "betting", "betting, strict")
"""All samples at once; bounds at 25, 50, 100, ...; betting, whose strict rule asks for more."""


@dataclass(frozen=True)
class RateSettings:
    """How much is simulated.

    samples: of a run. runs: by betting. bounded_runs: by bounds, which take longer.
    alpha: in each direction. tolerance: of the judged win rate, less where a judge cannot show it.
    """

    samples: int = 600
    runs: int = 2000
    bounded_runs: int = 300
    alpha: float = 0.05
    tolerance: float = 0.05
    seed: int = 0


QUICK_RATES = RateSettings(samples=300, runs=400, bounded_runs=40)


def rates(world: BattleWorld, settings: RateSettings) -> Iterator[Figure]:
    """False failures of equal models, false passes at the tolerance, decisions and samples.

    Equal models are drawn with a drop and then exchanged at random. The tolerance is the drop that
    the judge shows: the setting's, or what is shown where each battle is lost.
    """
    tolerance = min(settings.tolerance, world.sees / 2)
    wins = EVEN - tolerance / world.sees
    name = [ord(letter) for letter in str(world)]
    for equal in (True, False):
        generator = np.random.default_rng([settings.seed, *name, equal])
        shape = settings.runs, settings.samples
        scores = world.draw(generator, shape, wins, equal=equal)
        for rule in RULES:
            ends = _ends(scores, tolerance, settings, rule)
            drift = 0.0 if equal else tolerance
            cell = Cell(rule, str(world), settings.samples, 1, drift, tolerance)
            proves = equal or rule == "betting, strict"
            yield cell.rate("regressed", ends.regressed, settings.alpha if proves else None)
            yield cell.rate("held", ends.held, None if equal else settings.alpha)
            yield cell.mean("samples", ends.counts.astype(np.float64))


@dataclass(frozen=True)
class _Ends:
    held: npt.NDArray[np.bool_]
    regressed: npt.NDArray[np.bool_]
    counts: npt.NDArray[np.int64]


def _ends(scores: Array, tolerance: float, settings: RateSettings, rule: str) -> _Ends:
    if rule.startswith("betting"):
        strict = rule != "betting"
        stops = stops_of(Rounds.single(scores), tolerance, settings.alpha, strict=strict)
        return _Ends(stops.held, stops.regressed, stops.counts)
    n = scores.shape[1]
    sizes = (n,) if rule == "once" else look_sizes(n)
    looks = list(zip(sizes, look_shares(len(sizes)), strict=True))
    verdicts, counts = [], []
    for run in scores[: settings.bounded_runs]:
        for size, share in looks:
            verdict = verdict_by_bounds(run[:size], tolerance, settings.alpha * share)
            if verdict is not Verdict.INCONCLUSIVE:
                break
        verdicts.append(verdict)
        counts.append(size)
    held = [verdict in (Verdict.HELD, Verdict.IMPROVED) for verdict in verdicts]
    regressed = [verdict is Verdict.REGRESSED for verdict in verdicts]
    return _Ends(np.array(held), np.array(regressed), np.array(counts))


def verdict_by_bounds(scores: Array, tolerance: float, alpha: float) -> Verdict:
    """The gate's verdict on the scores of one run's battles. scores: (n,)."""
    n = len(scores)
    differences = Differences(scores - EVEN, np.zeros(n, np.int64), np.arange(n))
    bounds = mean_bounds(differences, alpha, span=EVEN)
    return verdict_of(bounds, tolerance)
