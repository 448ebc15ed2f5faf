"""Who computes what: work that one process has taken, and taking turns where memory is short.

Claims keep two processes from computing the same; they guard nothing, reading and writing never
wait for them. They are locks of the operating system on files beside the store, so they end with
the process that holds them, however it ends. What a process holds says when it was last alive: who
waits looks at that, and never waits without end.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from pytest_cepbench.errors import StoreError
from pytest_cepbench.store.database import explained
from pytest_cepbench.store.readonly import INDEX

PATIENCE = 1800.0
"""Seconds that a process waits for others which store nothing and ask for nothing: one batch of a large
model, or loading it, may take as long."""

_LOOK = 0.05  # seconds between two looks at a lock

_BEAT = 5.0  # seconds between two signs of life

_UNKNOWN = "process:"

_TRIES = 100  # to open a file that its holder is just giving back


@dataclass
class WorkLock:
    """A piece of work that this process has; given back at the end of a `with` block.

    deaths: processes of the same run that had it and died. keep: whether that is to be remembered.
    """

    deaths: int
    _run: str
    _path: Path
    _file: int
    _held: set[int] = field(default_factory=set, repr=False)
    keep: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            with explained(_index(self._path.parent)):
                if self.keep:
                    _write(self._file, self._run, self.deaths)
                else:
                    # Before the lock goes: nobody is to lock a file without a name.
                    self._path.unlink(missing_ok=True)
        finally:
            self._held.discard(self._file)
            _let_go(self._file)


class WorkLocks:
    """The claims in a folder, made when absent. Raises StoreError and its kinds for what fails there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: set[int] = set()
        self._beaten = 0.0
        folder.mkdir(exist_ok=True)

    def take(self, name: str, run: str) -> WorkLock | None:
        """Take the work of this name, or None while another process has it.

        name: must do as a file name. run: names the run; who died in another one is not counted.
        """
        path = self._folder / f"{name}.lock"
        deaths = 0
        with explained(_index(self._folder)):
            for _ in range(_TRIES):
                file = _open(path)
                taken = False
                try:
                    taken = _lock(file, fcntl.LOCK_EX)
                    deaths = max(deaths, _noted(file).split().count(run))
                    if not taken:
                        if not _is_gone(file):
                            return None
                        # The holder has died, and left the lock to a process that it had forked.
                        path.unlink(missing_ok=True)
                    elif _is_named(file, path):  # or its holder gave it back since it was opened
                        claim = WorkLock(deaths, run, path, file, self._held)
                        _write(file, run, deaths + 1)  # this one's is taken back when it ends well
                        self._held.add(file)
                        file = -1
                        return claim
                except BaseException:
                    if taken and not deaths:
                        with suppress(
                            OSError
                        ):  # an empty file would be left where it cannot be written
                            path.unlink(missing_ok=True)
                    raise
                finally:
                    if file >= 0:
                        os.close(file)
        return None

    def beat(self) -> None:
        """Say to whoever waits for what this process holds that it gets on with it."""
        now = time.monotonic()
        if now - self._beaten < _BEAT:
            return
        self._beaten = now
        for file in tuple(self._held):
            with suppress(OSError):  # given back by another thread, a disk that is read-only
                os.utime(file)

    def silence(self, name: str = "*") -> float:
        """Seconds since a process gave a sign that holds the work of this name, or any work.

        Infinity where none holds it.
        """
        latest = float("-inf")
        for path in self._folder.glob(f"{name}.lock"):
            with suppress(OSError):  # given back
                latest = max(latest, path.stat().st_mtime)
        return max(0.0, time.time() - latest)

    @contextmanager
    def together(self, make_room: Callable[[], None]) -> Iterator[None]:
        """Work beside others. make_room: called before waiting for one that works alone."""
        with self._turn("wanted") as wanted:
            if not _lock(wanted, fcntl.LOCK_SH):
                make_room()
                self._wait(wanted, fcntl.LOCK_SH)
            with self._turn("working") as working:
                self._wait(working, fcntl.LOCK_SH)
                fcntl.flock(wanted, fcntl.LOCK_UN)
                yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Work while nobody else on this store does; not from inside `together`."""
        with self._turn("wanted") as wanted:
            self._wait(wanted, fcntl.LOCK_EX)
            with self._turn("working") as working:
                self._wait(working, fcntl.LOCK_EX)
                yield

    @contextmanager
    def _turn(self, name: str) -> Iterator[int]:
        with explained(_index(self._folder)):
            file = _open(self._folder / f"{name}.turn")
        try:
            yield file
        finally:
            _let_go(file)

    def _wait(self, file: int, how: int) -> None:
        """Lock a file, as long as those that others hold show that these get on."""
        started = time.monotonic()
        while not _lock(file, how):
            waited = time.monotonic() - started
            if min(waited, self.silence()) > PATIENCE:
                msg = (
                    f"another process has worked alone on the store {self._folder.parent}, or kept this "
                    f"one from it, for {waited / 60:.0f} minutes, and has stored nothing: end it, or "
                    "give another store (--cep-store)"
                )
                raise StoreError(msg)
            time.sleep(_LOOK)


def _index(folder: Path) -> Path:
    """The file that errors of a store are explained by."""
    return folder.with_name(INDEX)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _lock(file: int, how: int) -> bool:
    """Whether the lock could be had at once."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _let_go(file: int) -> None:
    """Unlock and close: to close is not enough where another process was forked meanwhile."""
    try:
        fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def _write(file: int, run: str, deaths: int) -> None:
    """So many processes of a run had the work and did not give it back; this is the last of them."""
    noted = " ".join([*[run] * deaths, f"{_whose()}{os.getpid()}"]).encode()
    os.pwrite(file, noted, 0)  # first: where it fails what is noted stays
    os.truncate(file, len(noted))


@cache
def _whose() -> str:
    """Where the process ids of this process mean something."""
    try:
        space = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return _UNKNOWN
    return f"process:{os.uname().nodename}:{space}:".replace(" ", "")


def _noted(file: int) -> str:
    return os.pread(file, os.fstat(file).st_size, 0).decode("utf-8", "replace")


def _is_gone(file: int) -> bool:
    """Whether the process that noted itself last is known to be no more."""
    if _is_dead(_noted(file)):
        time.sleep(_LOOK)  # another one may have taken it just now, and be about to note itself
        return _is_dead(_noted(file))
    return False


def _is_dead(noted: str) -> bool:
    _, known, number = noted.rpartition(_whose())
    if not (known and number.isdecimal() and _whose() != _UNKNOWN):
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # somebody else's, or no number of a process
        return False
    return False


def _is_named(file: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(file)
    return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)
