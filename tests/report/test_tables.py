"""Tables in plain text, and texts that fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.escapes import width_of
from pytest_cepbench.report.result import CaseResult
from pytest_cepbench.report.tables import (
    Span,
    fold,
    shorten,
    summary_table,
    text_of,
    wrap,
)
from tests.report.results import FULL, replace

TEXTS = st.text(st.sampled_from("ab \u6f22e\u0301/.:"), max_size=60)


def _table(results: list[CaseResult], columns: int | None = None, **how: Any) -> list[str]:
    return [text_of(line) for line in summary_table(results, columns, **how)]


def test_a_line_for_every_case_in_columns() -> None:
    """As a whole: the suite above its cases; dashes for what is not known."""
    results = [
        FULL,
        replace(FULL, verdict="held", part="a much longer category", p=0.5, low=None, high=0.0001),
        replace(
            FULL, verdict="held", baseline=0.5, difference=0.0, p=None, low=None, high=None,
            method="same model",
        ),
        replace(
            FULL, verdict="held", part="overall", label="GC_FID@2", value=123.456,
            baseline=23.456, difference=-100.0, p=4e-6, low=None, high=None, tolerance=0.1, n=200,
        ),
        replace(FULL, part="suite", value=None, baseline=None, difference=None, p=None, low=None,
                high=None, n=0),
    ]  # fmt: skip
    assert (
        "\n".join(_table(results, 88))
        == """\
verdict   case                     now baseline  change     bounds       p tolerance   n
--------- --------------------- ------ -------- ------- ---------- ------- --------- ---
toy
REGRESSED color GC@2            0.5000   0.7500 -0.2500          - 0.00042    0.0100  50
HELD      a much longer         0.5000   0.7500 -0.2500 <= +0.0001     0.5    0.0100  50
          category GC@2
HELD      color GC@2            0.5000   0.5000 +0.0000 same model       -    0.0100  50
HELD      overall GC_FID@2      123.46    23.46 -100.00          -  < 1e-5    0.1000 200
REGRESSED suite GC@2                 -        -       -          -       -    0.0100   -"""
    )
    head, row = _table([FULL], grouped=False)
    assert head.split() == ["verdict", "case", "now", "base", "change", "p", "tol.", "n"]
    assert row.startswith("REGRESSED  toy color GC@2 ")


def test_the_color_is_the_verdicts() -> None:
    """Of its word, and the change of what does not hold; green for what is accepted."""
    verdicts = {"held": "green", "improved": "green", "inconclusive": "yellow", "regressed": "red"}
    results = [replace(FULL, verdict=verdict) for verdict in verdicts]
    _, _, heading, *rows = summary_table([*results, replace(FULL, accepted=True)])
    assert heading == (Span("toy", "bold"),)
    for row, color in zip(rows, [*verdicts.values(), "green"], strict=True):
        styled = [span.text for span in row if span.style == color]
        assert styled[0] == styled[0].upper()
        assert len(styled) == (1 if color == "green" else 2)
        assert all(span.style in ("", color) for span in row)
    word = summary_table([replace(FULL, primary=False)])[-1][0]
    assert word == Span("regressed", "yellow")  # what cannot fail the run is never red


@pytest.mark.parametrize(
    ("columns", "heads"),
    [
        (120, "verdict case now baseline change bounds p tolerance n"),
        (90, "verdict case now baseline change bounds p n"),
        (80, "verdict case now change bounds p"),
        (60, "verdict case change bounds"),
        (40, "verdict case change"),
        (20, "verdict case"),
    ],
)
def test_a_narrow_table_folds_names_and_goes_without_columns(columns: int, heads: str) -> None:
    """No line is wider than the terminal; names are whole, also where they differ at the end."""
    long = "a-category-with-a-name-of-more-than-sixty-characters-from-the-model-"
    cases = [replace(FULL, suite="s", part=f"{long}{end}") for end in ("one", "two")]
    cases.append(replace(FULL, suite="s", part="\u5f62\u72b6" * 4, verdict="held"))
    table = _table(cases, columns)
    assert table[0].split() == heads.split()
    assert max(map(width_of, table)) <= columns
    words = " ".join(table).split()
    assert words.count("GC@2") == 3


# -- texts that fit --------------------------------------------------------------------------------


def test_a_long_line_goes_on_below_itself() -> None:
    """Broken between words; a path is not, and in a header it loses its middle."""
    assert wrap("cepbench: one two three", 16, indent=" " * 10) == [
        "cepbench: one",
        "          two",
        "          three",
    ]
    assert wrap("  indented as it was", 14) == ["  indented as", "    it was"]
    path = "/home/ci/builds/4711/project/checkpoints"
    assert wrap(f"store {path}", 24) == ["store", f"  {path}"]
    assert wrap(f"store {path}", 24, shortened=True) == ["store", "  /home/ci/b..heckpoints"]


@given(TEXTS, st.integers(3, 30))
def test_texts_are_wrapped_folded_and_shortened(text: str, columns: int) -> None:
    """Lines have all words, in their order; none is wider than asked for, but wrapped ones of a
    single word. A shortened text is itself where it has room; both ends are kept.
    """
    lines = wrap(text, columns)
    assert [word for line in lines for word in line.split()] == text.split()
    assert all(width_of(line) <= columns or len(line.split()) == 1 for line in lines)
    folded = fold(text, columns)
    assert "".join("".join(folded).split()) == "".join(text.split())
    assert max(map(width_of, folded)) <= columns
    shown = shorten(text, columns)
    assert width_of(shown) <= columns
    assert (shown == text) or width_of(text) > columns
    assert shorten("abcdefghij", 6) == "ab..ij"
