"""Plots as SVG inside of pages: axes, changes with their bounds, curves, differences of samples.

They are made here and not by a plotting library: matplotlib would be 40 MB more to install for
every user, its SVG has fixed colors (no dark mode) and glyphs in place of text, and Vega-Lite needs
a script of 500 kB in every page and shows nothing without JavaScript. Shapes have classes, which
the stylesheet of the pages colors. Texts may come from anywhere: they are escaped, without
characters that do not show themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, TypeVar

from markupsafe import Markup

from pytest_cepbench.escapes import one_line
from pytest_cepbench.report.number_format import number
from pytest_cepbench.report.result import CurveShown

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_LONGEST_TEXT = 1000

_LEAST_EXTENT = 1e-290
"""Of a smaller one, as of numbers near 5e-324, the step between ticks would be 0."""

_DOT = 5.0  # diameter of a sample's dot

T = TypeVar("T", float, "npt.NDArray[np.float64]")

Point = tuple[float, float]

# -- shapes and axes -------------------------------------------------------------------------------


def shape(name: str, kind: str = "", content: str = "", **attributes: float | str) -> str:
    """An element of SVG.

    kind: its classes.
    content: escaped already.
    attributes: numbers are written with at most two decimals; `_` stands for `-`.
    """
    parts = [f'class="{kind}"'] if kind else []
    parts += [f'{key.replace("_", "-")}="{_shown(value)}"' for key, value in attributes.items()]
    end = f">{content}</{name}>" if content else "/>"
    return f"<{' '.join([name, *parts])}{end}"


def label(x: float, y: float, text: str, kind: str = "soft", anchor: str = "start") -> str:
    """A line of text whose middle is at y. anchor: the end of it that is at x, or `middle`."""
    # A third of the size below the middle is where letters stand.
    return shape("text", kind, _text(text), x=x, y=y + 4, text_anchor=anchor)


def line(start: Point, end: Point, kind: str) -> str:
    """A straight line."""
    return shape("line", kind, x1=start[0], y1=start[1], x2=end[0], y2=end[1])


def corners(points: Iterable[Point]) -> str:
    """The corners of a polyline or a polygon."""
    return " ".join(f"{_shown(x)},{_shown(y)}" for x, y in points)


def titled(title: str, *shapes: str, address: str = "") -> str:
    """Shapes that are one thing. title: what a pointer shows of it. address: where it leads to."""
    inside = f"<title>{_text(title)}</title>{''.join(shapes)}"
    return f'<a href="{escape(address)}">{inside}</a>' if address else f"<g>{inside}</g>"


def figure(
    kind: str, size: tuple[float, float], title: str, shapes: Iterable[str], *, role: str = "img"
) -> Markup:
    """A plot that is as wide as there is room.

    size: its units across and down.
    title: what it shows, for those who do not see it.
    role: `group` where parts of it are links.
    """
    box = f"0 0 {_shown(size[0])} {_shown(size[1])}"
    name = escape(one_line(title, _LONGEST_TEXT))
    plot = f'<svg class="{kind}" viewBox="{box}" role="{role}" aria-label="{name}">'
    return Markup(f"{plot}{''.join(shapes)}</svg>")  # noqa: S704 - its texts are escaped


def _text(text: str) -> str:
    return escape(one_line(text, _LONGEST_TEXT), quote=False)


def _shown(value: float | str) -> str:
    """At most two decimals, always in the same way."""
    if isinstance(value, str):
        return value
    rounded = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if rounded == "-0" else rounded


@dataclass(frozen=True)
class Scale:
    """An axis with round ticks.

    low, high: the values at its ends.
    left, right: places of its ends, the low one first; of a vertical axis the lower one first.
    step: between ticks.
    """

    low: float
    high: float
    left: float
    right: float
    step: float

    @classmethod
    def over(cls, values: Sequence[float], left: float, right: float, most_ticks: int = 7) -> Scale:
        """An axis that holds all values, and has room for marks at its ends."""
        low, high = min(values), max(values)
        extent = high - low or abs(high)
        extent = extent if extent > _LEAST_EXTENT else 1.0
        low, high = low - 0.04 * extent, high + 0.04 * extent
        rough = (high - low) / most_ticks
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * k for k in (1, 2, 5, 10) if power * k >= rough)
        return cls(low, high, left, right, step)

    @property
    def ticks(self) -> list[float]:
        """Multiples of the step on the axis."""
        first, last = math.ceil(self.low / self.step), math.floor(self.high / self.step)
        return [k * self.step for k in range(first, last + 1)]

    def place(self, value: T) -> T:
        """The place of a value, or of each of an array."""
        return self.left + (self.right - self.left) * (value - self.low) / (self.high - self.low)

    def show(self, tick: float, *, signed: bool = True) -> str:
        """A tick in as many decimals as the steps need."""
        decimals = max(0, -math.floor(math.log10(self.step) + 1e-9))
        if not signed:
            return f"{tick:.{decimals}f}"
        return f"{tick:+.{decimals}f}" if tick else "0"


# -- changes with their bounds, in tolerances ------------------------------------------------------


NEAREST, _FARTHEST = 2.0, 1e9
"""Tolerances that an axis of changes holds at least, and at most."""


@dataclass(frozen=True)
class Change:
    """A change of a case, in the unit of its metric; positive is better.

    low, high: its bounds; None where one excludes nothing.
    tolerance: the change that does not matter.
    kind: classes that color it.
    """

    value: float
    low: float | None
    high: float | None
    tolerance: float
    kind: str = ""

    @property
    def known(self) -> list[float]:
        """All of its numbers."""
        return [value for value in (self.low, self.value, self.high) if value is not None]

    @property
    def unit(self) -> float:
        """Its tolerance; its own largest number where nothing is tolerated."""
        if self.tolerance > 0:
            return self.tolerance
        return max(map(abs, self.known)) or 1.0


def reach_of(changes: Iterable[Change]) -> float:
    """The end of the axis that these changes share, in tolerances: it holds every bound.

    In tolerances, since metrics have no other unit in common. At most a billion: a bound beyond has
    an arrow with its number.
    """
    far = [abs(value) / change.unit for change in changes for value in change.known]
    return min(_FARTHEST, max([NEAREST, *far]))


def place_of(tolerances: float, reach: float) -> float:
    """The place of a change, in percent of the width; 50 is no change.

    Symmetric and logarithmic: x grows by log(1 + tolerances), nearly linearly up to one.
    """
    return 50 * (1 + math.copysign(math.log1p(abs(tolerances)) / math.log1p(reach), tolerances))


def change_plot(change: Change, reach: float, title: str) -> Markup:
    """A change between its bounds, over the band that is tolerated.

    reach: the end of the axis, in tolerances.
    title: what it shows, in words.
    """

    def place(value: float) -> float:
        return place_of(value / change.unit, reach)

    decades = range(1, math.floor(math.log10(reach)) + 1)
    marks = [sign * 10.0**power * change.unit for sign in (-1, 1) for power in decades]
    left, right = place(-change.tolerance), place(change.tolerance)
    band = shape("rect", "band", x=_percent(left), width=_percent(right - left), height="100%")
    bounds = None if change.low is None and change.high is None else (change.low, change.high)
    shapes = [band, *_interval(change.value, bounds, place, marks)]
    return _row_plot(change.kind, title, shapes)


def interval_plot(
    value: float, bounds: tuple[float, float] | None, scale: Scale, title: str
) -> Markup:
    """A number between its bounds on an axis of percent. title: what it shows, in words."""
    return _row_plot("rank", title, _interval(value, bounds, scale.place, scale.ticks))


def axis_plot(scale: Scale, *, signed: bool = True) -> Markup:
    """The numbers of the axis of rows of `interval_plot`."""
    texts = [
        shape(
            "text",
            "",
            scale.show(tick, signed=signed),
            x=_percent(scale.place(tick)),
            y=14,
            text_anchor="middle",
        )
        for tick in scale.ticks
    ]
    return Markup(f'<svg class="interval" aria-hidden="true">{"".join(texts)}</svg>')  # noqa: S704


def _row_plot(kind: str, title: str, shapes: Iterable[str]) -> Markup:
    """A plot in a row, as wide as there is room. Its places across are percent."""
    name = escape(one_line(title, _LONGEST_TEXT))
    plot = f'<svg class="interval {kind}" role="img" aria-label="{name}">'
    return Markup(f"{plot}{''.join(shapes)}</svg>")  # noqa: S704 - its texts are escaped


def _interval(
    value: float,
    bounds: tuple[float | None, float | None] | None,
    place: Callable[[float], float],
    marks: Iterable[float],
) -> Iterator[str]:
    """Axis, marks, bounds and point. An arrow stands for a bound that excludes nothing, with its
    number for one beyond the axis.
    """
    yield _across(0.0, 100.0, "axis")
    yield from (_upright(place(mark), "axis", "30%", "70%") for mark in marks)
    yield _upright(place(0.0), "zero", "0", "100%")
    if bounds is not None:
        ends = list(zip(bounds, (0.0, 100.0), strict=True))
        places = [edge if bound is None else place(bound) for bound, edge in ends]
        low, high = (min(100.0, max(0.0, x)) for x in places)
        yield _across(low, high, "bounds")
        for (bound, edge), x in zip(ends, places, strict=True):
            if bound is None or not 0 <= x <= 100:
                yield _arrow(bound, edge)
    yield shape("circle", cx=_percent(min(100.0, max(0.0, place(value)))), cy="50%", r=4)


def _arrow(bound: float | None, edge: float) -> str:
    """An arrow at the edge of the plot, 0 or 100, with the number of a bound beyond it."""
    inward = -1 if edge else 1
    tip = shape("path", "beyond", d=f"M{7 * inward} -5L0 0L{7 * inward} 5")
    if bound is not None:
        tip += label(0, -8, f"{bound:+.3g}", "soft", "end" if edge else "start")
    return shape("svg", "", tip, x=_percent(edge), y="50%", overflow="visible")


def _percent(value: float) -> str:
    return f"{_shown(value)}%"


def _across(left: float, right: float, kind: str) -> str:
    return shape("line", kind, x1=_percent(left), y1="50%", x2=_percent(right), y2="50%")


def _upright(x: float, kind: str, top: str, foot: str) -> str:
    return shape("line", kind, x1=_percent(x), y1=top, x2=_percent(x), y2=foot)


# -- similarity over generations -------------------------------------------------------------------


COURSE = (128, 40)
"""Width and height of the small plot of a curve, in pixels."""

CURVES = (420, 230)
"""The same of a plot of curves, in units of its own."""


def course_plot(curve: Sequence[float], *, higher_is_better: bool) -> Markup:
    """A curve in a row of a table: 0 at its foot; at its head 1, or the largest distance."""
    width, height = COURSE[0] - 8, COURSE[1] - 8
    head = 1.0 if higher_is_better else max(curve, default=1.0) or 1.0
    step = width / max(1, len(curve) - 1)
    points = [
        (4 + i * step, 4 + height * (1 - min(1.0, max(0.0, value / head))))
        for i, value in enumerate(curve)
    ]
    shapes = [
        line((4, 4 + height), (4 + width, 4 + height), "axis"),
        shape("polyline", points=corners(points)),
        *(shape("circle", cx=x, cy=y, r=2.5) for x, y in points),
    ]
    return figure("course", COURSE, f"course: {' '.join(map(number, curve))}", shapes)


def curve_plot(
    now: CurveShown,
    before: CurveShown | None,
    reference: str,
    quantity: str,
    kind: str = "",
    *,
    unit: str = "generation",
    holds: Sequence[float] = (),
) -> Markup:
    """Curves of this run and of the reference, each with the band of its confidence intervals.

    before: the reference's; None where it is not known, or of other generations.
    reference: what it is called; empty where there is none to compare with.
    quantity: what the curves are of.
    kind: class of this run's curve.
    unit: what is counted across.
    holds: further values that the axis upwards has, such as those of other plots beside it.
    """
    curves = [now] if before is None else [before, now]
    width, height = CURVES
    across = Scale.over([*map(float, now.generations)], 50, width - 14)
    up = Scale.over(
        [*holds, *(value for curve in curves for value in (*curve.low, *curve.high))],
        height - 40, 10, 4,
    )  # fmt: skip
    shapes = []
    for tick in up.ticks:
        y = up.place(tick)
        shapes.append(line((46, y), (width - 10, y), "axis"))
        shapes.append(label(40, y, up.show(tick, signed=False), anchor="end"))
    every = max(1, math.ceil(len(now.generations) / 10))
    shapes += [
        label(across.place(float(generation)), height - 26, str(generation), anchor="middle")
        for generation in now.generations[::every]
    ]
    shapes.append(label((width + 36) / 2, height - 9, unit, anchor="middle"))
    for curve in curves:
        of = "before" if curve is before else f"now {kind}"
        xs = [across.place(float(generation)) for generation in curve.generations]
        low, mean, high = (
            [(x, up.place(value)) for x, value in zip(xs, values, strict=True)]
            for values in (curve.low, curve.mean, curve.high)
        )
        shapes.append(shape("polygon", f"area {of}", points=corners([*high, *reversed(low)])))
        shapes.append(shape("polyline", f"trace {of}", points=corners(mean)))
        shapes += [shape("circle", f"mean {of}", cx=x, cy=y, r=3) for x, y in mean]
    of_run = ". Now" if reference else ""
    title = f"{quantity} by {unit}{of_run}: {' '.join(map(number, now.mean))}"
    if before is not None:
        title += f"; {reference}: {' '.join(map(number, before.mean))}"
    return figure("curves", CURVES, title, shapes)


# -- paired differences ----------------------------------------------------------------------------


STRIP = (420, 76)
"""Width and height of a plot of differences, in units of its own."""


def strip_plot(
    differences: Mapping[str, float],
    change: Change,
    links: Mapping[str, str],
    title: str,
) -> Markup:
    """The paired differences of a case, each sample a dot; dots of like differences are stacked.

    differences: by sample, in the order of the dots; at least two.
    change: their mean, and what is tolerated.
    links: addresses of the samples that are shown, whose dots are larger.
    title: what it shows, in words.
    """
    width, height = STRIP
    foot = height - 26.0
    scale = Scale.over([*differences.values(), 0.0, change.value], 14, width - 14)
    columns: dict[int, list[str]] = {}
    for sample, difference in differences.items():
        columns.setdefault(int((scale.place(difference) - 14) // _DOT), []).append(sample)
    rise = min(_DOT, (foot - 8) / max(map(len, columns.values())))
    dots = {
        sample: (14 + (column + 0.5) * _DOT, foot - _DOT / 2 - place * rise)
        for column, samples in columns.items()
        for place, sample in enumerate(samples)
    }
    left, right = (
        scale.place(min(scale.high, max(scale.low, sign * change.tolerance))) for sign in (-1, 1)
    )
    zero, mean = scale.place(0.0), scale.place(change.value)
    shapes = [
        shape("rect", "band", x=left, y=4, width=right - left, height=foot - 4),
        line((0, foot), (width, foot), "axis"),
        line((zero, 4), (zero, foot), "zero"),
        shape(
            "path",
            "dots",
            d="".join(f"M{_shown(dots[s][0])} {_shown(dots[s][1])}h0" for s in differences),
        ),
        *(
            titled(
                f"{sample}: {number(differences[sample], signed=True)}",
                shape("circle", cx=dots[sample][0], cy=dots[sample][1], r=4),
                address=address,
            )
            for sample, address in links.items()
            if sample in dots
        ),
        line((mean, 4), (mean, foot), "middle"),
        *(
            label(scale.place(tick), foot + 14, scale.show(tick), anchor="middle")
            for tick in scale.ticks
        ),
    ]
    return figure(f"strip {change.kind}", STRIP, title, shapes, role="group")


# -- facts that are read and drawn right -----------------------------------------------------------


def square_plot(shares: Sequence[tuple[float, str, str]], title: str) -> Markup:
    """A 2 x 2 table as four squares.

    shares: of each cell how dark it is, in [0.05, 0.6], its text, and its class; row by row.
    """
    shapes = [
        label(77, 8, "drawn right", anchor="middle"),
        label(137, 8, "wrong", anchor="middle"),
        label(42, 46, "read", anchor="end"),
        label(42, 60, "right", anchor="end"),
        label(42, 112, "wrong", anchor="end"),
    ]
    for place, (shade, text, kind) in enumerate(shares):
        x, y = 48 + 62 * (place % 2), 20 + 62 * (place // 2)
        shapes += [
            shape("rect", of, x=x, y=y, width=60, height=60, fill_opacity=opacity)
            for of, opacity in (("cell", 1), (kind, shade))
        ]
        shapes.append(label(x + 30, y + 31, text, "share", "middle"))
    return figure("square", (172, 148), title, shapes)
