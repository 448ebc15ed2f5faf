"""Plots as SVG inside of pages: axes, changes with their bounds, curves.

They are made here and not by a plotting library: matplotlib's SVG has fixed colors (no dark mode)
and glyphs in place of text, and Vega-Lite shows nothing without JavaScript. Shapes have classes,
which the stylesheet of the pages colors. Texts may come from anywhere: they are escaped, without
characters that do not show themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from pytest_cepbench.escapes import one_line
from pytest_cepbench.report.number_format import bounds_of, is_same, number, p_value
from pytest_cepbench.report.result import CaseResult, CurveShown

_LONGEST_TEXT = 1000

_LEAST_EXTENT = 1e-290
"""Of a smaller one, as of numbers near 5e-324, the step between ticks would be 0."""

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


def label(x: float, y: float, text: str, anchor: str = "start") -> str:
    """A line of text whose middle is at y. anchor: the end of it that is at x, or `middle`."""
    # A third of the size below the middle is where letters stand.
    return shape("text", "soft", _text(text), x=x, y=y + 4, text_anchor=anchor)


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
    kind: str, size: Point | None, title: str, shapes: Iterable[str], *, role: str = "img"
) -> Markup:
    """A plot that is as wide as there is room.

    size: its units across and down; None where places are in percent.
    title: what it shows, for those who do not see it.
    role: `group` where parts of it are links.
    """
    box = "" if size is None else f' viewBox="0 0 {_shown(size[0])} {_shown(size[1])}"'
    name = escape(one_line(title, _LONGEST_TEXT))
    plot = f'<svg class="{kind}"{box} role="{role}" aria-label="{name}">'
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

    def place(self, value: float) -> float:
        """The place of a value."""
        return self.left + (self.right - self.left) * (value - self.low) / (self.high - self.low)

    def show(self, tick: float) -> str:
        """A tick in as many decimals as the steps need."""
        return f"{tick:.{max(0, -math.floor(math.log10(self.step) + 1e-9))}f}"


# -- changes with their bounds, in tolerances ------------------------------------------------------


NEAREST, _FARTHEST = 2.0, 1e9
"""Tolerances that an axis of changes holds at least, and at most."""


def _ends(result: CaseResult) -> list[float]:
    """The change of a case with its bounds, as far as they are known; none without a change."""
    judged = result.judgement
    known = [value for value in (judged.low, judged.difference, judged.high) if value is not None]
    return [] if judged.difference is None else known


def _unit(result: CaseResult) -> float:
    """The tolerance of a case; its own largest number where nothing is tolerated."""
    return result.tolerance if result.tolerance > 0 else max(map(abs, _ends(result))) or 1.0


def reach_of(results: Iterable[CaseResult]) -> float:
    """The end of the axis that the changes of cases share, in tolerances: it holds every bound.

    In tolerances, since metrics have no other unit in common. At most a billion.
    """
    far = [abs(value) / _unit(result) for result in results for value in _ends(result)]
    return min(_FARTHEST, max([NEAREST, *far]))


def change_plot(result: CaseResult, reach: float) -> Markup | str:
    """A change between its bounds, over the band that is tolerated; as wide as there is room.

    The axis is symmetric and logarithmic, nearly linear up to one tolerance. An arrow stands for a
    bound that excludes nothing. Words where model or answers are the accepted ones; empty where
    nothing was compared.
    reach: the end of the axis, in tolerances.
    """
    judged, tolerance = result.judgement, result.tolerance
    if judged.difference is None or is_same(judged):
        return "" if judged.difference is None else judged.method

    def place(value: float) -> float:
        """In percent of the width; 50 is no change."""
        tolerances = value / _unit(result)
        far = math.copysign(math.log1p(abs(tolerances)) / math.log1p(reach), tolerances)
        return min(100.0, max(0.0, 50 * (1 + far)))

    def across(left: float, right: float, kind: str) -> str:
        return shape(
            "line", kind, x1=f"{_shown(left)}%", y1="50%", x2=f"{_shown(right)}%", y2="50%"
        )

    left, right = place(-tolerance), place(tolerance)
    band = {"x": f"{_shown(left)}%", "width": f"{_shown(right - left)}%"}
    shapes = [shape("rect", "band", height="100%", **band), across(0.0, 100.0, "axis")]
    middle = f"{_shown(place(0.0))}%"
    shapes.append(shape("line", "zero", x1=middle, y1="0", x2=middle, y2="100%"))
    if judged.low is not None or judged.high is not None:
        low = 0.0 if judged.low is None else place(judged.low)
        high = 100.0 if judged.high is None else place(judged.high)
        shapes.append(across(low, high, "bounds"))
        for bound, edge, inward in ((judged.low, "0%", 7), (judged.high, "100%", -7)):
            if bound is None:
                tip = shape("path", "beyond", d=f"M{inward} -5L0 0L{inward} 5")
                shapes.append(shape("svg", "", tip, x=edge, y="50%", overflow="visible"))
    shapes.append(shape("circle", cx=f"{_shown(place(judged.difference))}%", cy="50%", r=4))
    p = "" if judged.p is None else f"p {p_value(judged.p)}, "
    title = f"difference {number(judged.difference, signed=True)}, bounds {bounds_of(judged)}, {p}"
    kind = f"interval {result.presentation.color} {result.verdict}"
    return figure(kind, None, f"{title}tolerance {number(tolerance)}", shapes)


# -- similarity over generations -------------------------------------------------------------------


CURVES = (420, 230)
"""Width and height of a plot of curves, in units of its own."""


def curve_plot(
    now: CurveShown,
    before: CurveShown | None,
    reference: str,
    quantity: str,
    kind: str = "",
) -> Markup:
    """Curves of this run and of the reference, each with the band of its confidence intervals.

    before: the reference's; None where it is not known, or of other generations.
    reference: what it is called.
    quantity: what the curves are of.
    kind: class of this run's curve.
    """
    curves = [now] if before is None else [before, now]
    width, height = CURVES
    across = Scale.over([*map(float, now.generations)], 50, width - 14)
    up = Scale.over(
        [value for curve in curves for value in (*curve.low, *curve.high)], height - 40, 10, 4
    )
    shapes = []
    for tick in up.ticks:
        y = up.place(tick)
        shapes.append(line((46, y), (width - 10, y), "axis"))
        shapes.append(label(40, y, up.show(tick), anchor="end"))
    every = max(1, math.ceil(len(now.generations) / 10))
    shapes += [
        label(across.place(float(generation)), height - 26, str(generation), anchor="middle")
        for generation in now.generations[::every]
    ]
    shapes.append(label((width + 36) / 2, height - 9, "generation", anchor="middle"))
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
    title = f"{quantity} by generation. Now: {' '.join(map(number, now.mean))}"
    if before is not None:
        title += f"; {reference}: {' '.join(map(number, before.mean))}"
    return figure("curves", CURVES, title, shapes)
