"""Objects as files below a folder, such as one that several machines mount."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from uuid import uuid4

from pytest_cepbench.errors import StoreError, UnfitFileError
from pytest_cepbench.files import read_regular
from pytest_cepbench.store.remote.object_store import FetchResult, WriteResult, most_bytes
from pytest_cepbench.store.remote.remote_errors import StoreFailure, trouble_of, unwritten

_THREADS = 16  # a mounted folder answers as slowly as the network does

_NEW = "new"

_STALE_SECONDS = 86400.0  # clocks of machines differ, but not by a day

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)


class FolderObjects:
    """The objects in a folder; see `Objects`."""

    def __init__(self, root: Path, named: str) -> None:
        self.named = named
        self._root = root

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_THREADS, thread_name_prefix="shared-store")

    def read(self, names: Sequence[str], seconds: float | None = None) -> FetchResult:  # noqa: ARG002 - the kernel waits as long as it wants
        """All of them, on threads; see `Objects`."""
        found: dict[str, bytes] = {}
        unfit: dict[str, str] = {}
        trouble = None
        for name, read in zip(names, self._threads.map(self._read, names), strict=True):
            if isinstance(read, bytes):
                found[name] = read
            elif isinstance(read, str):
                unfit[name] = read
            elif read.kind != "absent":
                trouble = read
        return FetchResult(found, trouble, unfit)

    def _read(self, name: str) -> bytes | str | StoreFailure:
        """The object, why it is none, or what troubled the reading."""
        try:
            return read_regular(self._root / name, most_bytes(name))
        except UnfitFileError as error:
            return str(error)
        except OSError as error:
            return trouble_of(error)

    def write(
        self,
        objects: Mapping[str, bytes],
        replace: Container[str] = (),
        seconds: float | None = None,  # noqa: ARG002 - as in `read`
    ) -> WriteResult:
        """All of them, on threads; see `Objects`."""

        def write(name: str) -> bool | StoreFailure:
            try:
                return self._write(name, objects[name], replace=name in replace)
            except OSError as error:
                return trouble_of(error)

        done = dict(zip(objects, self._threads.map(write, objects), strict=True))
        return WriteResult(
            {name: unwritten(one) for name, one in done.items() if isinstance(one, StoreFailure)},
            frozenset(name for name, one in done.items() if one is False),
        )

    def _write(self, name: str, data: bytes, *, replace: bool) -> bool:
        """Whether it was not there before. A name appears with all of its bytes, and only once."""
        target = self._root / name
        if not replace and target.exists():
            return False
        fresh = self._root / _NEW / uuid4().hex
        self._making(fresh, lambda: fresh.write_bytes(data))
        try:
            if replace:
                self._making(target, lambda: fresh.replace(target))
            else:
                self._making(target, lambda: _link(fresh, target))
        except FileExistsError:
            return False
        finally:
            fresh.unlink(missing_ok=True)
        return True

    def _making(self, path: Path, act: Callable[[], object]) -> None:
        """Act; where the folder of a path is not there yet, make it and act again."""
        try:
            act()
        except FileNotFoundError:
            if not self._root.is_dir():  # not mounted any more: nothing is to be made in its place
                raise
            path.parent.mkdir(parents=True, exist_ok=True)
            act()

    def list(self, folder: str) -> dict[str, int]:
        """Bytes of every file below a folder, by name; see `Objects`."""
        try:
            return dict(_files(self._root, folder))
        except OSError as error:
            msg = f"{self.named}: {trouble_of(error).words}"
            raise StoreError(msg) from None

    def sweep(self) -> None:
        """Remove what processes that were killed left half-written."""
        with suppress(OSError):  # somebody else's files, or no right to: they do no harm
            for left in (self._root / _NEW).iterdir():
                if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                    left.unlink()

    def close(self) -> None:
        """Let go of the threads."""
        if "_threads" in self.__dict__:
            # Whoever wanted their answers has them; one that the kernel holds up is not waited for.
            self._threads.shutdown(wait=False, cancel_futures=True)


def _link(fresh: Path, target: Path) -> None:
    """Give a file its name unless that is taken; where there are no links, the last one wins."""
    try:
        os.link(fresh, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        fresh.replace(target)


def _files(root: Path, folder: str) -> Iterator[tuple[str, int]]:
    for place, _, names in os.walk(root / folder):
        for name in names:
            path = Path(place, name)
            with suppress(FileNotFoundError):
                yield path.relative_to(root).as_posix(), path.stat().st_size
