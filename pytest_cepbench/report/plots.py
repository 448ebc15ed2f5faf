"""The plots of the page as coordinates: what its template draws as SVG, and heat maps as tables.

They are drawn by the page's own template and not by a plotting library: matplotlib would be 40 MB
more to install for every user, its SVG has fixed colors (no dark mode) and glyphs in place of text,
and Vega-Lite needs a script of 500 kB in every page and shows nothing without JavaScript.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil, copysign, floor, log1p, log10

from pytest_cepbench.gate import Verdict
from pytest_cepbench.report.number_format import ends_of
from pytest_cepbench.report.result import CaseResult, CurveShown

INTERVAL = (172, 24)
"""Width and height of an interval plot in pixels."""

CURVES = (420, 230)
"""The same of a plot of curves, in its own units: it is as wide as there is room."""

STRIP = (420, 76)
"""The same of a plot of paired differences."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 12, 38
"""Margins of a plot of curves, for the numbers at its axes."""

_NEAREST = 2.0  # tolerances that an interval plot reaches at least

_FARTHEST = 1e9
"""The largest number of tolerances that an axis shows; what is farther lies on its edge."""

_STRONGEST = 4  # shades of a heat map

_DOT = 5.0  # diameter of a sample's dot


@dataclass(frozen=True)
class Tick:
    """A mark at an axis: its place in the plot's units, and the number beside it."""

    at: float
    label: str


# -- intervals -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class IntervalPlot:
    """A difference with its bounds on a symmetric-log axis; x in pixels, better to the right.

    zero: no difference.
    band: left edge and width of what is tolerated.
    point: the difference.
    line: the bounds, to the edge where one excludes nothing; None without bounds.
    ticks: places of 10, 100, ... tolerances to either side.
    """

    zero: float
    band: tuple[float, float]
    point: float
    line: tuple[float, float] | None
    ticks: tuple[float, ...]


def reach_of(results: Sequence[CaseResult]) -> float:
    """The scale that cases shown together share: tolerances from the middle of a plot to its edge.

    In tolerances, since cases of different metrics have no other unit in common: the largest number
    of all of them, so that every point is in view, up to a billion.
    """
    far = [abs(value) / _unit(result) for result in results for value in _values(result)]
    return min(_FARTHEST, max([_NEAREST, *far]))


def interval_plot(result: CaseResult, reach: float) -> IntervalPlot | None:
    """The difference of a case on the scale of `reach_of`; None where nothing was compared.

    Up to one tolerance the axis is nearly linear, beyond it is logarithmic: x grows by
    log(1 + tolerances). A case that tolerates nothing has its own largest number as unit.
    """
    if result.difference is None:
        return None
    unit, half = _unit(result), INTERVAL[0] / 2

    def x(value: float) -> float:
        return round(half * (1 + _symmetric_log(value / unit, reach)), 1)

    tolerated = x(-result.tolerance), x(result.tolerance)
    ends = ends_of(result)
    decades = [10.0**power * unit for power in range(1, floor(log10(reach)) + 1)]
    return IntervalPlot(
        zero=half,
        band=(tolerated[0], round(tolerated[1] - tolerated[0], 1)),
        point=x(result.difference),
        line=None if ends is None else (x(ends[0]), x(ends[1])),
        ticks=tuple(x(sign * decade) for sign in (-1, 1) for decade in decades),
    )


def _symmetric_log(value: float, reach: float) -> float:
    """A number of at most `reach` to either side as a place in [-1, 1]."""
    place = copysign(log1p(abs(value)) / log1p(reach), value)
    return min(1.0, max(-1.0, place))


def _values(result: CaseResult) -> list[float]:
    return [value for value in (result.low, result.difference, result.high) if value is not None]


def _unit(result: CaseResult) -> float:
    if result.tolerance > 0:
        return result.tolerance
    return max((abs(value) for value in _values(result)), default=0.0) or 1.0


# -- similarity over generations -----------------------------------------------------------------


