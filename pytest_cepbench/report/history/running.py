"""Runs that have not ended: each keeps a small file in `running/` of the history while it goes on.

The file is removed when the run ends. One that a killed run left says by its process that the run
has ended, and by the time of its last writing where that process cannot be looked up.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from pytest_cepbench.files import read_regular, replace_small

RUNNING = "running"
"""The folder of these files in that of the history."""

FORMAT = 1
"""Of a file. Raised when a field changes its meaning; fields may be added."""

HEARTBEAT_SECONDS = 5.0
"""A run that goes on writes at least this often."""

SILENT_SECONDS = 60.0
"""Since the last writing, after which a run is no longer believed to go on."""

RUN_ID = re.compile(r"[0-9a-f]{32}")

_SUFFIX = ".json"

_MOST_BYTES = 2**22

_KEPT_SECONDS = 7 * 86_400.0  # for files of runs that were killed

_ENDED_STATES = "ZX"  # of a process that has ended and whose parent has not noticed


class RunState(StrEnum):
    """Whether a run goes on.

    RUNNING: its process wrote lately.
    SILENT: its process is there, and has not written for a minute.
    ENDED: its process is gone, or lies elsewhere and has not written for a minute.
    """

    RUNNING = "running"
    SILENT = "silent"
    ENDED = "ended"

    @property
    def words(self) -> str:
        """As shown."""
        words = {"silent": "no sign of life", "ended": "ended without a verdict"}
        return words.get(self.value, self.value)


class RunningCase(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A case that is judged.

    case: SUITE/PART/METRIC.
    verdict: of the gate, or `accepted`.
    value, difference: as of `HistoryCase`.
    primary: whether it can fail the run.
    passes: whether it lets the run pass.
    reason: why it was not measured or compared, in a line; empty where it was.
    """

    case: str
    verdict: str
    value: float | None = None
    difference: float | None = None
    primary: bool = True
    passes: bool = True
    reason: str = ""


class RunningWork(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The case that a process of the run works on.

    worker: its name; empty for the only one.
    case: its name for people.
    samples, of_samples: those whose chains are done, and all; 0 where unknown.
    step: that is being made, or what is waited for.
    rate: steps per second; None where unknown.
    left: seconds that the rest takes at this rate; None where unknown.
    """

    worker: str = ""
    case: str = ""
    samples: int = 0
    of_samples: int = 0
    step: str = ""
    rate: float | None = None
    left: float | None = None


class RunningRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run that goes on, or was killed.

    format: version of the file.
    run: its id.
    started: in seconds since the epoch.
    written: when this was written, in seconds since the epoch.
    host: name of the machine.
    process, process_space, process_started: id of the controlling process, the system in which
    that id is valid, and when it began in clock ticks since that system did.
    checkpoint: specs of its models under test; empty where none is known yet.
    expected, judged: cases of the run, and those that are judged.
    counts: number of judged cases by verdict.
    skipped: cases that are not to be judged.
    failing: cases that fail the run, the first ones.
    cases: that are judged, the latest ones.
    work: what its processes do now.
    """

    format: int
    run: str
    started: float
    written: float
    host: str = ""
    process: int = 0
    process_space: str = ""
    process_started: int = 0
    checkpoint: str = ""
    expected: int = 0
    judged: int = 0
    counts: dict[str, int] = {}
    skipped: int = 0
    failing: list[RunningCase] = []
    cases: list[RunningCase] = []
    work: list[RunningWork] = []


class ListedRun(NamedTuple):
    """A run that has not ended as a run does, as it is found. state: whether it goes on."""

    run: RunningRun
    state: RunState


# -- writing ---------------------------------------------------------------------------------------


def write_running(folder: Path, run: RunningRun) -> None:
    """Write the file of a run, in one step. folder: of the history. Raises OSError."""
    path = _path(folder, run.run)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_small(path, msgspec.json.encode(run) + b"\n")


def remove_running(folder: Path, run_id: str) -> None:
    """Remove the file of a run that has ended, and folders that held nothing else."""
    with suppress(OSError):
        _path(folder, run_id).unlink(missing_ok=True)
        (folder / RUNNING).rmdir()
        folder.rmdir()


def remove_leftovers(folder: Path) -> None:
    """Remove what runs left that were killed more than a week ago."""
    with suppress(OSError):
        for path in (folder / RUNNING).iterdir():
            if path.stat(follow_symlinks=False).st_mtime < time.time() - _KEPT_SECONDS:
                path.unlink()


def own_process() -> tuple[int, str, int]:
    """`process`, `process_space` and `process_started` of this process."""
    process = os.getpid()
    return process, _process_space(), _start_of(process) or 0


def _path(folder: Path, run_id: str) -> Path:
    return folder / RUNNING / f"{run_id}{_SUFFIX}"


# -- reading ---------------------------------------------------------------------------------------


def list_running(folder: Path) -> list[ListedRun]:
    """The runs that have a file, the latest first; files that cannot be read are left out.

    folder: of the history.
    """
    try:
        paths = [path for path in (folder / RUNNING).iterdir() if path.suffix == _SUFFIX]
    except OSError:
        return []
    decoder = msgspec.json.Decoder(RunningRun)
    listed = []
    for path in paths:
        if not RUN_ID.fullmatch(path.stem):
            continue
        try:
            run = decoder.decode(read_regular(path, _MOST_BYTES, links=False))
        except (OSError, ValueError, RecursionError):  # it ended just now, or others wrote it
            continue
        sound = 0 <= run.started < 1e11 and 0 <= run.written < 1e11  # times that can be shown
        if run.run != path.stem or run.format > FORMAT or not sound:
            continue
        known = bool(run.process_space) and run.process_space == _process_space()
        if known and (not run.process_started or _start_of(run.process) != run.process_started):
            state = RunState.ENDED
        elif abs(time.time() - run.written) <= SILENT_SECONDS:
            state = RunState.RUNNING
        else:
            state = RunState.SILENT if known else RunState.ENDED
        listed.append(ListedRun(run, state))
    return sorted(listed, key=lambda entry: (-entry.run.started, entry.run.run))


@cache
def _process_space() -> str:
    """The host and namespace in which ids of processes are valid; empty where unknown."""
    try:
        return f"{os.uname().nodename}:{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _start_of(process: int) -> int | None:
    """When a process began, in ticks since the system did; None where it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return None if fields[0] in _ENDED_STATES else int(fields[19])
