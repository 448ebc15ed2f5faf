"""A change and its bounds as a bar of text, on an axis of tolerances.

`worse┊  0  ┊better` is the axis: a mark at each tolerance and one at no change, always in the same
columns. A case holds, or improved, by the side of a mark on which its interval begins, and a bar
answers that exactly: no end stands on a mark or beyond that does not lie there. Between the marks
the axis is linear, beyond them logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cepbench.report.number_format import ends_of
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.text_layout import Glyphs

_BEYOND = 6  # columns on the far side of each tolerance
_WITHIN = 2  # columns between a tolerance and no change
_TOLERANCE = _WITHIN + 1
_END = _TOLERANCE + _BEYOND

WIDTH = 2 * _END + 1


def axis_head(glyphs: Glyphs) -> str:
    """The axis in words."""
    mark, middle = glyphs.tolerance, "0".center(2 * _WITHIN + 1)
    return f"{'worse':>{_BEYOND}}{mark}{middle}{mark}{'better':{_BEYOND}}"


@dataclass(frozen=True)
class Axis:
    """Axis of the bars of a table.

    most: the largest change or bound that it has to hold, in tolerances.
    """

    most: float

    @classmethod
    def over(cls, results: Sequence[CaseResult]) -> Axis:
        """The axis that holds all of these cases."""
        values = (
            abs(_in_tolerances(value, result))
            for result in results
            for value in (result.difference, result.low, result.high)
            if value is not None
        )
        return cls(max(filter(math.isfinite, values), default=0.0))

    def draw(self, result: CaseResult, glyphs: Glyphs) -> str:
        """The bar of a case in `WIDTH` columns; empty where nothing was compared.

        It reaches the edge where a bound excludes nothing.
        """
        if result.difference is None:
            return ""
        point = self._column(_in_tolerances(result.difference, result))
        bounds = ends_of(result) or ()
        ends = [point, *(self._column(_in_tolerances(bound, result)) for bound in bounds)]
        covered = range(min(ends), max(ends) + 1) if bounds else ()
        marks = {-_TOLERANCE: glyphs.tolerance, 0: glyphs.zero, _TOLERANCE: glyphs.tolerance}
        row = marks | dict.fromkeys(covered, glyphs.interval)
        row |= dict.fromkeys(marks.keys() & set(covered), glyphs.crossed) | {point: glyphs.point}
        return "".join(row.get(column, " ") for column in range(-_END, _END + 1))

    def _column(self, tolerances: float) -> int:
        """Column of a value, counted from no change."""
        size = abs(tolerances)
        if size < 1e-12:
            column = 0
        elif size < 1:
            column = min(_WITHIN, 1 + int(size * _WITHIN))
        elif size == 1:
            column = _TOLERANCE
        elif size >= self.most:
            column = _END
        else:
            share = math.log(size) / math.log(self.most)
            column = _TOLERANCE + max(1, math.ceil(share * _BEYOND))
        return int(math.copysign(column, tolerances))


def _in_tolerances(value: float, result: CaseResult) -> float:
    """A change in the tolerances of its case; beyond all of them where none is tolerated."""
    if result.tolerance:
        return value / result.tolerance
    return math.copysign(math.inf, value) if value else 0.0
