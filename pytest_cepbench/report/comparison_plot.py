"""The cases of a comparison as SVG: differences with their bounds and what is tolerated.

Cases of one metric share an axis; their numbers have one unit. The shapes have classes, which the
style of the page colors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from pytest_cepbench.escapes import one_line
from pytest_cepbench.gate import Verdict
from pytest_cepbench.report import svg
from pytest_cepbench.report.number_format import bounds_of, change_of, ends_of, number
from pytest_cepbench.report.svg import Scale
from pytest_cepbench.studies.comparison import ComparedCase

_NAME, _PLOT, _SHOWN = 300.0, 480.0, 300.0  # widths of the columns

_ROW, _HEAD, _AXIS = 24.0, 26.0, 26.0

_RADIUS = 4.5

_LEFT, _RIGHT = _NAME + 12, _NAME + _PLOT

WIDTH = _RIGHT + _SHOWN
"""Of the plot, in pixels."""


def draw_differences(cases: Sequence[ComparedCase], label: str) -> str:
    """The plot of the cases that have a difference, as an element of a page; empty without any.

    label: what it shows, for those who do not see it.
    """
    compared = [case for case in cases if _difference(case) is not None]
    compared.sort(key=lambda case: case.second.label)
    shapes: list[str] = []
    y = 0.0
    for metric, group in groupby(compared, key=lambda case: case.second.label):
        rows = list(group)
        scale = Scale.over(_limits(rows), _LEFT, _RIGHT)
        shapes.append(svg.text(0, y + _HEAD / 2, metric, bold=True))
        middles = [y + _HEAD + _ROW * (place + 0.5) for place in range(len(rows))]
        shapes += [_band(case, scale, m) for case, m in zip(rows, middles, strict=True)]
        shapes += _grid(scale, y + _HEAD, y + _HEAD + _ROW * len(rows))
        for case, middle in zip(rows, middles, strict=True):
            shapes += _row(case, scale, middle)
        y += _HEAD + _ROW * len(rows) + _AXIS
    if not shapes:
        return ""
    return (
        f'<svg class="comparison" width="{WIDTH:g}" height="{y:g}" viewBox="0 0 {WIDTH:g} {y:g}" '
        f'role="img" aria-label="{escape(one_line(label, 500))}">{"".join(shapes)}</svg>'
    )


def _difference(case: ComparedCase) -> float | None:
    return None if case.judgement is None else case.judgement.difference


def _limits(cases: Sequence[ComparedCase]) -> list[float]:
    """The ends of the axis: all differences, and bounds as far as they leave those visible."""
    known = [0.0]
    bounds: list[float] = []
    for case in cases:
        known += [-case.second.tolerance, case.second.tolerance, _difference(case) or 0.0]
        if case.judgement is not None:
            bounds += [b for b in (case.judgement.low, case.judgement.high) if b is not None]
    low, high = min(known), max(known)
    room = (high - low) or 0.01
    return [
        max(low - room, min([low, *bounds])),
        min(high + room, max([high, *bounds])),
    ]


def _grid(scale: Scale, top: float, foot: float) -> Iterator[str]:
    for tick in scale.ticks:
        x = scale.place(tick)
        yield svg.line(x, top, x, foot, "zero" if tick == 0 else "grid")
        yield svg.text(x, foot + _AXIS / 2, scale.show(tick), "soft", "middle")


def _band(case: ComparedCase, scale: Scale, y: float) -> str:
    """The differences that do not matter."""
    left, right = (scale.place(sign * case.second.tolerance) for sign in (-1, 1))
    return svg.rectangle(left, y - _ROW / 2 + 2, right - left, _ROW - 4, "band")


def _row(case: ComparedCase, scale: Scale, y: float) -> Iterator[str]:
    judgement = case.judgement
    if judgement is None or judgement.difference is None:
        return
    change = number(judgement.difference, signed=True)
    parts = [
        svg.text(0, y, svg.shorten(case.second.case, _NAME)),
        svg.text(_RIGHT + 12, y, f"{change} {bounds_of(judgement)} {case.verdict}"),
    ]
    ends = ends_of(judgement)
    if ends is not None:
        left, right = (scale.place(min(max(end, scale.low), scale.high)) for end in ends)
        parts.append(svg.line(left, y, right, y, "bounds"))
    shape = " ring" if case.verdict == Verdict.INCONCLUSIVE else ""
    x = scale.place(judgement.difference)
    parts.append(svg.circle(x, y, _RADIUS, f"mark {case.verdict}{shape}"))
    yield svg.labelled(f"{case.second.case}: {case.verdict}, change {change_of(judgement)}", parts)
