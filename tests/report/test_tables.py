"""Tables in plain text: bars of changes, and texts that fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.escapes import width_of
from pytest_cepbench.report.tables import (
    ASCII,
    UNICODE,
    WIDTH,
    Axis,
    axis_head,
    fold,
    glyphs_for,
    shorten,
    wrap,
)
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


TEXTS = st.text(st.sampled_from("ab \u6f22e\u0301/.:"), max_size=60)


def test_a_long_line_goes_on_below_itself() -> None:
    """Broken between words; what follows stands below the text and not below its key."""
    assert wrap("cepbench: one two three", 16, indent=" " * 10) == [
        "cepbench: one",
        "          two",
        "          three",
    ]
    assert wrap("short", 5) == ["short"]
    assert wrap("  indented as it was", 14) == ["  indented as", "    it was"]


def test_a_word_without_room_sticks_out_or_loses_its_middle() -> None:
    """A path that is to be copied is not broken; in a header its ends tell what it is."""
    path = "/home/ci/builds/4711/project/checkpoints"
    assert wrap(f"store {path}", 24) == ["store", f"  {path}"]
    assert wrap(f"store {path}", 24, ellipsis="..") == ["store", "  /home/ci/b..heckpoints"]


@given(TEXTS, st.integers(4, 30))
def test_wrapped_lines_have_all_words(text: str, columns: int) -> None:
    """In their order; no line is wider than asked for, unless a single word is."""
    lines = wrap(text, columns)
    assert [word for line in lines for word in line.split()] == text.split()
    for line in lines:
        assert width_of(line) <= columns or len(line.split()) == 1


@given(TEXTS, st.integers(2, 30))
def test_folded_names_are_whole(text: str, columns: int) -> None:
    """Every character but spaces is there, and no line is wider than asked for."""
    lines = fold(text, columns)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert max(map(width_of, lines)) <= columns


@given(TEXTS, st.integers(3, 30), st.sampled_from(["..", UNICODE.ellipsis]))
def test_a_shortened_text_keeps_both_ends(text: str, columns: int, ellipsis: str) -> None:
    """It is as wide as asked for at most, and itself where it has room."""
    shown = shorten(text, columns, ellipsis)
    assert width_of(shown) <= columns
    if width_of(text) <= columns:
        assert shown == text
    else:
        # The text may have dots of its own, beside those of the ellipsis.
        places = [i for i in range(len(shown)) if shown.startswith(ellipsis, i)]
        parts = [(shown[:place], shown[place + len(ellipsis) :]) for place in places]
        assert any(text.startswith(start) and text.endswith(end) for start, end in parts)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "no-such-encoding"])
def test_what_an_encoding_cannot_show_is_drawn_in_ascii(encoding: str) -> None:
    """A log of Windows or of LANG=C has no boxes, and pytest would print escapes of them."""
    assert glyphs_for(encoding) is ASCII
    assert all(map(str.isascii, ASCII))


def test_unicode_is_drawn_where_it_can_be() -> None:
    """Also where the encoding is not known."""
    assert glyphs_for("utf-8") is glyphs_for(None) is UNICODE
