"""Pictures as plain SVG text: few shapes, the reader's own fonts, light and dark by the system.

Coordinates are pixels, x to the right and y downwards. The same shapes are the same bytes. Texts
may come from anywhere: they are escaped, without invisible characters.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal, TypeVar

from pytest_cepbench.escapes import one_line

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


_NAMESPACE = "http://www.w3.org/2000/svg"

FONT_SIZE = 13

_CHARACTER = 7.4
"""Pixels of a character of that size, of most fonts at most; a wide one has two."""

_LONGEST_TEXT = 1000

Anchor = Literal["start", "middle", "end"]

# The classes of shapes, in the colors of the HTML report. Colors stand in rules and not in
# variables, which several programs that draw SVG do not know.
_LIGHT = {
    "page": "fill: #fff",
    "ink": "fill: #1c2024",
    "soft": "fill: #60646c",
    "grid": "stroke: #e0e1e6; stroke-width: 1",
    "zero": "stroke: #8b8d98; stroke-width: 1",
    "bar": "stroke: #3e63dd; stroke-width: 2",
    "dot": "fill: #3e63dd",
    "none": "fill: #e6e8ee",
}

_DARK = {
    "page": "fill: #111113",
    "ink": "fill: #edeef0",
    "soft": "fill: #a3a8b1",
    "grid": "stroke: #363a3f; stroke-width: 1",
    "zero": "stroke: #777b84; stroke-width: 1",
    "bar": "stroke: #9eb1ff; stroke-width: 2",
    "dot": "fill: #9eb1ff",
    "none": "fill: #2b2f36",
}


def text(
    x: float,
    y: float,
    content: str,
    kind: str = "ink",
    anchor: Anchor = "start",
    *,
    bold: bool = False,
    fill: str = "",
) -> str:
    """A line of text whose middle is at y. fill: a color of its own, in place of the kind's."""
    paint = f' fill="{fill}"' if fill else f' class="{kind}"'
    weight = ' font-weight="600"' if bold else ""
    shown = escape(one_line(content, _LONGEST_TEXT), quote=False)
    # A third of the size below the middle is where letters stand; `dominant-baseline` is not
    # known everywhere.
    place = f'x="{_number(x)}" y="{_number(y + FONT_SIZE / 3)}"'
    return f'<text {place}{paint}{weight} text-anchor="{anchor}">{shown}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    ends = zip(("x1", "y1", "x2", "y2"), (x1, y1, x2, y2), strict=True)
    places = " ".join(f'{name}="{_number(value)}"' for name, value in ends)
    return f'<line {places} class="{kind}"/>'


def circle(x: float, y: float, radius: float, kind: str) -> str:
    """A filled circle."""
    return f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}" class="{kind}"/>'


def polyline(points: Iterable[tuple[float, float]], kind: str) -> str:
    """Straight lines from point to point."""
    places = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
    return f'<polyline points="{places}" class="{kind}"/>'


def rectangle(
    x: float, y: float, width: float, height: float, kind: str = "", fill: str = ""
) -> str:
    """A filled rectangle. fill: a color of its own, in place of the kind's."""
    paint = f'fill="{fill}"' if fill else f'class="{kind}"'
    size = f'width="{_number(width)}" height="{_number(height)}"'
    return f'<rect x="{_number(x)}" y="{_number(y)}" {size} {paint}/>'


def labelled(label: str, shapes: Sequence[str]) -> str:
    """Shapes that are one thing, with a label that a pointer shows and a screen reader reads."""
    title = escape(one_line(label, _LONGEST_TEXT), quote=False)
    return f"<g><title>{title}</title>{''.join(shapes)}</g>"


def document(width: float, height: float, label: str, shapes: Sequence[str]) -> str:
    """A whole picture. label: what it shows, for those who do not see it."""
    size = f'width="{_number(width)}" height="{_number(height)}"'
    box = f'viewBox="0 0 {_number(width)} {_number(height)}"'
    rules = [_rules(_LIGHT), f"@media (prefers-color-scheme: dark) {{ {_rules(_DARK)} }}"]
    from xml.sax.saxutils import quoteattr  # slow to import, and plots in pages do without

    name = quoteattr(one_line(label, _LONGEST_TEXT))
    font = f'font-family="system-ui, sans-serif" font-size="{FONT_SIZE}"'
    lines = [
        f'<svg xmlns="{_NAMESPACE}" {size} {box} role="img" aria-label={name} {font}>',
        "<style>",
        *rules,
        "</style>",
        rectangle(0, 0, width, height, "page"),
        *shapes,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def text_width(content: str) -> float:
    """About how wide a text is, in pixels; fonts differ."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in content)
    return _CHARACTER * (len(content) + wide)


def shorten(content: str, most: float) -> str:
    """The end of a text, in at most so many pixels: checkpoints of a run differ at their end."""
    shown = one_line(content, _LONGEST_TEXT)
    if text_width(shown) <= most:
        return shown
    while shown and text_width(f"...{shown}") > most:
        shown = shown[1:]
    return f"...{shown}"


def _rules(kinds: dict[str, str]) -> str:
    return " ".join(f".{kind} {{ {rule} }}" for kind, rule in kinds.items())


def _number(value: float) -> str:
    """At most two decimals, always in the same way."""
    rounded = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if rounded == "-0" else rounded


_LEAST_EXTENT = 1e-290
"""Of a smaller one, as of numbers near 5e-324, the step between ticks would be 0."""

T = TypeVar("T", float, "npt.NDArray[np.float64]")


@dataclass(frozen=True)
class Scale:
    """An axis of a plot.

    low, high: the values at its ends.
    left, right: pixels of its ends, the low one first; of a vertical axis the lower one first.
    step: between ticks.
    """

    low: float
    high: float
    left: float
    right: float
    step: float

    @classmethod
    def over(cls, values: Sequence[float], left: float, right: float, most_ticks: int = 7) -> Scale:
        """An axis that holds all values, with round ticks."""
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
        """The pixel of a value, or of each of an array."""
        return self.left + (self.right - self.left) * (value - self.low) / (self.high - self.low)

    def show(self, tick: float, *, signed: bool = True) -> str:
        """A tick in as many decimals as the steps need."""
        decimals = max(0, -math.floor(math.log10(self.step) + 1e-9))
        if not signed:
            return f"{tick:.{decimals}f}"
        return f"{tick:+.{decimals}f}" if tick else "0"
