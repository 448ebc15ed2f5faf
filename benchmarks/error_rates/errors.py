"""False failures and false passes: of one gate, of a series, beside ties, of looking again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.error_rates.embedded import played
from benchmarks.error_rates.report import Promises, share
from benchmarks.error_rates.verdicts import (
    FAILS,
    LEVELS,
    PASSES,
    drawn,
    failures,
    looks,
    passes,
    proven,
    turned,
)
from benchmarks.error_rates.worlds import CLIFF, HARD, LOOKED, SERIES, WORLDS, World, tied

HEAD = (
    "false failures, 1 case", "14 cases", "the same, mean 0 alone, 1 case", "14 cases",
    "false passes, 1 case", "14 cases",
)  # fmt: skip

LOOKS_HEAD = (*HEAD[:2], *HEAD[4:], "samples used")

_SIZES = (12, 24, 60, 192)
_CASES = (1, 14)


def worlds(runs: int, promises: Promises) -> Iterator[list[str]]:
    """Rows of every world at every number of units."""
    for world in WORLDS:
        for units in _SIZES:
            yield row(world, units, runs, promises)
        yield row(world, 1284, max(2, runs // 4), promises)


def chains(runs: int, promises: Promises) -> Iterator[list[str]]:
    """Rows of scores of real chains, fewer of which are played for few runs."""
    for world in played(50 if runs > 100 else 10):
        for units in (24, 60, 192):
            yield row(world, units, runs, promises)


def hard(runs: int, promises: Promises) -> Iterator[list[str]]:
    """Rows of the worlds that are hard on the test and on the bounds."""
    for world in HARD:
        yield row(world, 0, runs, promises)


def row(world: World, units: int, runs: int, promises: Promises) -> list[str]:
    """Both errors of a world with so many units, after its name and their number.

    A tolerance of 0 is the hardest: nothing but the test stands between noise and a failure.
    """
    still, layout = drawn(world, units, runs, 0.0)
    there = len(set(layout.clusters))
    exchanged = still if world.symmetric else turned(still, layout)
    cells = [world.name, str(there)]
    what = f"{world.name}, {there} units"

    def add(name: str, both: np.ndarray, promised: float | None) -> None:
        for hits, cases in zip(both, _CASES, strict=True):
            cells.append(promises.percent(f"{name}, {what}, {cases} cases", hits, promised, cases))

    add("false failures", failures(exchanged, layout, 0.0), LEVELS[0])
    if world.symmetric:
        cells += ["", ""]
    else:
        add("false failures", failures(world.turned * still, layout, 0.0), None)
    lost, layout = drawn(world, units, runs, world.tolerance)
    passed = passes(lost, layout, world.tolerance, shares=world.shares)
    add("false passes", passed, LEVELS[0] if world.promised else None)
    return cells


_SERIES_LEVELS = (0.0036, 0.0006)  # the second is that of a first checkpoint


def series(runs: int, promises: Promises) -> Iterator[list[str]]:
    """How often a drop of exactly the tolerance is called proven, in parts of the level."""
    for world in SERIES:
        for units in (24, 60, 192):
            values, layout = drawn(world, units, 5 * runs, world.tolerance)
            cells = [world.name, str(units)]
            for level in _SERIES_LEVELS:
                hits = proven(values, layout, world.tolerance, level)
                rate, error = hits.mean(), np.sqrt(max(hits.mean(), 1 / len(hits)) / len(hits))
                what = f"proven falsely, {world.name}, {units} units, level {level}"
                promises.keep(what, rate, error, level)
                cells.append(f"{rate / level:.2f}±{error / level:.2f}")
            yield cells


def cliff(runs: int, _: Promises) -> Iterator[list[str]]:
    """Rows of shares of ties: equal checkpoints held, and false passes, in percent."""
    for percent in (70, 74, 76, 80):
        cells = [f"{percent} %"]
        for values in dict(CLIFF).values():
            world = tied(values, percent / 100)
            for units in (60, 192):
                for drift in (0.0, world.tolerance):
                    own, layout = drawn(world, units, runs, drift)
                    cells.append(share(passes(own, layout, world.tolerance, LEVELS[:1])[0]))
        yield cells


def looks_of(runs: int, promises: Promises) -> Iterator[list[str]]:
    """Rows of both errors of looks at 32 to 192 samples, and what equal ones take."""
    for world in LOOKED:
        rates, needed = [], ""
        for drift, wanted in ((0.0, FAILS), (world.tolerance, PASSES)):
            many = runs // 4 if world is LOOKED[-1] else runs  # Gaffke's bounds take longer
            values, layout = drawn(world, 192, max(2, many), drift)
            for level, cases in zip(LEVELS, (1, 14), strict=True):
                verdicts, used = looks(values, layout, world.tolerance, level)
                hits = np.array([verdict in wanted for verdict in verdicts])
                what = f"looks, {world.name}, {cases} cases, drift {drift:g}"
                at_most = LEVELS[0] if world.promised or not drift else None
                rates.append(promises.percent(what, hits, at_most, cases))
                needed = needed or f"{used.mean():.0f}"
        yield [world.name, *rates, needed]
