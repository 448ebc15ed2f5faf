"""Pictures as plain SVG text: few shapes, the reader's own fonts, light and dark by the system.

Coordinates are pixels, x to the right and y downwards. The same shapes are the same bytes. Texts
may come from anywhere: they are escaped, without invisible characters.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

from pytest_cepbench.escapes import one_line

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
