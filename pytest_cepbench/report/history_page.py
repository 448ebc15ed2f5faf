"""The page of a history: its runs with links to their reports, and a plot of each case over them.

In a plot each run has a mark, whose shape and color say its verdict. Shapes have classes, which the
style of the page colors.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from pytest_cepbench.escapes import cut, one_line, width_of
from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.headline import in_tolerances
from pytest_cepbench.report.history import History, HistoryCase, HistoryRun, Timeline, when
from pytest_cepbench.report.number_format import change_of, counted, number
from pytest_cepbench.report.pages import render
from pytest_cepbench.report.plots import Scale, corners, figure, label, line, shape, titled

LinkOf = Callable[[HistoryRun], str]
"""The address of a run's report; empty where there is none."""

MOST_RUNS = 100
"""Runs that are listed one by one, the latest first."""

MOST_MARKS = 240
"""Runs that a plot has, the latest ones."""

_FIRST_RUNS = 10  # that the list shows before the others are asked for

_VERDICTS = ("passed", "undecided", "failed", "incomplete")

_WIDTH, _HEIGHT = 960.0, 240.0  # of a plot, in pixels; a page may show it smaller

_LEFT, _RIGHT, _TOP, _FOOT = 64.0, _WIDTH - 12, 26.0, _HEIGHT - 50

_LARGEST = 1e12  # of a value that is drawn: a damaged file may hold any

_MOST_NAMES = 14  # checkpoints that are named below the plot

_MOST_BREAKS = 8  # that are named above it

_LABEL = 180.0  # pixels of the longest label of a break

_CHARACTER = 6.8  # pixels of a character of most fonts at most

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

    shown: list[dict[str, Any]] = []
    for place, timeline in enumerate(timelines):
        reasons = dict(timeline.break_reasons(history))
        breaks = [(when(timeline.runs[index].started), words) for index, words in reasons.items()]
        shown.append(
            {
                "timeline": timeline,
                "anchor": f"case-{place}",
                "plot": draw_timeline(timeline, reasons, link),
                "breaks": breaks[::-1],
            }
        )
    listed = [_listed(run, link) for run in reversed(runs[-MOST_RUNS:])]
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


def _listed(run: HistoryRun, link: LinkOf) -> dict[str, Any]:
    """A run in the list, with the gating case that lost most: of those that regressed, if any."""
    counts = Counter(case.word for case in run.cases)
    compared = [case for case in run.cases if case.primary and case.difference is not None]
    regressed = [case for case in compared if case.verdict == "regressed"]
    worst = min(
        regressed or compared,
        key=lambda case: in_tolerances(case.difference, case.tolerance),
        default=None,
    )
    return {
        "run": run,
        "time": when(run.started),
        "kind": run.verdict if run.verdict in _VERDICTS else "error",
        "worst": "" if worst is None else f"{worst.case} {number(worst.difference, signed=True)}",
        "counts": ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()),
        "report": link(run),
    }


def draw_timeline(timeline: Timeline, reasons: Mapping[int, str], link: LinkOf) -> Markup:
    """The plot of a case, as an element of a page.

    reasons: each break, and what changed there.
    """
    first = max(0, len(timeline.points) - MOST_MARKS)
    runs, points = timeline.runs[first:], timeline.points[first:]
    breaks = {index - first: words for index, words in reasons.items() if index > first}
    bands = [_Numbers(point) for point in points]
    scale = Scale.over(_limits(bands), _FOOT, _TOP, most_ticks=5)
    # Each run is one step, and in a series stands by the number of its checkpoint.
    numbers = [run.look if timeline.series else i for i, run in enumerate(runs, 1)]
    step = (_RIGHT - _LEFT) / max(1, *numbers)
    places = [_LEFT + (n - 0.5) * step for n in numbers]
    half = max(1.0, min((b - a for a, b in pairwise(places)), default=_RIGHT - _LEFT)) / 2
    shapes = []
    for tick in scale.ticks:
        y = scale.place(tick)
        shapes.append(line((_LEFT, y), (_RIGHT, y), "axis"))
        shapes.append(label(_LEFT - 8, y, scale.show(tick, signed=False), anchor="end"))
    for x, own in zip(places, bands, strict=True):
        if own.baseline is not None and own.edge is not None:
            level, edge = scale.place(own.baseline), scale.place(own.edge)
            top, height = min(level, edge), abs(level - edge)
            shapes.append(shape("rect", "band", x=x - half, y=top, width=2 * half, height=height))
            shapes.append(line((x - half, level), (x + half, level), "baseline"))
    for start, end in pairwise((0, *breaks, len(points))):
        known = [
            (places[i], scale.place(value))
            for i in range(start, end)
            if (value := bands[i].value) is not None
        ]
        if len(known) > 1:
            shapes.append(shape("polyline", "course", points=corners(known)))
    for x, own, run, point in zip(places, bands, runs, points, strict=True):
        kind = kind_of(point.word)
        y = _FOOT if own.value is None else scale.place(own.value)
        parts = [*_bounds(x, own.ends, scale)]
        form = "cross" if own.value is None else kind if kind in _MARKS else "diamond"
        if own.value is not None and kind in ("held", "inconclusive"):
            ring = " ring" if kind == "inconclusive" else ""
            parts.append(shape("circle", f"mark {kind}{ring}", cx=x, cy=y, r=4))
        else:
            ends = corners((x + dx, y + dy) for dx, dy in _MARKS[form])
            parts.append(shape("polyline", f"mark {kind} {form}", points=ends))
        words = (
            f"{point.model}, {when(run.started)}: {point.word}, {number(point.value)}, "
            f"change {change_of(point)}, n = {point.n}"
        )
        shapes.append(titled(words, *parts, address=link(run)))
    shapes += _breaks(places, breaks, half)
    shapes += _names(timeline, runs, points, places)
    title = f"{timeline.name} over {len(points)} runs, the latest {number(timeline.latest.value)}"
    return figure("timeline", (_WIDTH, _HEIGHT), title, shapes, role="group")


