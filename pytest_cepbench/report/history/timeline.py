"""A case over the runs that judged it: where its measurement changed, and its plot as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import pairwise
from operator import attrgetter

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from pytest_cepbench.errors import HistoryError, did_you_mean
from pytest_cepbench.escapes import cut, one_line, width_of
from pytest_cepbench.gate import CaseKey, Verdict
from pytest_cepbench.report.history.file import History, HistoryCase, HistoryModel, HistoryRun
from pytest_cepbench.report.number_format import change_of, counted, number
from pytest_cepbench.report.plots import Scale, corners, figure, label, line, shape, titled

_BARS = "▁▂▃▄▅▆▇█"

_NO_VALUE, _BREAK = ".", "|"


@dataclass(frozen=True)
class Selection:
    """The part of a history that is asked for; empty texts and sequences ask for all.

    suites: their names.
    cases: patterns of SUITE/PART/METRIC, with *, ? and [...].
    models: patterns of the specs of models under test.
    last: most runs, the latest ones; None for all.
    """

    suites: Sequence[str] = ()
    cases: Sequence[str] = ()
    models: Sequence[str] = ()
    last: int | None = None


@dataclass(frozen=True)
class Timeline:
    """One case over the runs that judged it, the earliest first.

    case: SUITE/PART/METRIC.
    runs, points: the runs, and what each said of the case.
    breaks: points that were measured otherwise than those before: their values do not compare.
    series: the training whose checkpoints these are; empty for runs outside of any.
    """

    case: str
    runs: tuple[HistoryRun, ...]
    points: tuple[HistoryCase, ...]
    breaks: tuple[int, ...]
    series: str = ""

    @property
    def name(self) -> str:
        """The case, and the series that it is of."""
        return f"{self.case} in {self.series}" if self.series else self.case

    @property
    def suite(self) -> str:
        """The name of its suite."""
        return self.case.partition("/")[0]

    @property
    def latest(self) -> HistoryCase:
        """What the latest run said."""
        return self.points[-1]

    def model(self, index: int) -> HistoryModel:
        """The model under test of a point."""
        return self.runs[index].models[self.points[index].model]

    def sparkline(self, most: int = 24) -> str:
        """The latest values as bars, higher is higher; `|` at a break, `.` for none."""
        start = max(0, len(self.points) - most)
        shown = self.points[start:]
        values = [point.value for point in shown if point.value is not None]
        low, high = min(values, default=0.0), max(values, default=0.0)
        step = (high - low) / (len(_BARS) - 1)
        breaks, line = set(self.breaks), ""
        for index, point in enumerate(shown, start):
            line += _BREAK if index in breaks else ""
            if point.value is None:
                line += _NO_VALUE
            else:
                line += _BARS[round((point.value - low) / step) if step else len(_BARS) // 2]
        return line


@dataclass(slots=True)
class _Judged:
    """A timeline that grows. identity: digest of the latest that is known."""

    runs: list[HistoryRun] = field(default_factory=list)
    points: list[HistoryCase] = field(default_factory=list)
    breaks: list[int] = field(default_factory=list)
    identity: str = ""


def select_runs(history: History, selection: Selection) -> tuple[HistoryRun, ...]:
    """The runs that a selection of models and of the latest runs asks for.

    Raises HistoryError where the history is empty, or no model is like a pattern.
    """
    runs = history.runs
    if not runs:
        raise HistoryError(
            f"history {str(history.folder)!r} has no run yet: run pytest on a suite first"
        )
    if selection.models:
        specs = {model.spec for run in runs for model in run.models}
        wanted = {s for s in specs if any(fnmatchcase(s, like) for like in selection.models)}
        if not wanted:
            raise HistoryError(_nothing("model", selection.models, specs))
        runs = tuple(run for run in runs if any(model.spec in wanted for model in run.models))
    return runs if selection.last is None else runs[-selection.last :]


def timelines_of(runs: Iterable[HistoryRun], selection: Selection) -> list[Timeline]:
    """Every case that is asked for over some runs, in the order in which runs judged them first.

    The checkpoints of each series, which share its error, are a timeline of their own.
    Raises HistoryError where no case is asked for.
    """
    judged: dict[tuple[str, str], _Judged] = {}
    # Run by run, as the cases lie in memory: case by case would take several times as long.
    for run in runs:
        for case in run.cases:
            known = judged.get((case.case, run.series))
            if known is None:
                known = judged[case.case, run.series] = _Judged()
            if case.identity != known.identity and case.identity:
                if known.identity:
                    known.breaks.append(len(known.points))
                known.identity = case.identity
            known.runs.append(run)
            known.points.append(case)
    names = {name for name, _ in judged}
    suites = {name.partition("/")[0] for name in names}
    for suite in selection.suites:
        if suite not in suites:
            raise HistoryError(_nothing("suite", [suite], suites))
    timelines = [
        Timeline(name, tuple(known.runs), tuple(known.points), tuple(known.breaks), series)
        for (name, series), known in judged.items()
        if not selection.suites or name.partition("/")[0] in selection.suites
        if not selection.cases or any(map(CaseKey.parse(name).matches, selection.cases))
    ]
    if not timelines:
        raise HistoryError(_nothing("case", selection.cases, names))
    order = {suite: place for place, suite in enumerate(dict.fromkeys(t.suite for t in timelines))}
    return sorted(timelines, key=lambda timeline: order[timeline.suite])


def _nothing(what: str, patterns: Sequence[str], known: Iterable[str]) -> str:
    shown = ", ".join(repr(pattern) for pattern in patterns)
    return (
        f"the history has no {what} {shown}.{did_you_mean(patterns[0], known) if patterns else ''}"
    )


def break_reasons(timeline: Timeline, history: History) -> Iterator[tuple[int, str]]:
    """Each break of a case, and the fields of its identity that changed, where they are known."""
    for index in timeline.breaks:
        earlier = (timeline.points[place].identity for place in range(index - 1, -1, -1))
        before = history.identity(next(filter(None, earlier), ""))
        now = history.identity(timeline.points[index].identity)
        fields: list[str] = []
        if before is not None and now is not None:
            names = before.keys() | now.keys()
            fields = sorted(name for name in names if before.get(name) != now.get(name))
        yield index, ", ".join(fields) or "identity"


# -- a case over its runs as SVG: values with bounds, the accepted baseline in steps, breaks -------
# Up to a few hundred runs each has a mark, whose shape and color say its verdict. More of them are
# drawn in columns: the range of their values, their mean, and a tick where any regressed. The
# shapes have classes, which the style of the page colors.


FloatArray = npt.NDArray[np.float64]

WIDTH, HEIGHT = 960.0, 240.0
"""Of a plot, in pixels; a page may show it smaller."""

MOST_MARKS = 240
"""Runs that have a mark each; more are drawn in columns."""

_COLUMNS = 320

_LEFT, _RIGHT, _TOP, _FOOT = 64.0, WIDTH - 12, 26.0, HEIGHT - 50

_RADIUS = 4.0

_LARGEST = 1e12  # of a value that is drawn: a damaged file may hold any

_MOST_LABELS = 8

_LABEL = 180.0  # pixels of the longest label of a break

_MOST_NAMES = 14  # checkpoints that are named below the plot

_CHARACTER = 6.8  # pixels of a character of most fonts at most

_SHAPES = {"held": "circle", "improved": "up", "regressed": "down", "inconclusive": "ring"}

_CORNERS: dict[str, list[tuple[float, float]]] = {
    "up": [(-4, 4), (0, -4), (4, 4), (-4, 4)],
    "down": [(-4, -4), (0, 4), (4, -4), (-4, -4)],
    "diamond": [(0, -5), (5, 0), (0, 5), (-5, 0), (0, -5)],
    "cross": [(-4, -4), (4, 4), (0, 0), (-4, 4), (4, -4)],
}

_FIELDS = tuple(map(attrgetter, ("value", "baseline", "difference", "low", "high", "tolerance")))

LinkOf = Callable[[HistoryRun], str]
"""The address of a run's report; empty where there is none."""