@dataclass(frozen=True)
class CurveLine:
    """A curve with its band.

    points: (x, y) of the means.
    band: corners of the area between the ends of their intervals.
    """

    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class CurvePlot:
    """Similarity over generations of a case: this run's, and the reference's where it is known.

    result: the case.
    now, before: the curves.
    across, up: ticks of the two axes.
    low, high: ends of the vertical axis, in the metric's unit.
    """

    result: CaseResult
    now: CurveLine
    before: CurveLine | None
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    low: float
    high: float

    @property
    def quantity(self) -> str:
        """What is drawn, in words."""
        measured = self.result.measured
        if self.result.facts is not None:
            return "F1 of facts" if self.result.facts.precision else "share of facts that are right"
        shares = measured is not None and measured.shares
        return "share that is right" if shares else "similarity to the start"


def curve_plots(results: Sequence[CaseResult]) -> list[CurvePlot]:
    """The curves of a suite: those of its cases with most samples, equal ones once.

    Cases that regressed come first, and stand for others of the same curve.
    """
    drawn = [result for result in results if result.curve_now is not None]
    most = max((result.n for result in drawn), default=0)
    ordered = sorted(
        (result for result in drawn if result.n == most),
        key=lambda result: (result.verdict != Verdict.REGRESSED, not result.primary),
    )
    plots: dict[tuple[object, ...], CurvePlot] = {}
    for result in ordered:
        now, before = result.curve_now, result.curve_reference
        assert now is not None  # as chosen
        key = (*now.generations, *now.mean, *([] if before is None else before.mean))
        plots.setdefault(key, _curve_plot(result, now, before))
    return list(plots.values())


def _curve_plot(result: CaseResult, now: CurveShown, before: CurveShown | None) -> CurvePlot:
    curves = [now] if before is None else [now, before]
    ends = [value for curve in curves for value in (*curve.low, *curve.high)]
    step = _nice_step(max(ends) - min(ends))
    low, high = floor(min(ends) / step) * step, ceil(max(ends) / step) * step
    if high <= low:
        low, high = low - step, high + step
    first, last = now.generations[0], now.generations[-1]
    width, height = CURVES

    def x(generation: float) -> float:
        return round(_LEFT + (width - _LEFT - _RIGHT) * (generation - first) / (last - first), 1)

    def y(value: float) -> float:
        return round(_TOP + (height - _TOP - _BOTTOM) * (high - value) / (high - low), 1)

    def line(curve: CurveShown) -> CurveLine:
        upper = [(x(g), y(value)) for g, value in zip(curve.generations, curve.high, strict=True)]
        lower = [(x(g), y(value)) for g, value in zip(curve.generations, curve.low, strict=True)]
        return CurveLine(
            tuple((x(g), y(value)) for g, value in zip(curve.generations, curve.mean, strict=True)),
            (*upper, *reversed(lower)),
        )

    every = max(1, ceil(len(now.generations) / 10))
    decimals = max(0, -floor(log10(step)))
    count = round((high - low) / step)
    return CurvePlot(
        result=result,
        now=line(now),
        before=None if before is None or before.generations != now.generations else line(before),
        across=tuple(Tick(x(g), str(g)) for g in now.generations[::every]),
        up=tuple(
            Tick(y(low + i * step), f"{low + i * step + 0.0:.{decimals}f}")
            for i in range(count + 1)
        ),
        low=low,
        high=high,
    )


def _nice_step(span: float) -> float:
    """A step of 1, 2 or 5 times a power of ten that divides a span into about four."""
    rough = max(span, 0.01) / 4
    power = 10.0 ** floor(log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough)


# -- change by category and metric ---------------------------------------------------------------


@dataclass(frozen=True)
class HeatCell:
    """A case in a heat map.

    change: in tolerances, positive is better; None where nothing was compared or tolerated.
    shade: 0 for no change to 4 for 8 tolerances and more.
    """

    result: CaseResult
    change: float | None
    shade: int


