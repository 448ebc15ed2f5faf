"""The figures of ways to look again.

Every world has 192 samples in eight categories. Without drift each sample is turned around with
probability one half; else its mean is a drop of the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.error_rates.figures import Cell, Figure
from benchmarks.error_rates.look_ways import FORMER, WAYS, Drawn, look_again_by
from benchmarks.error_rates.simulated import Settings
from benchmarks.error_rates.verdicts import FAILS, PASSES
from benchmarks.error_rates.worlds import Array

LOOKED_AGAIN = "looked again: "
"""Before the names of these worlds: their table is their own."""

MEASURED = tuple(way for way in WAYS if way is not FORMER)
"""The ways that runs offer."""

_CATEGORIES, _EACH = 8, 24
_SPREAD = 0.05
_RARE = 0.15  # of the samples lose something

_FEWER = 2  # of the runs: each looks up to fourteen times

Draw = Callable[[np.random.Generator], Array]


@dataclass(frozen=True)
class LookedWorld:
    """A law of differences.

    draw: gives them, (n,), of the mean that `drop` says, 0 if it is None.
    drop: the mean drop that is in them already; None where it is added.
    """

    name: str
    draw: Draw
    drop: float | None = None


def _even(generator: np.random.Generator) -> Array:
    return generator.normal(0, _SPREAD, _CATEGORIES * _EACH)


def _loud(generator: np.random.Generator) -> Array:
    return _even(generator) * np.tile(np.linspace(0.25, 3.0, _CATEGORIES), _EACH)


_LOSS = _RARE * 0.4  # the mean of 0.4 in what is lost


def _rare(generator: np.random.Generator) -> Array:
    """Most samples lose nothing; some lose much."""
    count = _CATEGORIES * _EACH
    lost: Array = -((generator.random(count) < _RARE) * generator.uniform(0.0, 0.8, count))
    return lost


WORLDS = (
    LookedWorld("even categories", _even),
    LookedWorld("loud categories", _loud),
    LookedWorld("rare losses", _rare, _LOSS),
)


def figures(settings: Settings, *, quick: bool) -> Iterator[Figure]:
    """Both errors of each way of looking again, promised for a case."""
    few = replace(settings, runs=max(2, settings.runs // _FEWER))
    for world in WORLDS[-1:] if quick else WORLDS:
        yield from _errors(world, few)


def _errors(world: LookedWorld, settings: Settings) -> Iterator[Figure]:
    tolerance = settings.tolerance if world.drop is None else world.drop
    for drift, what, wanted in (
        (0.0, "false failures", FAILS),
        (tolerance, "false passes", PASSES),
    ):
        names = [ord(letter) for letter in world.name]
        generator = np.random.default_rng([settings.seed, *names, round(drift * 1000)])
        hits: dict[str, list[bool]] = {}
        for _ in range(settings.runs):
            drawn = _drawn(world, generator, drift)
            for way in MEASURED:
                ended = look_again_by(way, drawn, settings.alpha, tolerance)
                hits.setdefault(way.name, []).append(ended.verdict in wanted)
        for name, own in hits.items():
            cell = Cell(name, f"{LOOKED_AGAIN}{world.name}", 192, 1, drift, tolerance)
            yield cell.rate(f"{what} of a case", np.array(own), settings.alpha)


def _drawn(world: LookedWorld, generator: np.random.Generator, drift: float) -> Drawn:
    differences = world.draw(generator)
    if not drift:
        differences = differences * np.where(generator.random(len(differences)) < 0.5, -1.0, 1.0)
    elif world.drop is None:
        differences = differences - drift
    return Drawn(np.round(differences, 6), np.tile(np.arange(_CATEGORIES), _EACH))
