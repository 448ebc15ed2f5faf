"""The tables of the page, and what they say: who sees each damage first, and who cheapest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from statistics import fmean

from benchmarks.gated import table
from benchmarks.sensitivity_figures.figures import (
    Damaged,
    Document,
    Metric,
    Sight,
    WorldFigures,
)
from benchmarks.sensitivity_figures.lineups import CONTROL, UNCHANGED
from benchmarks.sensitivity_figures.power import Need

NONE = "-"

CONTROLS = (UNCHANGED, CONTROL)
"""Damages that are none: what alarms there is false."""

_BLIND = 0.1
"""Power at the most samples, beyond which a metric is said to see something."""


def all_tables(document: Document) -> dict[str, str]:
    """Name -> table, those of each world."""
    return {
        f"{world.name}-{name}": make(world)
        for world in document.worlds
        for name, make in _TABLES.items()
    }


def cheapest(world: WorldFigures, damage: Damaged) -> list[tuple[Metric, float, Need]]:
    """Metric, calls and samples to the target, the fewest calls first; those that reach it."""
    reaching = [
        (metric, metric.cost * sight.need.samples, sight.need)
        for metric, sight in _pairs(world, damage)
        if sight.need.bound != "over"
    ]
    return sorted(reaching, key=lambda each: each[1])


def _pairs(world: WorldFigures, damage: Damaged) -> list[tuple[Metric, Sight]]:
    sights = {sight.metric: sight for sight in damage.sights}
    return [(metric, sights[metric.key]) for metric in world.metrics if metric.key in sights]


def _seeds(seeds: Sequence[int]) -> str:
    """How many there are, and which: a lone 10 would be read as ten of them."""
    return f"{len(seeds)} (number {', '.join(map(str, seeds))})"


def _run(world: WorldFigures) -> str:
    rows = [
        ("command", f"`{world.command}`"),
        ("machine", world.machine),
        ("wall time", f"{world.seconds:.0f} s, what was in the store already not counted"),
        ("samples played", str(world.samples)),
        ("seeds without damage", _seeds(world.seeds)),
        ("seeds of each damage", _seeds(world.damaged_seeds)),
        ("draws of each size", str(world.draws)),
    ]
    return table(("", ""), rows)


def _first(world: WorldFigures) -> str:
    rows = []
    for damage in world.damages:
        if damage.name in CONTROLS:
            continue
        if damage.refused:
            text = f"none is needed: the run is an error ({_opening(damage.refused)})"
            rows.append((f"`{damage.name}`", damage.about, text, NONE, NONE))
            continue
        ordered = cheapest(world, damage)
        seeing = sorted(ordered, key=lambda each: each[2].samples)
        rows.append((
            f"`{damage.name}`",
            damage.about,
            _named(world, ordered, 1, lambda each: _calls(each[1], each[2])),
            _named(world, seeing, 2, lambda each: _need(each[2])),
            _blind(world, damage),
        ))  # fmt: skip
    head = ("damage", "what it is", "fewest calls", "fewest samples", "blind")
    return table(head, rows)


def _named(
    world: WorldFigures,
    ordered: Sequence[tuple[Metric, float, Need]],
    by: int,
    form: Callable[[tuple[Metric, float, Need]], str],
) -> str:
    """The first of an order, with all that are equal to it."""
    if not ordered:
        return "none of them"

    def amount(each: tuple[Metric, float, Need]) -> float:
        return each[1] if by == 1 else each[2].samples

    best = [each for each in ordered if amount(each) <= amount(ordered[0]) * 1.001]
    few = ", ".join(_title(world, metric) for metric, _, _ in best)
    return f"{few if len(best) <= _MOST_NAMED else f'{len(best)} metrics'} ({form(best[0])})"


_MOST_NAMED = 3


def _blind(world: WorldFigures, damage: Damaged) -> str:
    """The metrics that hardly alarm more often than without damage, at the most samples."""
    unseeing = [
        _title(world, metric)
        for metric, sight in _pairs(world, damage)
        if sight.rates[-1].rate < _BLIND
    ]
    return ", ".join(unseeing) or NONE


def _summary(world: WorldFigures) -> str:
    """Over all damages that leave something to measure: what each metric sees, and its price."""
    damages = [d for d in world.damages if d.sights and d.name not in CONTROLS]
    least = {damage.name: _least_calls(world, damage) for damage in damages}
    rows = []
    for metric in world.metrics:
        sights = {d.name: s for d in damages for m, s in _pairs(world, d) if m.key == metric.key}
        seen = [name for name, sight in sights.items() if sight.need.bound != "over"]
        blind = [f"`{name}`" for name, sight in sights.items() if sight.rates[-1].rate < _BLIND]
        times = [
            metric.cost * sight.need.samples / least[name]
            for name, sight in sights.items()
            if least[name]
        ]
        typical = exp(fmean(map(log, times))) if times else 0.0
        sign = "" if len(seen) == len(sights) else "> "
        rows.append((
            _title(world, metric),
            f"{len(seen)} of {len(damages)}",
            f"{sign}{typical:.1f}",
            ", ".join(blind) or NONE,
        ))  # fmt: skip
    return table(("metric", "damages seen", "calls, in those of the cheapest", "blind to"), rows)


def _least_calls(world: WorldFigures, damage: Damaged) -> float:
    """The calls of the metric that needs fewest; 0 where none sees the damage."""
    return next((calls for _, calls, _ in cheapest(world, damage)), 0.0)


def _needs(world: WorldFigures) -> str:
    """Calls to the target for each damage and metric."""

    def cell(metric: Metric, sight: Sight) -> str:
        return _calls(metric.cost * sight.need.samples, sight.need)

    return _matrix(world, cell)


def _matrix(world: WorldFigures, cell: Callable[[Metric, Sight], str]) -> str:
    """A row for each metric, a column for each damage that could be measured."""
    shown = [damage for damage in world.damages if damage.sights and damage.name not in CONTROLS]
    sights: Mapping[str, Mapping[str, Sight]] = {
        damage.name: {sight.metric: sight for sight in damage.sights} for damage in shown
    }
    rows = [
        (_title(world, metric), *(cell(metric, sights[d.name][metric.key]) for d in shown))
        for metric in world.metrics
    ]
    return table(("", *(f"`{damage.name}`" for damage in shown)), rows)


def _title(world: WorldFigures, metric: Metric) -> str:
    """The label, with what tells it from others of the same label."""
    alike = [each for each in world.metrics if each.label == metric.label]
    if len(alike) == 1:
        return metric.label
    named = [each for each in alike if each.name == metric.name]
    return f"{metric.label}, `{metric.name if len(named) == 1 else metric.suite}`"


def _need(need: Need) -> str:
    return f"{_SIGNS[need.bound]}{need.samples:.0f}"


def _calls(calls: float, need: Need) -> str:
    return f"{_SIGNS[need.bound]}{calls:.0f}"


_SIGNS = {"": "", "at most": "≤ ", "over": "> "}


def _opening(message: str) -> str:
    return message.partition(":")[2].partition(".")[0].strip() or message


_TABLES: Mapping[str, Callable[[WorldFigures], str]] = {
    "run": _run,
    "summary": _summary,
    "first": _first,
    "calls": _needs,
}