def draw_timeline(
    timeline: Timeline, curves: Curves, reasons: Mapping[int, str], link: LinkOf
) -> Markup:
    """The plot of a case, as an element of a page.

    curves: of the case, from `curves_of`.
    reasons: each break, and what changed there.
    """
    count = len(timeline.points)
    scale = Scale.over(curves.limits(), _FOOT, _TOP, most_ticks=5)
    shapes = []
    for tick in scale.ticks:
        y = scale.place(tick)
        shapes.append(line((_LEFT, y), (_RIGHT, y), "axis"))
        shapes.append(label(_LEFT - 8, y, scale.show(tick, signed=False), anchor="end"))
    # Each run is one step, and in a series stands by the number of its checkpoint.
    numbers = np.arange(1.0, count + 1)
    if timeline.series:
        numbers = np.fromiter((run.look for run in timeline.runs), np.float64, count)
    places: FloatArray = _LEFT + (numbers - 0.5) / max(1.0, numbers.max()) * (_RIGHT - _LEFT)
    stretches = list(pairwise((0, *timeline.breaks, count)))
    for start, end in stretches:
        shapes += _reference(curves, places, scale, start, end)
    for start, end in stretches:
        if count > MOST_MARKS:
            shapes += _columns(curves, places, scale, start, end)
        else:
            known = start + np.flatnonzero(np.isfinite(curves.values[start:end]))
            if known.size > 1:
                shapes.append(_polyline("course", places[known], scale.place(curves.values[known])))
    if count > MOST_MARKS:
        shapes += _ticks(curves, places)
    else:
        shapes += _marks(timeline, curves, places, scale, link)
    shapes += _breaks(places, reasons)
    shapes += _names(timeline, places)
    title = f"{timeline.name} over {count} runs, the latest {number(timeline.latest.value)}"
    return figure("timeline", (WIDTH, HEIGHT), title, shapes, role="group")


