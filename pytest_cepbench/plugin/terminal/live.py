"""How far the running cases are: one line for each, below what pytest writes on a terminal.

Standard library and pytest only until there is a line to show.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from pytest_cepbench.evaluation.run_context import write_message

if TYPE_CHECKING:
    from pytest_cepbench.chains.progress import Progress

_PAUSE = 0.25  # seconds between two looks

_LAST = 2.0  # seconds for the last look: a terminal that was stopped takes no line

_SUFFIX = ".progress"

_NAME = 24  # columns that are left to the name of a case where the terminal is narrow


@dataclass(frozen=True)
class ProgressSnapshot:
    """How far one process is; fields as of `Progress`. worker: its name, empty for the only one."""

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

    @classmethod
    def of(cls, progress: Progress, worker: str) -> ProgressSnapshot | None:
        """Now; None where no case runs."""
        if not progress.case:
            return None
        return cls(
            worker=worker,
            case=progress.case,
            samples=progress.samples,
            of_samples=progress.of_samples,
            step=progress.step,
            steps=progress.steps,
            of_steps=progress.of_steps,
            waiting=progress.waiting,
            rate=progress.rate,
            left=progress.left,
        )


# -- when and where ----------------------------------------------------------------------------------


def is_wanted(config: pytest.Config) -> bool:
    """Whether pytest writes to a terminal of a person, and alone: not in the log of a CI job."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    option = config.option
    return (
        type(reporter) is pytest.TerminalReporter  # others draw on the terminal themselves
        and bool(reporter.isatty())
        and os.environ.get("TERM", "dumb") != "dumb"
        and not os.environ.get("CI")
        and not os.environ.get("BUILD_NUMBER")
        and option.verbose > -2
        # Or what tests print would run into the lines.
        and getattr(option, "capture", "no") == "fd"
        and not getattr(option, "usepdb", False)
        and not getattr(option, "trace", False)
    )


class Ticker:
    """Something done four times a second, by a thread, until it is closed."""

    def __init__(self, act: Callable[[], None], end: Callable[[], None]) -> None:
        self._act, self._end = act, end
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
        while not self._closed.wait(_PAUSE):
            self._act()


def show(config: pytest.Config, moments: Callable[[], Sequence[ProgressSnapshot]]) -> None:
    """Show what runs below what pytest writes, until `close`. moments: who is how far."""
    if LIVE in config.stash or not is_wanted(config):
        return
    from pytest_cepbench.plugin.terminal.screen import Block

    writer = config.get_terminal_writer()
    try:
        terminal = os.dup(writer._file.fileno())  # noqa: SLF001 - there is no other way to the terminal
    except (OSError, ValueError, AttributeError):  # somebody put another kind of file there
        return
    block = Block(writer, terminal)
    config.stash[LIVE] = Ticker(lambda: block.show(lines_of(moments(), block.columns)), block.close)


def close(config: pytest.Config) -> None:
    """Show nothing more, nor tell others."""
    if LIVE in config.stash:
        config.stash[LIVE].close()


LIVE = pytest.StashKey[Ticker]()
"""What shows or tells how far this process is, once there is a case."""


# -- between processes -------------------------------------------------------------------------------


def tell(config: pytest.Config, progress: Progress, folder: Path, worker: str) -> None:
    """On a worker: leave word in the run's folder of how far it is, until `close`."""

    def act() -> None:
        moment = ProgressSnapshot.of(progress, worker)
        if moment is None:
            forget(folder, worker)
            return
        with suppress(OSError):  # a full disk, a run that was stopped: nobody works for the lines
            write_message(folder, f"{worker}{_SUFFIX}", json.dumps(asdict(moment)))

    config.stash[LIVE] = Ticker(act, lambda: forget(folder, worker))


def own(progress: Progress, beside: Progress | None = None) -> list[ProgressSnapshot]:
    """How far the only process is. beside: others of it that work for the case that runs."""
    found = [ProgressSnapshot.of(one, "") for one in (progress, beside) if one is not None]
    return [moment for moment in found if moment is not None]


def read_moments(folder: Path) -> list[ProgressSnapshot]:
    """How far the workers are, by their names; without those that say nothing."""
    found = []
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError, ValueError, TypeError):  # gone, or not written by this version
            found.append(ProgressSnapshot(**json.loads(path.read_text(encoding="utf-8"))))
    return sorted(found, key=lambda one: (len(one.worker), one.worker))


def forget(folder: Path, worker: str) -> None:
    """Take away the word of a worker that has ended, however it did."""
    with suppress(OSError):
        (folder / f"{worker}{_SUFFIX}").unlink(missing_ok=True)


# -- what is shown -----------------------------------------------------------------------------------


def lines_of(moments: Sequence[ProgressSnapshot], columns: int) -> list[str]:
    """A line for each, what they have in common below one another. columns: of the terminal."""
    from pytest_cepbench.plugin.terminal.screen import cut, width_of

    rows = [list(_cells(moment)) for moment in moments]
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


def _cells(moment: ProgressSnapshot) -> Iterator[str]:
    """The case, then how far it is."""
    from pytest_cepbench.report.text import printable

    yield printable(f"{moment.worker} {moment.case}")
    counted = moment.of_samples > 0
    if counted:
        digits = len(str(moment.of_samples))
        yield f"{moment.samples:{digits}}/{moment.of_samples} samples"
    if moment.waiting:
        yield "waiting for another worker"
        return
    if moment.step:
        yield printable(moment.step)
    if moment.rate is not None:
        per_second = moment.rate >= 1
        yield f"{moment.rate:.1f} steps/s" if per_second else f"{1 / moment.rate:.1f} s/step"
    if counted and moment.left is not None:
        yield f"{spoken(moment.left)} left"


def spoken(seconds: float) -> str:
    """A time in the two largest units that it has: 40 s, 3 min 20 s, 5 h 2 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