class _Numbers:
    """The numbers of a point on the scale of its value, None for those that are not drawn.

    edge: the value beyond which a drop is not tolerated.
    ends: of the interval of the value, lower first; infinite where a bound excludes nothing, None
    without bounds.
    """

    def __init__(self, point: HistoryCase) -> None:
        def drawn(value: float | None) -> float | None:
            return None if value is None or not abs(value) <= _LARGEST else value

        self.value = drawn(point.value)
        # The baseline of an incomparable point is of another measurement.
        self.baseline = None if point.difference is None else drawn(point.baseline)
        self.edge: float | None = None
        self.ends: tuple[float, float] | None = None
        if self.baseline is not None:
            sign = 1.0 if point.higher_is_better else -1.0
            self.edge = drawn(self.baseline - sign * point.tolerance)
            if point.low is not None or point.high is not None:
                low = -inf if (own := drawn(point.low)) is None else own
                high = inf if (own := drawn(point.high)) is None else own
                low, high = sorted((self.baseline + sign * low, self.baseline + sign * high))
                self.ends = low, high


def _limits(bands: Sequence[_Numbers]) -> list[float]:
    """The ends of the axis: all values, and bounds as far as they leave the values visible."""
    known = [n for own in bands for n in (own.value, own.baseline, own.edge) if n is not None]
    if not known:
        return [0.0, 1.0]
    low, high = min(known), max(known)
    room = 2 * (high - low) or abs(high) / 100 or 0.01
    ends = [end for own in bands for end in own.ends or () if isfinite(end)]
    return [
        max(low - room, min([low, *ends])),
        min(high + room, max([high, *ends])),
    ]


def _bounds(x: float, bounds: tuple[float, float] | None, scale: Scale) -> Iterator[str]:
    """A line between bounds; where one leaves the axis an arrow, with its number if it has one."""
    if bounds is None:
        return
    ends = [min(max(end, scale.low), scale.high) for end in bounds]
    yield line((x, scale.place(ends[0])), (x, scale.place(ends[1])), "bounds")
    for bound, end, out in zip(bounds, ends, (1, -1), strict=True):
        if bound != end:
            y = scale.place(end)
            tip = corners([(x - 3, y - 4 * out), (x, y), (x + 3, y - 4 * out)])
            yield shape("polyline", "beyond", points=tip)
            if isfinite(bound):
                yield label(x + 5, y - 4 * out, f"{bound:.3g}")


def _breaks(places: Sequence[float], reasons: Mapping[int, str], half: float) -> Iterator[str]:
    free = _LEFT
    for index, changed in reasons.items():
        x = places[index] - half
        parts = [line((x, _TOP - 8), (x, _FOOT), "break")]
        words = _end_of(f"{changed} changed", _LABEL)
        width = _CHARACTER * width_of(words)
        if x >= free and len(reasons) <= _MOST_BREAKS:
            anchor = "start" if x + width < _RIGHT else "end"
            parts.append(label(x, _TOP - 16, words, anchor=anchor))
            free = x + width + 8
        yield titled(f"other measurements from here: {changed} changed", *parts)


def _names(
    timeline: Timeline,
    runs: Sequence[HistoryRun],
    points: Sequence[HistoryCase],
    places: Sequence[float],
) -> Iterator[str]:
    """The checkpoints below their points, on two lines in turn; some of many; and the dates."""
    last = len(places) - 1
    shown = range(0, last + 1, max(1, math.ceil((last + 1) / _MOST_NAMES)))
    for place, index in enumerate(shown):
        run, name = runs[index], points[index].model
        name = f"{run.look}: {name}" if timeline.series else name
        words = _end_of(name, 2 * (_RIGHT - _LEFT) / max(2, len(shown)))
        at = _FOOT + 12 + 13 * (place % 2)
        yield titled(
            f"{name}, {when(run.started)}", label(places[index], at, words, anchor="middle")
        )
    yield label(_LEFT, _HEIGHT - 8, when(runs[0].started))
    if last:
        yield label(_RIGHT, _HEIGHT - 8, when(runs[last].started), anchor="end")


def _end_of(text: str, most: float) -> str:
    """The end of a text, in at most so many pixels: checkpoints of a run differ at their end."""
    shown, columns = one_line(text, 1000), int(most / _CHARACTER)
    if width_of(shown) <= columns:
        return shown
    return f"...{cut(shown[::-1], max(0, columns - 3))[::-1]}"
