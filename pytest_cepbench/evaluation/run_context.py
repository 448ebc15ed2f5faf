"""A run as its processes share it: its name, its folder, and the messages that they leave there.

Standard library only: this is imported in every pytest that has the plugin installed.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from pytest_cepbench.evaluation.settings import RunSettings
from pytest_cepbench.files import keep_out_of_git, write_small

STOP = "stop"
"""Written by the controller when the run is to stop."""

CASES = "cases.json"
"""Written by the worker that ends collection first: what its cases need, for the scheduler."""

_INTERVAL = 0.2  # seconds between two looks at the file system


@dataclass(frozen=True)
class RunContext:
    """One run, as one of its processes knows it.

    settings: what the engineer asked for.
    run_id: shared by all processes of the run.
    started: when the run began, in seconds since the epoch.
    workers: number of processes that share this machine.
    worker: name of this one among them; empty for the only one.
    """

    settings: RunSettings
    run_id: str = field(default_factory=lambda: uuid4().hex)
    started: float = field(default_factory=time.time)
    workers: int = 1
    worker: str = ""

    @property
    def is_worker(self) -> bool:
        """Whether this is one of several processes of the run, which share its work."""
        return bool(self.worker)

    @property
    def folder(self) -> Path:
        """Where the processes of the run leave messages for one another; removed when it ends."""
        return self.settings.home / "runs" / self.run_id

    @property
    def staged(self) -> Path:
        """Where new baselines wait for the run to be complete."""
        return self.settings.report.parent / "staged" / self.run_id

    def make_folder(self) -> Path:
        """The folder, made where it is absent."""
        return make_folder(self.settings.home, self.folder)

    def remove_folder(self) -> None:
        """Remove the folder at the end of the run, and those around it that held nothing else."""
        home, folder = self.settings.home, self.folder
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another run may be going on, or there never was a folder
            folder.parent.rmdir()
            if [path.name for path in home.iterdir()] == [".gitignore"]:
                (home / ".gitignore").unlink()
                home.rmdir()


class StopFlag:
    """Whether a run is to stop, read from its folder, five times a second at most.

    folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / STOP
        self._is_set, self._next_look = False, 0.0

    def is_set(self) -> bool:
        """Whether work that no case of this process waits for is to end."""
        now = time.monotonic()
        if not self._is_set and now >= self._next_look:
            self._is_set = self._path.exists()
            self._next_look = now + _INTERVAL
        return self._is_set


def make_folder(home: Path, folder: Path) -> Path:
    """A folder of a run, made where it is absent.

    home: folder of everything that runs leave behind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    keep_out_of_git(home, folder)
    return folder


def write_message(folder: Path, name: str, text: str) -> None:
    """Write a file of the folder at once: no process reads a part of it."""
    fresh = folder / f".{name}.{os.getpid()}"
    write_small(fresh, text)
    fresh.replace(folder / name)
