"""Progress of the running cases: once a minute a line for each, among those that pytest writes.

Standard library and pytest only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
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
    waiting: bool
    rate: float | None
    left: float | None
    server: str = ""
    holder: str = ""
    cost: float = 0.0

    @classmethod
    def of(cls, progress: Progress, worker: str) -> ProgressSnapshot | None:
        """Now; None where no case runs."""
        if not progress.case:
            return None
        _, *names = (field.name for field in fields(cls))
        return cls(worker, *(getattr(progress, name) for name in names))

    def __str__(self) -> str:
        """The case, then how far it is."""
        return "  ".join(self._cells())

    def _cells(self) -> Iterator[str]:
        from pytest_cepbench.report.number_format import duration, printable, rate

        yield printable(f"{self.worker} {self.case}".lstrip(), 100)
        if self.of_samples:
            yield f"{self.samples}/{self.of_samples} samples"
        if self.server or self.waiting:
            yield printable(self.server or f"waiting for {self.holder or 'another worker'}")
            return
        if self.step:
            yield printable(self.step)
        if self.rate is not None:
            yield rate(self.rate)
        if self.of_samples and self.left is not None:
            yield f"{duration(self.left)} left"
        if self.cost:
            yield f"cost {self.cost:.3g}"


class Ticker:
    """Something done again and again, by a thread, until it is closed."""

    def __init__(self, act: Callable[[], None], end: Callable[[], None], pause: float) -> None:
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
    """Write a line on each process once a minute, until the ticker is closed.

    None with -q and --pdb, and where another plugin writes the terminal. snapshots: gives the
    progress of each process.
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
                for snapshot in snapshots():
                    reporter.ensure_newline()
                    reporter.write_line(f"cepbench: {snapshot}")
                file.flush()
        finally:
            writer._file = own  # noqa: SLF001

    def close() -> None:
        with suppress(OSError):
            file.close()

    return Ticker(write, close, PAUSE)


# -- between processes -----------------------------------------------------------------------------


def write_snapshots(progress: Progress, folder: Path, worker: str) -> Ticker:
    """On a worker: write its progress to the run's folder, until the ticker is closed."""

    def act() -> None:
        snapshot = ProgressSnapshot.of(progress, worker)
        if snapshot is None:
            forget(folder, worker)
            return
        with suppress(OSError):  # a full disk, a run that was stopped
            write_message(folder, f"{worker}{_SUFFIX}", json.dumps(asdict(snapshot)))

    return Ticker(act, lambda: forget(folder, worker), _WORKER_PAUSE)


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
