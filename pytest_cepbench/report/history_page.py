"""The page of a history: its runs with links to their reports, and a plot of each case over them.

In a plot each run has a mark, whose shape and color say its verdict. Shapes have classes, which the
style of the page colors.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby, pairwise
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.headline import in_tolerances
from pytest_cepbench.report.history import History, HistoryCase, HistoryRun, Timeline, when
from pytest_cepbench.report.number_format import change_of, counted, number
from pytest_cepbench.report.pages import render
from pytest_cepbench.report.plots import Scale, corners, figure, label, line, shape, titled

MOST_RUNS = 100
"""Runs that are listed one by one, the latest first."""

MOST_MARKS = 240
"""Runs that a plot has, the latest ones."""

_FIRST_RUNS = 10  # that the list shows before the others are asked for
_WIDTH, _HEIGHT = 960.0, 220.0  # of a plot, in pixels; a page may show it smaller
_LEFT, _RIGHT, _TOP, _FOOT = 64.0, _WIDTH - 12, 14.0, _HEIGHT - 28
_LARGEST = 1e12  # of a value that is drawn: a damaged file may hold any

_MARKS: dict[str, list[tuple[float, float]]] = {
    "improved": [(-4, 4), (0, -4), (4, 4), (-4, 4)],
    "regressed": [(-4, -4), (0, 4), (4, -4), (-4, -4)],
    "diamond": [(0, -5), (5, 0), (0, 5), (-5, 0), (0, -5)],
    "cross": [(-4, -4), (4, 4), (0, 0), (-4, 4), (4, -4)],
}
"""Corners around the point; held and inconclusive ones are circles."""


def history_page(
    history: History, runs: Sequence[HistoryRun], timelines: Sequence[Timeline], folder: Path
) -> str:
    """The page. Everything that models, files or users named is escaped, and `visible`.

    runs, timelines: those that are shown, at least one.
    folder: in which the page will lie, for the addresses of reports.
    """

    @cache
    def address(path: Path) -> str:
        page = path.with_suffix(".html")
        target = page if page.is_file() else path
        return quote(os.fsencode(os.path.relpath(target, folder)))

    def link(run: HistoryRun) -> str:
        path = history.report_of(run)
        return "" if path is None else address(path)

    shown: list[dict[str, Any]] = [
        {"timeline": each, "anchor": f"case-{place}", "plot": draw_timeline(each, link)}
        for place, each in enumerate(timelines)
    ]
    listed = [_listed(run, link(run)) for run in reversed(runs[-MOST_RUNS:])]
    return render(
        "history.html.jinja",
        title=f"cepbench: history of {counted(len(runs), 'run')}",
        suites=[(n, list(group)) for n, group in groupby(shown, lambda s: s["timeline"].suite)],
        runs=[part for part in (listed[:_FIRST_RUNS], listed[_FIRST_RUNS:]) if part],
        listed=len(listed),
        count=len(runs),
        first=when(runs[0].started),
        last=when(runs[-1].started),
        remarks=history.remarks,
        in_series=any(run.series for run in runs),
        kind_of=kind_of,
    )


def kind_of(verdict: str) -> str:
    """The verdict as a class of shapes and words; `error` for a word that is none."""
    return verdict if verdict in {*Verdict, "accepted"} else "error"


def _listed(run: HistoryRun, report: str) -> dict[str, Any]:
    """A run in the list, with the gating case that lost most: of those that regressed, if any."""
    counts = Counter(case.word for case in run.cases)
    compared = [case for case in run.cases if case.primary and case.difference is not None]
    regressed = [case for case in compared if case.verdict == "regressed"]
    worst = min(
        regressed or compared,
        key=lambda case: in_tolerances(case.difference, case.tolerance),
        default=None,
    )
    known = run.verdict in ("passed", "undecided", "failed", "incomplete")
    return {
        "run": run,
        "time": when(run.started),
        "kind": run.verdict if known else "error",
        "worst": "" if worst is None else f"{worst.case} {number(worst.difference, signed=True)}",
        "counts": ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()),
        "report": report,
    }


class _Numbers(NamedTuple):
    """The numbers of a point on the scale of its value, None for those that are not drawn.

    edge: the value beyond which a drop is not tolerated.
    low, high: the ends of the interval of the value, infinite where a bound excludes nothing.
    """

    value: float | None
    baseline: float | None = None
    edge: float | None = None
    low: float | None = None
    high: float | None = None


def _numbers(point: HistoryCase) -> _Numbers:
    def drawn(value: float | None) -> float | None:
        return None if value is None or not abs(value) <= _LARGEST else value

    # The baseline of an incomparable point is of another measurement.
    value, baseline = drawn(point.value), drawn(point.baseline)
    if baseline is None or point.difference is None:
        return _Numbers(value)
    sign = 1.0 if point.higher_is_better else -1.0
    edge = drawn(baseline - sign * point.tolerance)
    if point.low is None and point.high is None:
        return _Numbers(value, baseline, edge)
    ends = (
        baseline + sign * (beyond if (own := drawn(bound)) is None else own)
        for bound, beyond in ((point.low, -inf), (point.high, inf))
    )
    return _Numbers(value, baseline, edge, *sorted(ends))


def draw_timeline(timeline: Timeline, link: Callable[[HistoryRun], str]) -> Markup:
    """The plot of a case, as an element of a page.

    link: gives the address of a run's report; empty where there is none.
    """
    first = max(0, len(timeline.points) - MOST_MARKS)
    runs, points = timeline.runs[first:], timeline.points[first:]
    breaks = {index - first: of for index, of in timeline.breaks.items() if index > first}
    bands = [_numbers(point) for point in points]
    # The axis has all values, and bounds as far as they leave the values visible.
    shown = [n for own in bands for n in own[:3] if n is not None] or [0.0, 1.0]
    low, high = min(shown), max(shown)
    room = 2 * (high - low) or abs(high) / 100 or 0.01
    ends = [n for own in bands for n in own[3:] if n is not None and abs(n) < inf]
    limits = [max(low - room, min([low, *ends])), min(high + room, max([high, *ends]))]
    scale = Scale.over(limits, _FOOT, _TOP, most_ticks=5)
    # Each run is one step, and in a series stands by the number of its checkpoint.
    numbers = [run.look if timeline.series else i for i, run in enumerate(runs, 1)]
    step = (_RIGHT - _LEFT) / max(1, *numbers)
    places = [_LEFT + (n - 0.5) * step for n in numbers]
    half = max(1.0, min((b - a for a, b in pairwise(places)), default=_RIGHT - _LEFT)) / 2
    shapes = []
    for tick in scale.ticks:
        y = scale.place(tick)
        shapes.append(line((_LEFT, y), (_RIGHT, y), "axis"))
        shapes.append(label(_LEFT - 8, y, scale.show(tick), anchor="end"))
    for x, own in zip(places, bands, strict=True):
        if own.baseline is not None and own.edge is not None:
            level, edge = scale.place(own.baseline), scale.place(own.edge)
            top, height = min(level, edge), abs(level - edge)
            shapes.append(shape("rect", "band", x=x - half, y=top, width=2 * half, height=height))
            shapes.append(line((x - half, level), (x + half, level), "baseline"))
    for start, end in pairwise((0, *breaks, len(points))):
        known = [(places[i], bands[i].value) for i in range(start, end)]
        course = [(x, scale.place(value)) for x, value in known if value is not None]
        if len(course) > 1:
            shapes.append(shape("polyline", "course", points=corners(course)))
    for x, own, run, point in zip(places, bands, runs, points, strict=True):
        words = (
            f"{f'{run.look}: ' if timeline.series else ''}{point.model}, {when(run.started)}: "
            f"{point.word}, {number(point.value)}, change {change_of(point)}, n = {point.n}"
        )
        shapes.append(titled(words, *_marks(x, own, point, scale), address=link(run)))
    for index, changed in breaks.items():
        x = places[index] - half
        words = f"measured otherwise from here{f': {changed} changed' if changed else ''}"
        shapes.append(titled(words, line((x, 4), (x, _FOOT), "break")))
    shapes.append(label(_LEFT, _HEIGHT - 8, when(runs[0].started)))
    shapes.append(label(_RIGHT, _HEIGHT - 8, when(runs[-1].started), anchor="end"))
    title = f"{timeline.name} over {len(points)} runs, the latest {number(timeline.latest.value)}"
    return figure("timeline", (_WIDTH, _HEIGHT), title, shapes, role="group")


def _marks(x: float, own: _Numbers, point: HistoryCase, scale: Scale) -> list[str]:
    """The bounds of a point, with an arrow where one leaves the axis, and its mark."""
    shapes = []
    if own.low is not None and own.high is not None:
        ends = [min(max(end, scale.low), scale.high) for end in (own.low, own.high)]
        low, high = map(scale.place, ends)
        shapes.append(line((x, low), (x, high), "bounds"))
        for bound, end, out in zip((own.low, own.high), ends, (1, -1), strict=True):
            if bound != end:
                y = scale.place(end)
                tip = corners([(x - 3, y - 4 * out), (x, y), (x + 3, y - 4 * out)])
                shapes.append(shape("polyline", "beyond", points=tip))
    kind = kind_of(point.word)
    y = _FOOT if own.value is None else scale.place(own.value)
    if own.value is not None and kind in ("held", "inconclusive"):
        ring = " ring" if kind == "inconclusive" else ""
        return [*shapes, shape("circle", f"mark {kind}{ring}", cx=x, cy=y, r=4)]
    form = "cross" if own.value is None else kind if kind in _MARKS else "diamond"
    outline = corners((x + dx, y + dy) for dx, dy in _MARKS[form])
    return [*shapes, shape("polyline", f"mark {kind} {form}", points=outline)]