class Curves:
    """The numbers of a case as arrays over its runs, NaN where there is none.

    values, lows, highs: on the scale of the value; an end that excludes nothing is infinite.
    baselines: those that the values were compared with.
    edges: the values beyond which a drop is not tolerated.
    regressed: whether the verdict says so.
    """

    def __init__(self, points: Sequence[HistoryCase]) -> None:
        rows = np.empty((len(_FIELDS), len(points)))
        for row, get in zip(rows, _FIELDS, strict=True):
            row[:] = np.array(list(map(get, points)), dtype=np.float64)  # None is NaN
        rows[np.abs(rows) > _LARGEST] = np.nan
        self.values, baselines, differences, low, high, tolerance = rows
        # The baseline of an incomparable point is of another measurement.
        self.baselines = np.where(np.isnan(differences), np.nan, baselines)
        self.regressed = np.array([point.verdict == "regressed" for point in points], dtype=np.bool)
        sign = np.where([point.higher_is_better for point in points], 1.0, -1.0)
        self.edges = self.baselines - sign * tolerance
        bounded = ~(np.isnan(low) & np.isnan(high))
        low[bounded & np.isnan(low)] = -np.inf
        high[bounded & np.isnan(high)] = np.inf
        ends = self.baselines + sign * low, self.baselines + sign * high
        self.lows, self.highs = np.minimum(*ends), np.maximum(*ends)

    def at(self, places: npt.NDArray[np.int64]) -> Curves:
        """Those of some points."""
        part = Curves.__new__(Curves)
        for name, array in vars(self).items():
            setattr(part, name, array[places])
        return part

    def limits(self) -> list[float]:
        """The ends of the axis: all values, and bounds as far as they leave the values visible."""
        known = _finite(self.values, self.baselines, self.edges)
        if not known.size:
            return [0.0, 1.0]
        low, high = float(known.min()), float(known.max())
        room = 2 * (high - low) or abs(high) / 100 or 0.01
        bounds = _finite(self.lows, self.highs)
        if bounds.size:
            low = max(low - room, min(low, float(bounds.min())))
            high = min(high + room, max(high, float(bounds.max())))
        return [low, high]


