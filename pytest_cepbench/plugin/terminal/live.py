"""Progress of the running cases: once a minute a line for each, among those that pytest writes.

Standard library and pytest only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.terminal import TerminalReporter  # a public name since pytest 8.4

from pytest_cepbench.evaluation.run_context import write_message

if TYPE_CHECKING:
    from pytest_cepbench.chains.steps import Progress

PAUSE = 60.0
"""Seconds between two lines on the progress of a process."""

_WORKER_PAUSE = 1.0  # seconds between two looks of a worker at its own progress

_LAST = 2.0  # seconds for the last look: a terminal that was stopped takes no line

_SUFFIX = ".progress"


def progress_line(progress: Progress | None, worker: str = "") -> str:
    """How far the case of a process is, by its name; empty where none runs."""
    if progress is None or not progress.case:
        return ""
    from pytest_cepbench.report.number_format import duration, printable

    cells = [printable(f"{worker} {progress.case}".lstrip(), 100)]
    if progress.of_samples:
        cells.append(f"{progress.samples}/{progress.of_samples} samples")
    if progress.server or progress.waiting:
        holder = progress.holder or "another worker"
        return "  ".join([*cells, printable(progress.server or f"waiting for {holder}")])
    if progress.step:
        cells.append(printable(progress.step))
    if (pace := progress.rate) is not None:
        cells.append(f"{pace:.1f} steps/s" if pace >= 1 else f"{1 / pace:.1f} s/step")
    if progress.of_samples and (left := progress.left) is not None:
        cells.append(f"{duration(left)} left")
    if progress.cost:
        cells.append(f"cost {progress.cost:.3g}")
    return "  ".join(cells)


class Ticker:
    """Something done again and again, by a thread, until it is closed."""

    def __init__(self, act: Callable[[], None], end: Callable[[], None], pause: float) -> None:
        """act: what is done. end: done last, in the thread that closes. pause: in seconds."""
        self._end, self._closed = end, Event()

        def run() -> None:
            while not self._closed.wait(pause):
                act()

        self._thread = Thread(target=run, name="cepbench-progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and clear up."""
        if not self._closed.is_set():
            self._closed.set()
            self._thread.join(_LAST)
            self._end()


def show(config: pytest.Config, lines: Callable[[], Sequence[str]]) -> Ticker | None:
    """Write a line on each process once a minute, until the ticker is closed.

    None with -q and --pdb, and where another plugin writes the terminal. lines: gives that of each
    process; empty where it runs no case.
    """
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    plain = type(reporter) is TerminalReporter and config.option.verbose >= 0
    if not plain or getattr(config.option, "usepdb", False):
        return None
    writer = config.get_terminal_writer()
    try:
        # Standard output is captured while a test runs. pytest's writer has no public attribute
        # for the file that it writes to.
        log = os.dup(writer._file.fileno())  # noqa: SLF001
    except (OSError, ValueError, AttributeError):  # another plugin put another kind of file there
        return None
    encoding = getattr(writer._file, "encoding", None)  # noqa: SLF001
    file = os.fdopen(log, "w", encoding=encoding or "utf-8", errors="replace")

    def write() -> None:
        # By pytest's writer, which has to know where its line is.
        own, writer._file = writer._file, file  # noqa: SLF001
        try:
            with suppress(OSError, ValueError):  # a full disk, a log that was closed
                for line in filter(None, lines()):
                    reporter.ensure_newline()
                    reporter.write_line(f"cepbench: {line}")
                file.flush()
        finally:
            writer._file = own  # noqa: SLF001

    def close() -> None:
        with suppress(OSError):
            file.close()

    return Ticker(write, close, PAUSE)


# -- between processes -----------------------------------------------------------------------------


def write_lines(progress: Progress, folder: Path, worker: str) -> Ticker:
    """On a worker: write its line to the run's folder, until the ticker is closed."""

    def act() -> None:
        with suppress(OSError):  # a full disk, a run that was stopped
            write_message(folder, f"{worker}{_SUFFIX}", progress_line(progress, worker))

    return Ticker(act, lambda: forget(folder, worker), _WORKER_PAUSE)


def read_lines(folder: Path) -> list[str]:
    """The lines of the workers, by their names."""
    lines = []
    for path in sorted(folder.glob(f"*{_SUFFIX}"), key=lambda path: (len(path.name), path.name)):
        with suppress(OSError):  # gone
            lines.append(path.read_text(encoding="utf-8"))
    return lines


def forget(folder: Path, worker: str) -> None:
    """Remove the progress of a worker that has ended, however it did."""
    with suppress(OSError):
        (folder / f"{worker}{_SUFFIX}").unlink(missing_ok=True)
