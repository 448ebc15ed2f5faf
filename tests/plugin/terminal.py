"""A terminal of a person: a real pseudo-terminal whose output an emulator turns into a screen."""

from __future__ import annotations

import os
import pty
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen
from termios import tcsetwinsize
from threading import Lock, Thread

import pyte

from pytest_cepbench.escapes import width_of

COLUMNS, ROWS = 100, 24


class _Screen(pyte.HistoryScreen):
    """As terminals do, a wide character is not put into the last column alone."""

    def draw(self, data: str) -> None:
        for char in data:
            if width_of(char) == 2 and self.cursor.x == self.columns - 1:
                super().draw(" ")
            super().draw(char)


class Terminal:
    """An emulated terminal; programs write to `side`, a file descriptor.

    written: by programs, as it came.
    """

    def __init__(self, columns: int = COLUMNS, rows: int = ROWS) -> None:
        self._screen = _Screen(columns, rows, history=10_000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = Lock()
        self.written = b""
        self._master, self.side = pty.openpty()
        tcsetwinsize(self._master, (rows, columns))
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # Linux's error once the other side is closed
            while data := os.read(self._master, 65536):
                with self._lock:
                    self.written += data
                    self._stream.feed(data)

    @property
    def rows(self) -> list[str]:
        """What is on the screen now, without blanks at the ends."""
        with self._lock:
            lines = [self._screen.buffer[number] for number in range(self._screen.lines)]
            return [self._text(line) for line in lines]

    @property
    def everything(self) -> list[str]:
        """What was scrolled away, then what is on the screen, as far as it is not empty."""
        with self._lock:
            above = [self._text(line) for line in self._screen.history.top]
        rows = above + self.rows
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def _text(self, line: Mapping[int, pyte.screens.Char]) -> str:
        return "".join(line[column].data for column in range(self._screen.columns)).rstrip()

    @property
    def cursor(self) -> tuple[int, int]:
        """Column and row, from 0 on."""
        with self._lock:
            return self._screen.cursor.x, self._screen.cursor.y

    def settle(self) -> None:
        """Wait until what was written so far is on the screen."""
        mark = f"\x1b]0;{time.monotonic_ns()}\x07".encode()  # a title, which moves nothing
        os.write(self.side, mark)
        wait_for(lambda: mark in self.written)

    def finish(self) -> None:
        """Wait until all that was written is on the screen; nothing can be written after it."""
        os.close(self.side)
        self._reader.join(timeout=10)
        assert not self._reader.is_alive()
        os.close(self._master)


@contextmanager
def pytest_on(
    terminal: Terminal, folder: Path, *args: str, env: Mapping[str, str] | None = None
) -> Iterator[Popen[bytes]]:
    """Run pytest in a folder with the terminal as its own; killed where it is left running."""
    hidden = ("CEPBENCH_", "PYTEST_", "COLUMNS", "LINES", "CI", "BUILD_NUMBER", "NO_COLOR")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    with Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args],
        cwd=folder,
        env=clean | {"TERM": "xterm-256color"} | dict(env or {}),
        stdin=terminal.side,
        stdout=terminal.side,
        stderr=terminal.side,
        process_group=0,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(seen: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until something is so; fails where it does not come."""
    until = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.02)
