"""Who computes what: work that one process has taken, and taking turns where memory is short.

Claims keep two processes from computing the same; they guard nothing, reading and writing never
wait for them. They are locks of the operating system on files beside the store, so they end with
the process that holds them, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self


@dataclass
class Claim:
    """A piece of work that this process has; given back at the end of a `with` block.

    deaths: processes of the same run that had it and died. keep: whether that is to be remembered.
    """

    deaths: int
    _run: str
    _path: Path
    _file: int
    keep: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.keep:
            _write(self._file, self._run, self.deaths)
        else:
            with suppress(FileNotFoundError):
                self._path.unlink()  # before the lock goes: nobody is to lock a file without a name
        os.close(self._file)


class Claims:
    """The claims in a folder, made when absent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def take(self, name: str, run: str) -> Claim | None:
        """Take the work of this name, or None while another process has it.

        name: must do as a file name. run: names the run; who died in another one is not counted.
        """
        path = self._folder / f"{name}.lock"
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _is_named(file, path):  # its holder gave it back since it was opened
                    os.close(file)
                    continue
            except BlockingIOError:
                os.close(file)
                return None
            except BaseException:
                os.close(file)
                raise
            holders = os.pread(file, os.fstat(file).st_size, 0).decode("utf-8", "replace").split()
            deaths = holders.count(run)
            _write(file, run, deaths + 1)  # this one's is taken back when it ends well
            return Claim(deaths, run, path, file)

    @contextmanager
    def together(self, make_room: Callable[[], None]) -> Iterator[None]:
        """Work beside others. make_room: called before waiting for one that works alone."""
        with _opened(self._folder / "wanted.turn") as wanted:
            try:
                fcntl.flock(wanted, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                make_room()
                fcntl.flock(wanted, fcntl.LOCK_SH)
            with _opened(self._folder / "working.turn") as working:
                fcntl.flock(working, fcntl.LOCK_SH)
                fcntl.flock(wanted, fcntl.LOCK_UN)
                yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Work while nobody else on this store does; not from inside `together`."""
        with _opened(self._folder / "wanted.turn") as wanted:
            fcntl.flock(wanted, fcntl.LOCK_EX)
            with _opened(self._folder / "working.turn") as working:
                fcntl.flock(working, fcntl.LOCK_EX)
                yield


def _write(file: int, run: str, deaths: int) -> None:
    """So many processes of a run had the work and did not give it back."""
    os.truncate(file, 0)
    os.pwrite(file, " ".join([run] * deaths).encode(), 0)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield file
    finally:
        os.close(file)  # and with it the lock


def _is_named(file: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(file)
    return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)