def curves_of(runs: Iterable[HistoryRun], timelines: Sequence[Timeline]) -> Iterator[Curves]:
    """The curves of all timelines of these runs, in their order.

    All points are read at once, run by run as they lie in memory.
    """
    codes = {(timeline.case, timeline.series): code for code, timeline in enumerate(timelines)}
    known = [
        (code, point)
        for run in runs
        for point in run.cases
        if (code := codes.get((point.case, run.series))) is not None
    ]
    together = Curves([point for _, point in known])
    code_of = np.fromiter((code for code, _ in known), np.int64, len(known))
    order = np.argsort(code_of, kind="stable")
    ends = np.cumsum([len(timeline.points) for timeline in timelines])
    return (together.at(places) for places in np.split(order, ends[:-1]))


def _finite(*arrays: FloatArray) -> FloatArray:
    together = np.concatenate(arrays)
    kept: FloatArray = together[np.isfinite(together)]
    return kept


def _reference(
    curves: Curves, places: FloatArray, scale: Scale, start: int, end: int
) -> Iterator[str]:
    """The baseline of one stretch in steps, and what is tolerated below it."""
    known = start + np.flatnonzero(np.isfinite(curves.baselines[start:end]))
    if not known.size:
        return
    half = _half(places)
    # Runs in a row with the same baseline are one step.
    adjacent = np.diff(known) == 1
    changed = ~adjacent | (np.diff(curves.baselines[known]) != 0)
    changed |= np.diff(curves.edges[known]) != 0
    firsts = known[np.concatenate(([True], changed))]
    lasts = known[np.concatenate((changed, [True]))]
    for first, last in zip(firsts, lasts, strict=True):
        left, right = places[first] - half, places[last] + half
        level, edge = (scale.place(float(a[first])) for a in (curves.baselines, curves.edges))
        top, height = min(level, edge), abs(level - edge)
        yield shape("rect", "band", x=left, y=top, width=right - left, height=height)
        yield line((left, level), (right, level), "baseline")
    for last, first in zip(lasts, firsts[1:], strict=False):
        if first == last + 1:
            x = places[first] - half
            below, above = (scale.place(float(curves.baselines[i])) for i in (last, first))
            yield line((x, below), (x, above), "baseline")


def _half(places: FloatArray) -> float:
    """Half of the room of a run."""
    between = float(np.diff(places).min()) if len(places) > 1 else _RIGHT - _LEFT
    return max(between, 1.0) / 2


def _polyline(kind: str, xs: FloatArray, ys: FloatArray) -> str:
    return shape("polyline", kind, points=corners(zip(xs.tolist(), ys.tolist(), strict=True)))


def _marks(
    timeline: Timeline, curves: Curves, places: FloatArray, scale: Scale, link: LinkOf
) -> Iterator[str]:
    for index, (run, point) in enumerate(zip(timeline.runs, timeline.points, strict=True)):
        x, value = float(places[index]), curves.values[index]
        bounds = float(curves.lows[index]), float(curves.highs[index])
        kind = "accepted" if point.accepted else kind_of(point.verdict)
        known = bool(np.isfinite(value))
        y = scale.place(float(value)) if known else _FOOT
        parts = [] if np.isnan(bounds).any() else [*_bounds(x, bounds, scale)]
        form = _SHAPES.get(kind, "diamond") if known else "cross"
        if form in ("circle", "ring"):
            parts.append(shape("circle", f"mark {kind} {form}", cx=x, cy=y, r=_RADIUS))
        else:
            ends = corners((x + dx, y + dy) for dx, dy in _CORNERS[form])
            parts.append(shape("polyline", f"mark {kind} {form}", points=ends))
        word = "accepted" if point.accepted else point.verdict
        words = (
            f"{timeline.model(index).spec}, {when(run.started)}: {word}, {number(point.value)}, "
            f"change {change_of(point)}, n = {point.n}"
        )
        yield titled(words, *parts, address=link(run))


def _bounds(x: float, bounds: tuple[float, float], scale: Scale) -> Iterator[str]:
    """A line between bounds; where one leaves the axis an arrow, with its number if it has one."""
    ends = [min(max(end, scale.low), scale.high) for end in bounds]
    yield line((x, scale.place(ends[0])), (x, scale.place(ends[1])), "bounds")
    for bound, end, out in zip(bounds, ends, (1, -1), strict=True):
        if bound != end:
            y = scale.place(end)
            tip = corners([(x - 3, y - 4 * out), (x, y), (x + 3, y - 4 * out)])
            yield shape("polyline", "beyond", points=tip)
            if np.isfinite(bound):
                yield label(x + 5, y - 4 * out, f"{bound:.3g}")


