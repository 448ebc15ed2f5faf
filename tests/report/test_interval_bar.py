"""Bars of changes: on which side of a tolerance an interval ends is seen, and never wrongly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.report.tables import ASCII, UNICODE, WIDTH, Axis, axis_head
from tests.report.results import FULL, replace

WORSE, NONE, BETTER = (axis_head(ASCII).index(mark) for mark in ("|", "0", "|better"))

CHANGES = st.integers(-20_000, 20_000).map(lambda hundredths: hundredths / 100)


def _bar(low: float | None, change: float | None, high: float | None, most: float = 100.0) -> str:
    result = replace(FULL, tolerance=1.0, low=low, difference=change, high=high)
    return Axis(most).draw(result, ASCII)


def _side(value: float) -> int:
    """Where a change lies: 0 below the tolerance, 1 on it, 2 within ... 6 above it."""
    return sum((value >= -1, value > -1, value >= 0, value > 0, value >= 1, value > 1))


def _side_of_column(column: int) -> int:
    return sum(
        (column >= WORSE, column > WORSE, column >= NONE, column > NONE, column >= BETTER,
         column > BETTER)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "bar"),
    [
        ((-0.9, 0.1, 0.9), "      |==+o=|      "),
        ((-1.1, -0.4, -0.1), "     =+=o. |      ".replace(". |", ".  |")),
        ((-100.0, -50.0, -2.0), "o=====|  .  |      "),
        ((1.5, 3.0, 9.0), "      |  .  |=o=   "),
        ((None, -0.7, None), "      |o .  |      "),
        ((None, -0.7, -0.1), "======+o=.  |      "),
        ((0.1, 0.7, None), "      |  .=o+======"),
        ((None, None, None), ""),
    ],
)
def test_bars(values: tuple[float | None, float | None, float | None], bar: str) -> None:
    """A point between its bounds, open ends at the edge, or alone; nothing without a comparison."""
    assert _bar(*values) == bar


def test_without_a_tolerance_any_change_is_beyond_it() -> None:
    """No change stays in the middle; a case of another unit is measured in its own tolerances."""
    cases = [replace(FULL, low=None, high=None, tolerance=0.0, difference=d) for d in (-0.1, 0.0)]
    worse, same = (Axis.over(cases).draw(case, UNICODE) for case in cases)
    assert worse == "●     ┊  ·  ┊      "
    assert same == "      ┊  ●  ┊      "


@given(CHANGES, CHANGES, CHANGES)
def test_no_end_lies_on_another_side_than_drawn(first: float, second: float, third: float) -> None:
    """The gate asks whether bounds exclude a tolerance or no change: the bar says the same."""
    low, change, high = sorted((first, second, third))
    bar = _bar(low, change, high)
    assert len(bar) == WIDTH
    drawn = [column for column, char in enumerate(bar) if char in "=o+"]
    assert _side_of_column(drawn[0]) == _side(low)
    assert _side_of_column(drawn[-1]) == _side(high)
    assert _side_of_column(bar.index("o")) == _side(change)
