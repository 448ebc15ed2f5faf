"""Lines that stand below what pytest writes on a terminal, and never in its way.

The cursor always rests where pytest left it: whatever else writes there writes as if there were no
lines. Nothing has to be known of pytest's own line; the terminal remembers its place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from threading import RLock
from typing import Any

from pytest_cepbench.escapes import cut, width_of
from pytest_cepbench.plugin.versions import writing_of

_ROOM, _UP = "\x1bD", "\x1b[{}A"  # a line down in the same column, scrolling at the end; back again
_KEEP, _RETURN = "\x1b7", "\x1b8"
_NEXT, _REST, _BELOW = "\x1b[B\r", "\x1b[K", "\x1b[J"

_INVISIBLE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\))")  # colors, titles

_OWN_ROWS = 2  # of a terminal, that the lines leave to pytest


class Block:
    """The lines below pytest's, drawn again after whatever pytest writes.

    writer: pytest's terminal writer.
    terminal: file descriptor of the terminal, closed with the block. While a test runs standard
    output is captured, so it has to be one of its own.
    """

    def __init__(self, writer: Any, terminal: int) -> None:
        writer.flush()
        self._writer = writer
        self._method = writing_of(writer)
        self._write: Any = getattr(writer, self._method)
        self._terminal: int | None = terminal
        self._lines: tuple[str, ...] = ()
        self._drawn = False
        self._column = 0  # behind what pytest wrote last
        self._follow(" " * max(0, writer.width_of_current_line))
        # Not a plain lock: a signal handler may write while its own thread does.
        self._lock = RLock()
        setattr(writer, self._method, self._write_above)

    def show(self, lines: Sequence[str]) -> None:
        """Show these printable lines in the place of those before; cut where they are long."""
        with self._lock:
            self._lines = tuple(lines)
            if not self._draw():
                self._erase()

    @property
    def columns(self) -> int:
        """Of the terminal; 0 where that is not known."""
        return self._size()[0]

    def close(self) -> None:
        """Take the lines away, and let pytest write as it did before."""
        with self._lock:
            if self._terminal is None:
                return
            self._erase()
            self._lines = ()
            with suppress(OSError):
                os.close(self._terminal)
            self._terminal = None
            # Else who came after still calls it.
            if getattr(self._writer, self._method) == self._write_above:
                setattr(self._writer, self._method, self._write)

    def _write_above(
        self,
        msg: str,
        *,
        flush: bool = True,  # noqa: ARG002 - as pytest's
        **markup: bool,
    ) -> None:
        with self._lock:
            self._follow(msg)
            self._erase()
            self._write(msg, flush=True, **markup)  # or it would come after what is drawn
            self._draw()

    def _erase(self) -> None:
        if self._drawn:
            self._send(f"{_KEEP}{_NEXT}{_BELOW}{_RETURN}")
            self._drawn = False

    def _draw(self) -> bool:
        """Draw what there is room for, over what was there; False where that is nothing."""
        columns, rows = self._size()
        shown = [cut(line, columns - 1) for line in self._lines[: max(0, rows - _OWN_ROWS)]]
        if not shown or columns < 2:
            return False
        if self._column == columns:  # the terminal forgets that a line is full when it is left
            return False
        room = _ROOM * len(shown) + _UP.format(len(shown))
        lines = "".join(f"{_NEXT}{line}{_REST}" for line in shown)
        self._send(f"{room}{_KEEP}{lines}{_BELOW}{_RETURN}")
        self._drawn = True
        return True

    def _follow(self, msg: str) -> None:
        """Follow the column where pytest goes on; a full line ends only with the next character."""
        *ended, line = re.split("[\r\n]", msg)
        if ended:
            self._column = 0
        columns = self.columns
        for char in _INVISIBLE.sub("", line):
            width = width_of(char)
            self._column = width if self._column + width > columns else self._column + width

    def _size(self) -> tuple[int, int]:
        try:
            return os.get_terminal_size(-1 if self._terminal is None else self._terminal)
        except OSError:
            return 0, 0

    def _send(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        with suppress(OSError):  # a terminal that was closed shows nothing, and stops no run
            while data and self._terminal is not None:
                data = data[os.write(self._terminal, data) :]