def _columns(
    curves: Curves, places: FloatArray, scale: Scale, start: int, end: int
) -> Iterator[str]:
    """A stretch of many runs: range and mean of the values in each column."""
    known = np.arange(start, end)[np.isfinite(curves.values[start:end])]
    if not known.size:
        return
    values = curves.values[known]
    starts = np.flatnonzero(np.diff(_column_of(places[known]), prepend=-1))
    sizes = np.diff(starts, append=known.size)
    xs = np.add.reduceat(places[known], starts) / sizes
    highs = scale.place(np.maximum.reduceat(values, starts))
    lows = scale.place(np.minimum.reduceat(values, starts))
    means = scale.place(np.add.reduceat(values, starts) / sizes)
    yield _polyline("range", np.concatenate((xs, xs[::-1])), np.concatenate((highs, lows[::-1])))
    yield _polyline("course", xs, means)


def _ticks(curves: Curves, places: FloatArray) -> Iterator[str]:
    """A tick at the foot for each column with a run that regressed or measured nothing."""
    for kind, which in (("regressed", curves.regressed), ("error", ~np.isfinite(curves.values))):
        columns, counts = np.unique(_column_of(places[which]), return_counts=True)
        for column, count in zip(columns.tolist(), counts.tolist(), strict=True):
            x = _LEFT + (column + 0.5) / _COLUMNS * (_RIGHT - _LEFT)
            what = "that regressed" if kind == "regressed" else "without a value"
            tick = line((x, _FOOT - 8), (x, _FOOT), f"tick {kind}")
            yield titled(f"{counted(count, 'run')} {what}", tick)


def _column_of(places: FloatArray) -> npt.NDArray[np.int64]:
    return ((places - _LEFT) / (_RIGHT - _LEFT) * _COLUMNS).astype(np.int64)


def _breaks(places: FloatArray, reasons: Mapping[int, str]) -> Iterator[str]:
    half, free = _half(places), _LEFT
    for index, changed in reasons.items():
        x = float(places[index]) - half
        parts = [line((x, _TOP - 8), (x, _FOOT), "break")]
        words = _end_of(f"{changed} changed", _LABEL)
        width = _CHARACTER * width_of(words)
        if x >= free and len(reasons) <= _MOST_LABELS:
            anchor = "start" if x + width < _RIGHT else "end"
            parts.append(label(x, _TOP - 16, words, anchor=anchor))
            free = x + width + 8
        yield titled(f"other measurements from here: {changed} changed", *parts)


def _names(timeline: Timeline, places: FloatArray) -> Iterator[str]:
    """The checkpoints below their points, on two lines in turn; some of many; and the dates."""
    last = len(places) - 1
    every = max(1, math.ceil((last + 1) / _MOST_NAMES))
    shown = range(0, last + 1, every)
    for place, index in enumerate(shown):
        run, x = timeline.runs[index], float(places[index])
        name = timeline.model(index).spec
        name = f"{run.look}: {name}" if timeline.series else name
        width = 2 * (_RIGHT - _LEFT) / max(2, len(shown))
        yield titled(
            f"{name}, {when(run.started)}",
            label(x, _FOOT + 12 + 13 * (place % 2), _end_of(name, width), anchor="middle"),
        )
    yield label(_LEFT, HEIGHT - 8, when(timeline.runs[0].started))
    if last:
        yield label(_RIGHT, HEIGHT - 8, when(timeline.runs[last].started), anchor="end")


def _end_of(text: str, most: float) -> str:
    """The end of a text, in at most so many pixels: checkpoints of a run differ at their end."""
    shown, columns = one_line(text, 1000), int(most / _CHARACTER)
    if width_of(shown) <= columns:
        return shown
    return f"...{cut(shown[::-1], max(0, columns - 3))[::-1]}"


def kind_of(verdict: str) -> str:
    """The verdict as a class of shapes and words; `error` for a word that is none."""
    return verdict if verdict in set(Verdict) else "error"


def when(seconds: float) -> str:
    """A time as date and minute, in UTC. seconds: since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
