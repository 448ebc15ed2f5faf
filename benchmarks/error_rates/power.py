"""Power beside a paired t test that knows the categories, and what people are told of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import sqrt

import numpy as np

from benchmarks.error_rates.report import Promises, share
from benchmarks.error_rates.verdicts import (
    LEVELS,
    Hits,
    drawn,
    failures,
    passes,
    t_statistics,
)
from benchmarks.error_rates.worlds import (
    CLIP,
    CLIP_SPREADS,
    NORMAL,
    WORLDS,
    Layout,
    World,
    at,
    categories,
    normal,
    scaled,
    student,
)
from pytest_cepbench.gate.statistics.differences import Differences
from pytest_cepbench.gate.statistics.power import (
    Design,
    chance_to_hold,
    smallest_visible,
    units_needed,
)

HEAD = (
    "2 x, 1 case", "2 x, 14 cases", "4 x, 1 case", "4 x, 14 cases", "held, 1 case",
    "held, 14 cases",
)  # fmt: skip
"""Columns of `beside_t`: each the gate's rate and that of the t test, in percent."""

LAYOUTS_HEAD = ("layout", "units", *HEAD, "at least 0.9 of t")

LEAST = 0.9
"""Share of the t test's power that the gate promises in the layouts of the embedded suites."""

_SIZES = (12, 24, 60, 192)


def power(runs: int, _: Promises) -> Iterator[list[str]]:
    """Rows of every world at every number of units."""
    for world in WORLDS:
        for units in _SIZES:
            cells = beside_t(world, units, runs)[0]
            yield [world.name, str(len(set(world.layout(units).clusters))), *cells]


def beside_t(world: World, units: int, runs: int) -> tuple[list[str], list[tuple[Hits, Hits]]]:
    """Cells of `HEAD`, and the hits of the gate and of the t test at each drop and level."""
    cells, pairs = [], []
    for times in (2, 4, 0):
        values, layout = drawn(world, units, runs, times * world.tolerance)
        student = t_statistics(values, layout)
        if times:
            ours = failures(values, layout, world.tolerance)
            theirs = student.failures(world.tolerance)
            pairs += [*zip(ours, theirs, strict=True)]
        else:
            ours = passes(values, layout, world.tolerance, shares=world.shares)
            theirs = student.passes(world.tolerance)
        cells += [f"{share(a)}/{share(b)}" for a, b in zip(ours, theirs, strict=True)]
    return cells, pairs


SUITES = (
    ("shapes, arena-instrument: one category", [24]),
    ("shapes: attributes", [24] * 3),
    ("shapes: arrangement", [24] * 4),
    ("shapes: all", [24] * 8),
    ("arena-instrument, judge: all", [24] * 10),
    ("arena: one category", [12]),
    ("arena: all", [12] * 10),
    ("tasks: one task", [16]),
    ("tasks: all", [16] * 6),
    ("drift: one category", [8]),
    ("drift: all", [8] * 8),
    ("tones: words", [16] * 3),
    ("tones: all", [16] * 5),
)
"""Layouts of the embedded suites: which cases have it, and the sizes of its categories."""


def embedded(runs: int, promises: Promises) -> Iterator[list[str]]:
    """Rows of the layouts of the embedded suites, under even and under unequal noise."""
    for name, sizes in SUITES:
        layout, units = categories(sizes), sum(sizes)
        worlds = [at(f"{name}, even", layout, scaled(normal, (0.1,)))]
        if len(sizes) > 1:
            worlds.append(at(f"{name}, unequal", layout, scaled(student, CLIP_SPREADS)))
        for world in worlds:
            cells, pairs = beside_t(world, units, runs)
            # So few units cannot fail at the share of a case of 14: their power is 0 and said so.
            able = [pair for i, pair in enumerate(pairs) if 0.5**units <= LEVELS[i % 2]]
            short = [LEAST * theirs - 1.0 * ours for ours, theirs in able]
            kept = [
                promises.keep(f"power, {world.name}", x.mean(), x.std() / sqrt(len(x)), 0.0)
                for x in short
            ]
            said = "yes" if all(kept) else "no"
            note = "" if len(able) == len(pairs) else ", but for 14 cases"
            yield [world.name, str(units), *cells, said + note]


# -- what people are told --------------------------------------------------------------------------

TOLD_HEAD = (
    "scores", "units", "cases", "visible drop found", "held", "held with as many as needed",
)  # fmt: skip

_TOLD_AT = (12, 24, 48, 96, 192)

_ONE_LOUD = at(
    "4, one 4 times louder", categories([6] * 4), scaled(normal, (0.2, 0.05, 0.05, 0.05))
)
_WITHIN = 0.05


def told(runs: int, promises: Promises) -> Iterator[list[str]]:
    """Rows of predictions beside simulations: drops found, good checkpoints held, units needed."""
    for units in _TOLD_AT:
        even = [(count, categories([units // count] * count)) for count in (1, 4, 8)]
        layouts = [(NORMAL, at, f"{count} equal") for count, at in even if units >= 3 * count]
        if units >= 24:
            layouts.append((CLIP, CLIP.layout(units), CLIP.name))
            layouts.append((_ONE_LOUD, categories([units // 4] * 4), _ONE_LOUD.name))
        for world, layout, name in layouts:
            for level in LEVELS:
                yield _told(world, layout, name, level, runs, promises)


def _told(
    world: World, layout: Layout, name: str, level: float, runs: int, promises: Promises
) -> list[str]:
    units = len(layout.clusters)

    def still(at: Layout, seed: int) -> np.ndarray:
        return world.draw(np.random.default_rng([seed, units]), runs, at, 0.0)

    values = still(layout, 1)
    error = float(np.sqrt((t_statistics(values, layout).error ** 2).mean()))
    # As people are told, of the strata that their samples show; with the spread that there is.
    seen = [
        replace(Design.of(Differences(row, *layout)), sd=error * sqrt(units)) for row in values[:80]
    ]
    visible = float(np.median([smallest_visible(design, level, 0.2 * error) for design in seen]))
    found = failures(values - visible, layout, 0.2 * error, [level])[0]
    tolerance = (3 if level == LEVELS[0] else 4) * error
    held = passes(values, layout, tolerance, [level])[0]
    expected = float(np.mean([chance_to_hold(design, level, tolerance) for design in seen]))
    needed = float(np.median([units_needed(design, tolerance, level) or 0 for design in seen]))
    sizes = np.bincount(layout.categories)
    enough = categories([max(2, round(size * needed / units)) for size in sizes])
    there = passes(still(enough, 2), enough, tolerance, [level])[0]
    cells = [name, str(units), f"1 of {round(LEVELS[0] / level)}"]
    told = (("found", found, 0.8), ("held", held, expected), ("needed", there, 0.8))
    for what, hits, rate in told:
        got = float(hits.mean())
        spread = sqrt(rate * (1 - rate) / runs)
        off = promises.keep(f"told of {what}, {name}, {units}", abs(got - rate), spread, _WITHIN)
        cells.append(f"{100 * rate:.0f}, {100 * got:.0f}" + ("" if off else " (off)"))
    return cells
