"""Progress of the running cases: one line for each, below what pytest writes on a terminal.

The cursor always rests where pytest left it: whatever else writes there writes as if there were no
lines. Nothing has to be known of pytest's own line; the terminal remembers its place. Standard
library and pytest only.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.terminal import TerminalReporter  # a public name since pytest 8.4

from pytest_cepbench.escapes import cut, width_of
from pytest_cepbench.evaluation.run_context import write_message
from pytest_cepbench.plugin.versions import draws_on_terminal, writing_of

if TYPE_CHECKING:
    from pytest_cepbench.chains.steps import Progress

PAUSE = 0.25
"""Seconds between two looks at what a terminal shows."""

LOG_PAUSE = 60.0
"""Seconds between two lines on progress where there is no terminal."""

_LOG_COLUMNS = 100

WORKER_PAUSE = 1.0
"""Seconds between two looks of a worker at its progress where there is no terminal."""

_LAST = 2.0  # seconds for the last look: a terminal that was stopped takes no line

_SUFFIX = ".progress"

_NAME = 24  # columns that are left to the name of a case where the terminal is narrow


@dataclass(frozen=True)
class ProgressSnapshot:
    """Progress of one process.

    worker: its name; empty for the only one.
    Other fields are those of `Progress`.
    """

    worker: str
    case: str
    samples: int
    of_samples: int
    step: str
    steps: int
    of_steps: int
    waiting: bool
    rate: float | None
    left: float | None
    server: str = ""
    holder: str = ""
    cost: float = 0.0

    @property
    def awaited(self) -> str:
        """What the process waits for, in words; empty where it waits for nothing."""
        other = self.holder or "another worker"
        return self.server or (f"waiting for {other}" if self.waiting else "")

    @classmethod
    def of(cls, progress: Progress, worker: str) -> ProgressSnapshot | None:
        """Now; None where no case runs."""
        if not progress.case:
            return None
        _, *names = (field.name for field in fields(cls))
        return cls(worker, *(getattr(progress, name) for name in names))


# -- when and where --------------------------------------------------------------------------------


def is_wanted(config: pytest.Config) -> bool:
    """Whether pytest writes to an interactive terminal, and alone: not to the log of a CI job."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    option = config.option
    return (
        draws_on_terminal(reporter)  # others draw there themselves
        and os.environ.get("TERM", "dumb") != "dumb"
        and not os.environ.get("CI")
        and not os.environ.get("BUILD_NUMBER")
        and option.verbose >= 0
        # Or what tests print would run into the lines.
        and getattr(option, "capture", "no") == "fd"
        and not getattr(option, "usepdb", False)
        and not getattr(option, "trace", False)
    )