@dataclass(frozen=True)
class HeatMap:
    """Changes of a suite's cases in tolerances. rows: part -> a cell for each metric, or None."""

    metrics: tuple[str, ...]
    rows: tuple[tuple[str, tuple[HeatCell | None, ...]], ...]


def heat_map(results: Sequence[CaseResult]) -> HeatMap | None:
    """The heat map of a suite; None where fewer than two parts were compared."""
    compared = [result for result in results if result.difference is not None]
    parts = list(dict.fromkeys(result.part for result in compared))
    if len(parts) < 2:
        return None
    metrics = list(dict.fromkeys(result.label for result in compared))
    cells = {(result.part, result.label): _cell(result) for result in compared}
    rows = ((part, tuple(cells.get((part, metric)) for metric in metrics)) for part in parts)
    return HeatMap(tuple(metrics), tuple(rows))


def _cell(result: CaseResult) -> HeatCell:
    if result.difference is None or result.tolerance <= 0:
        return HeatCell(result, None, 0)
    change = result.difference / result.tolerance
    shade = ceil(min(1.0, log1p(abs(change)) / log1p(8.0)) * _STRONGEST)
    return HeatCell(result, change, shade)


# -- paired differences --------------------------------------------------------------------------


@dataclass(frozen=True)
class StripDot:
    """A sample in a strip: its place, and whether its chain is shown and can be linked."""

    sample: str
    difference: float
    x: float
    y: float
    linked: bool


@dataclass(frozen=True)
class StripPlot:
    """The paired differences of a case, each sample a dot; dots of like differences are stacked.

    dots: of all samples, by their difference, in the order of `sample_values`.
    zero: x of no difference.
    band: left edge and width of what is tolerated.
    mean: x of the mean difference.
    ticks: of the axis.
    worse, same, better: how many samples there are of each.
    """

    dots: tuple[StripDot, ...]
    zero: float
    band: tuple[float, float]
    mean: float
    ticks: tuple[Tick, ...]
    worse: int
    same: int
    better: int


def strip_plot(result: CaseResult, linked: Collection[str] = ()) -> StripPlot | None:
    """The distribution of a case's paired differences; None for fewer than two.

    linked: ids of the samples that have a place of their own on the page.
    """
    differences = result.differences
    if len(differences) < 2 or result.difference is None:
        return None
    values = list(differences.values())
    step = _nice_step(max(*values, 0.0) - min(*values, 0.0))
    low = floor(min(*values, 0.0) / step) * step
    high = ceil(max(*values, 0.0) / step) * step
    if high <= low:
        low, high = low - step, high + step
    width, height = STRIP
    room = width - 2 * _RIGHT

    def x(value: float) -> float:
        place = (min(high, max(low, value)) - low) / (high - low)
        return round(_RIGHT + room * place, 1)

    columns: dict[int, list[str]] = {}
    for sample in sorted(differences, key=lambda name: (differences[name], name)):
        column = int((x(differences[sample]) - _RIGHT) // _DOT)
        columns.setdefault(column, []).append(sample)
    foot = height - 26.0
    rise = min(_DOT, (foot - 8) / max(map(len, columns.values())))
    dots = [
        StripDot(
            sample,
            differences[sample],
            round(_RIGHT + (column + 0.5) * _DOT, 1),
            round(foot - _DOT / 2 - number * rise, 1),
            sample in linked,
        )
        for column, samples in columns.items()
        for number, sample in enumerate(samples)
    ]
    tolerated = x(-result.tolerance), x(result.tolerance)
    decimals = max(0, -floor(log10(step)))
    count = round((high - low) / step)
    return StripPlot(
        dots=tuple(dots),
        zero=x(0.0),
        band=(tolerated[0], round(tolerated[1] - tolerated[0], 1)),
        mean=x(result.difference),
        ticks=tuple(
            Tick(x(value), f"{value:+.{decimals}f}" if abs(value) > step / 2 else "0")
            for value in (low + i * step for i in range(count + 1))
        ),
        worse=sum(value < 0 for value in values),
        same=sum(value == 0 for value in values),
        better=sum(value > 0 for value in values),
    )
