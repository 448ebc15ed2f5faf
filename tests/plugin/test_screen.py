"""The lines below pytest's own: whatever is written, they leave it as it would be without them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from _pytest._io import TerminalWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.escapes import cut, width_of
from pytest_cepbench.plugin.terminal.live import Block
from tests.plugin.terminal import Terminal

COLUMNS, ROWS = 20, 8

Act = str | tuple[str, ...]
"""What pytest writes, or the lines that are shown from then on."""

WRITTEN = st.one_of(
    st.text("ab .", min_size=1, max_size=45),
    st.sampled_from(["\n", "\r1 of 3", "漢字漢字", "\x1b[31mred\x1b[0m", "x" * COLUMNS, "y\n\nz"]),
)

SHOWN = st.lists(st.sampled_from(["GC@1", "漢" * 15, "long " * 9]), max_size=9).map(tuple)


def _file(terminal: Terminal) -> TextIO:
    return open(os.dup(terminal.side), "w", buffering=1, encoding="utf-8")  # noqa: PTH123


def _after(acts: Sequence[Act], *, shown: bool) -> tuple[list[str], int]:
    """All that is on a terminal after the acts, and the column where pytest would go on."""
    terminal = Terminal(COLUMNS, ROWS)
    with _file(terminal) as file:
        writer = TerminalWriter(file)
        block = Block(writer, os.dup(terminal.side))
        for act in acts:
            if isinstance(act, str):
                writer.write(act)
            elif shown:
                block.show(act)
        block.close()
        writer.write("|", flush=True)
    terminal.finish()
    return terminal.everything, terminal.cursor[0]


@settings(max_examples=40, deadline=None)
@given(st.lists(WRITTEN | SHOWN, max_size=12))
def test_nothing_that_pytest_writes_is_lost_or_moved(acts: list[Act]) -> None:
    """After any writing and showing, the terminal is as if nothing had ever been shown."""
    assert _after(acts, shown=True) == _after(acts, shown=False)


def test_lines_stand_below_and_are_cut_to_the_terminal() -> None:
    """Below pytest's line, in their order, at most as many as fit, none wider than the terminal."""
    terminal = Terminal(COLUMNS, ROWS)
    with _file(terminal) as file:
        writer = TerminalWriter(file)
        writer.write("above\ntest_a.py ")
        block = Block(writer, os.dup(terminal.side))
        block.show(["one " * 9, "漢" * 15, *(f"line {k}" for k in range(9))])
        writer.write("..", flush=True)
        terminal.settle()
        assert terminal.rows == [
            "above",
            "test_a.py ..",
            ("one " * 9)[: COLUMNS - 1],
            "漢" * ((COLUMNS - 1) // 2),
            *(f"line {k}" for k in range(4)),
        ]
        assert terminal.cursor == (12, 1)
        block.close()
    terminal.finish()
    assert terminal.rows[:3] == ["above", "test_a.py ..", ""]


def test_lines_are_shown_and_taken_away_at_once() -> None:
    """They do not wait for what pytest writes next."""
    terminal = Terminal(COLUMNS, ROWS)
    with _file(terminal) as file:
        writer = TerminalWriter(file)
        writer.write("test_a.py ", flush=True)
        block = Block(writer, os.dup(terminal.side))
        for shown in (["one", "two"], ["three"], []):
            block.show(shown)
            terminal.settle()
            rows = [row.rstrip() for row in terminal.rows[: len(shown) + 2]]
            assert rows == ["test_a.py", *shown, ""]
        block.close()
    terminal.finish()


def test_width_counts_columns_of_a_terminal() -> None:
    """Wide characters take two columns, marks above letters none; a cut never exceeds its width."""
    assert width_of("a漢é") == 4
    assert cut("漢字", 3) == "漢"
    assert cut("abc", 0) == ""