class Ticker:
    """Something done again and again, by a thread, until it is closed."""

    def __init__(
        self, act: Callable[[], None], end: Callable[[], None], pause: float = PAUSE
    ) -> None:
        """act: what is done. end: done last, in the thread that closes. pause: in seconds."""
        self._act, self._end, self._pause = act, end, pause
        self._closed = Event()
        self._thread = Thread(target=self._run, name="cepbench-progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and clear up."""
        if not self._closed.is_set():
            self._closed.set()
            self._thread.join(_LAST)
            self._end()

    def _run(self) -> None:
        while not self._closed.wait(self._pause):
            self._act()


def show(
    config: pytest.Config, snapshots: Callable[[], Sequence[ProgressSnapshot]]
) -> Ticker | None:
    """Show progress below pytest's output, or tell a log of it once a minute, until it is closed.

    None where neither is wanted. snapshots: gives the progress of each process.
    """
    drawn, option = is_wanted(config), config.option
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    # Else a line now and then tells a log how far the run is: of a CI job, or a file.
    logged = type(reporter) is TerminalReporter and not reporter.isatty and option.verbose >= 0
    if not drawn and (not logged or getattr(option, "usepdb", False)):
        return None
    writer = config.get_terminal_writer()
    try:
        # pytest's writer has no public attribute for the file that it writes to.
        terminal = os.dup(writer._file.fileno())  # noqa: SLF001
    except (OSError, ValueError, AttributeError):  # another plugin put another kind of file there
        return None
    if drawn:
        block = Block(writer, terminal)
        return Ticker(lambda: block.show(progress_lines(snapshots(), block.columns)), block.close)
    log = _Log(reporter, writer, terminal)
    return Ticker(lambda: log.write(snapshots()), log.close, LOG_PAUSE)


class _Log:
    """Lines among those that pytest writes to a log.

    log: file descriptor of the log, closed with this. While a test runs standard output is
    captured, so it has to be one of its own.
    """

    def __init__(self, reporter: TerminalReporter, writer: Any, log: int) -> None:
        self._reporter, self._writer = reporter, writer
        encoding = getattr(writer._file, "encoding", None)  # noqa: SLF001
        self._file = open(log, "w", encoding=encoding or "utf-8", errors="replace")  # noqa: SIM115

    def write(self, snapshots: Sequence[ProgressSnapshot]) -> None:
        """A line for each process. By pytest's writer, which has to know where its line is."""
        lines = progress_lines(snapshots, _LOG_COLUMNS)
        pytests, self._writer._file = self._writer._file, self._file  # noqa: SLF001
        try:
            with suppress(OSError, ValueError):  # a full disk, a log that was closed
                for line in lines:
                    self._reporter.ensure_newline()
                    self._reporter.write_line(f"cepbench: {line}")
                self._file.flush()
        finally:
            self._writer._file = pytests  # noqa: SLF001

    def close(self) -> None:
        """Give the log back."""
        with suppress(OSError):
            self._file.close()


# -- between processes -----------------------------------------------------------------------------


def write_snapshots(progress: Progress, folder: Path, worker: str, pause: float = PAUSE) -> Ticker:
    """On a worker: write its progress to the run's folder, until the ticker is closed.

    pause: seconds between two writings.
    """

    def act() -> None:
        snapshot = ProgressSnapshot.of(progress, worker)
        if snapshot is None:
            forget(folder, worker)
            return
        with suppress(OSError):  # a full disk, a run that was stopped
            write_message(folder, f"{worker}{_SUFFIX}", json.dumps(asdict(snapshot)))

    return Ticker(act, lambda: forget(folder, worker), pause)


def own_snapshots(progress: Progress, cluster: Progress | None = None) -> list[ProgressSnapshot]:
    """Progress of the only process. cluster: that of its threads on a cluster."""
    known = [ProgressSnapshot.of(each, "") for each in (progress, cluster) if each is not None]
    return [snapshot for snapshot in known if snapshot is not None]


def read_snapshots(folder: Path) -> list[ProgressSnapshot]:
    """Progress of the workers, by their names; without those that run no case."""
    snapshots = []
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError, ValueError, TypeError):  # gone, or not written by this version
            snapshots.append(ProgressSnapshot(**json.loads(path.read_text(encoding="utf-8"))))
    return sorted(snapshots, key=lambda snapshot: (len(snapshot.worker), snapshot.worker))


def forget(folder: Path, worker: str) -> None:
    """Remove the progress of a worker that has ended, however it did."""
    with suppress(OSError):
        (folder / f"{worker}{_SUFFIX}").unlink(missing_ok=True)


# -- what is shown ---------------------------------------------------------------------------------


def progress_lines(snapshots: Sequence[ProgressSnapshot], columns: int) -> list[str]:
    """A line for each process, aligned. columns: of the terminal."""
    rows = [list(_cells(snapshot)) for snapshot in snapshots]
    if not rows:
        return []
    rest = max(sum(width_of(cell) + 2 for cell in cells) for _, *cells in rows)
    room = max(_NAME, columns - 1 - rest)
    names = [cut(name, room) for name, *_ in rows]
    longest = max(map(width_of, names))
    return [
        "  ".join([name + " " * (longest - width_of(name)), *cells])
        for name, (_, *cells) in zip(names, rows, strict=True)
    ]


def _cells(snapshot: ProgressSnapshot) -> Iterator[str]:
    """The case, then its progress."""
    from pytest_cepbench.report.number_format import duration, printable, rate

    yield printable(f"{snapshot.worker} {snapshot.case}")
    counted = snapshot.of_samples > 0
    if counted:
        digits = len(str(snapshot.of_samples))
        yield f"{snapshot.samples:{digits}}/{snapshot.of_samples} samples"
    if snapshot.awaited:
        yield printable(snapshot.awaited)
        return
    if snapshot.step:
        yield printable(snapshot.step)
    if snapshot.rate is not None:
        yield rate(snapshot.rate)
    if counted and snapshot.left is not None:
        yield f"{duration(snapshot.left)} left"
    if snapshot.cost:
        yield f"cost {snapshot.cost:.3g}"


# -- the lines -------------------------------------------------------------------------------------

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
