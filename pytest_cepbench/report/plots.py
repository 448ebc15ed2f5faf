"""The small plots of the page, as coordinates: the course of a case, and its difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cepbench.report.result import CaseResult

COURSE = (120, 32)

INTERVAL = (172, 24)
"""Width and height in pixels."""

_NEAREST, _FARTHEST = 2.0, 8.0
"""Tolerances between the middle and the edge of an interval plot."""


@dataclass(frozen=True)
class IntervalPlot:
    """A difference with its bounds; x in pixels from the left, better to the right.

    zero: no difference.
    band: left edge and width of what is tolerated.
    point: the difference; None where it lies outside.
    line: the bounds, as far as they are inside; None without bounds.
    beyond_left, beyond_right: whether anything lies outside.
    """

    zero: float
    band: tuple[float, float]
    point: float | None
    line: tuple[float, float] | None
    beyond_left: bool
    beyond_right: bool


def course_points(result: CaseResult) -> list[tuple[float, float]]:
    """The curve as points: 0 at the plot's foot; at its head 1, or the largest distance."""
    width, height = COURSE
    head = 1.0 if result.higher_is_better else max(result.curve, default=1.0) or 1.0
    step = width / max(1, len(result.curve) - 1)
    return [
        (round(i * step, 1), round(height * (1 - min(1.0, max(0.0, value / head))), 1))
        for i, value in enumerate(result.curve)
    ]


def reach_of(results: Sequence[CaseResult]) -> float:
    """The scale that cases shown together share: tolerances from the middle of a plot to its edge.

    In tolerances, since cases of different metrics have no other unit in common. At most 8: one
    case that is far off shall not make all the others a point.
    """
    far = [abs(value) / _unit(result) for result in results for value in _values(result)]
    return min(_FARTHEST, max([_NEAREST, *far]))


def interval_plot(result: CaseResult, reach: float) -> IntervalPlot | None:
    """The difference of a case on the scale of `reach_of`; None where nothing was compared.

    A case that tolerates nothing has a scale of its own, up to its largest number.
    """
    if result.difference is None:
        return None
    unit, half = _unit(result), INTERVAL[0] / 2

    def x(value: float) -> float:
        inside = min(1.0, max(-1.0, value / unit / reach))
        return round(half * (1 + inside), 1)

    edge = reach * unit
    tolerated = x(-result.tolerance), x(result.tolerance)
    low = result.difference if result.low is None else result.low
    high = result.difference if result.high is None else result.high
    bounded = result.low is not None or result.high is not None
    return IntervalPlot(
        zero=half,
        band=(tolerated[0], round(tolerated[1] - tolerated[0], 1)),
        point=x(result.difference) if abs(result.difference) <= edge else None,
        line=(x(low), x(high)) if bounded else None,
        beyond_left=min(low, result.difference) < -edge,
        beyond_right=max(high, result.difference) > edge,
    )


def _values(result: CaseResult) -> list[float]:
    return [value for value in (result.low, result.difference, result.high) if value is not None]


def _unit(result: CaseResult) -> float:
    if result.tolerance > 0:
        return result.tolerance
    return max((abs(value) for value in _values(result)), default=0.0) or 1.0
