"""Locks of the processes that use a store: which one computes what.

A work lock keeps two processes from computing the same; it guards no data, and reading and writing
never wait for it. All are locks of the operating system on files beside the store, so they end with
the process, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from pytest_cepbench.store.database import INDEX, store_errors

QUIET_SECONDS = 3.0
"""Seconds that a process waits for one of another run before it says for whom."""

_POLL_SECONDS = 0.05

_UNKNOWN = "process:"

_TRIES = 100  # to open a file that its holder is just giving back


@dataclass
class WorkLock:
    """A piece of work that this process has; released at the end of a `with` block.

    crashes: processes of the same run that had it and were killed.
    keep: whether the crashes are still to be counted after the release.
    """

    crashes: int
    _run: str
    _path: Path
    _file: int
    keep: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with store_errors(_index(self._path.parent)):
                if self.keep:
                    _write_holders(self._file, self._run, self.crashes)
                else:
                    # Before the lock is released: no process may lock a file without a name.
                    self._path.unlink(missing_ok=True)
        finally:
            _release(self._file)


class WorkLocks:
    """The locks in a folder, which is created when absent. Raises StoreError and its kinds.

    say: shows a sentence to the person who started this process; on standard error by default.
    """

    def __init__(self, folder: Path) -> None:
        self.say: Callable[[str], object] = lambda text: sys.stderr.write(f"cepbench: {text}\n")
        self._folder = folder
        self._run = ""
        self._has_said = False
        folder.mkdir(exist_ok=True)

    def acquire(self, name: str, run: str) -> WorkLock | None:
        """Take the work of this name, or None while another process has it.

        name: of the work; also the name of a file.
        run: id of the run; crashes in other runs are not counted.
        """
        path = self._folder / f"{name}.lock"
        self._run, crashes = run, 0
        with store_errors(_index(self._folder)):
            for _ in range(_TRIES):
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                acquired = False
                try:
                    with suppress(BlockingIOError):
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        acquired = True
                    crashes = max(crashes, _read_holders(file).split().count(run))
                    if not acquired:
                        if not _has_ended(_read_holders(file)):
                            return None
                        # Another process may have locked it just now, and be about to write itself.
                        time.sleep(_POLL_SECONDS)
                        if not _has_ended(_read_holders(file)):
                            return None
                        # The holder was killed, and its lock lives on in a process that it forked.
                        path.unlink(missing_ok=True)
                    elif _has_name(file, path):  # or its holder released it since it was opened
                        lock = WorkLock(crashes, run, path, file)
                        # Counted as a crash from now on; a release takes that back.
                        _write_holders(file, run, crashes + 1)
                        file = -1
                        return lock
                except BaseException:
                    if acquired and not crashes:
                        # The holder could not be written: leave no empty file.
                        with suppress(OSError):
                            path.unlink(missing_ok=True)
                    raise
                finally:
                    if file >= 0:
                        os.close(file)
        return None

    def say_who(self, waited: float, name: str) -> str:
        """Say once which process of another run has work that this one waits for.

        Workers of one run wait for one another all the time, and nothing is said of that.
        waited: in seconds, so far. name: of the work.
        Returns the process in a few words; "" where nothing is to be said.
        """
        holders = ""
        with suppress(OSError):  # released
            if waited >= QUIET_SECONDS:
                path = self._folder / f"{name}.lock"
                holders = path.read_text(encoding="utf-8", errors="replace")
        *runs, process = holders.split() or [""]
        if not process or self._run in runs or _has_ended(process):
            return ""
        space, _, number = process.rpartition(":")
        host = space.split(":")[1] if ":" in space else ""
        who = f"process {number}{f' on {host}' if host else ''}"
        if not self._has_said:
            self._has_said = True
            self.say(
                f"waiting for {who}, which works on the same store {self._folder.parent}. To go on "
                "without it, end that process, or start this run with another store (--cep-store "
                "DIR)"
            )
        return who


def _index(folder: Path) -> Path:
    """The store's index, whose path stands in errors."""
    return folder.with_name(INDEX)


def _release(file: int) -> None:
    """Unlock and close: closing is not enough where a process was forked meanwhile."""
    try:
        fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def _write_holders(file: int, run: str, holders: int) -> None:
    """Write how many processes of a run held the lock without a release, and the id of this one."""
    text = " ".join([*[run] * holders, f"{_id_space()}{os.getpid()}"]).encode()
    os.pwrite(file, text, 0)  # before truncating: where it fails the old text stays
    os.truncate(file, len(text))


def _read_holders(file: int) -> str:
    return os.pread(file, os.fstat(file).st_size, 0).decode("utf-8", "replace")


@cache
def _id_space() -> str:
    """Prefix of this process's id: the host and namespace in which the id is valid."""
    try:
        space = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return _UNKNOWN
    return f"process:{os.uname().nodename}:{space}:".replace(" ", "")


def _has_ended(holders: str) -> bool:
    _, known, number = holders.rpartition(_id_space())
    if not (known and number.isdecimal() and _id_space() != _UNKNOWN):
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # another user's process, or no process id
        return False
    return False


def _has_name(file: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file))
    return False
