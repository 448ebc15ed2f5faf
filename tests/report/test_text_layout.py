"""Lines and words of a terminal: what has no room goes on below, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.escapes import width_of
from pytest_cepbench.report.tables import ASCII, UNICODE, fold, glyphs_for, shorten, wrap

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
