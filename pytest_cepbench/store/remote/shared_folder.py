"""Shared stores as files below a folder, such as one that several machines mount."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from pytest_cepbench.errors import StoreError, UnfitFileError
from pytest_cepbench.files import read_regular
from pytest_cepbench.store.remote.object_store import (
    FetchResult,
    StoreFailure,
    failure_of,
    most_bytes,
    write_failures,
)

_THREADS = 16  # a mounted folder answers as slowly as the network does

_NEW = "new"

_STALE_SECONDS = 86400.0  # clocks of machines differ, but not by a day

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)


class FolderObjects:
    """The objects in a folder; see `ObjectStore`.

    root: the folder.
    named: the option and the folder as the user gave them.
    """

    def __init__(self, root: Path, named: str) -> None:
        self.named = named
        self._root = root
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="shared-store")

    def read(
        self,
        names: Sequence[str],
        seconds: float | None = None,  # noqa: ARG002 - the kernel has no timeout
    ) -> FetchResult:
        """Read all of them, on threads; see `ObjectStore`."""
        return FetchResult.of(dict(zip(names, self._threads.map(self._read, names), strict=True)))

    def _read(self, name: str) -> bytes | str | StoreFailure:
        """The object, why it is unfit, or the failure to read it."""
        try:
            return read_regular(self._root / name, most_bytes(name))
        except UnfitFileError as error:
            return str(error)
        except OSError as error:
            return failure_of(error)

    def write(
        self,
        objects: Mapping[str, bytes],
        replace: Container[str] = (),
        seconds: float | None = None,  # noqa: ARG002 - as in `read`
    ) -> dict[str, StoreFailure]:
        """Write all of them, on threads; see `ObjectStore`."""

        def write(name: str) -> StoreFailure | None:
            try:
                self._write(name, objects[name], replace=name in replace)
            except OSError as error:
                return failure_of(error)
            return None

        return write_failures(dict(zip(objects, self._threads.map(write, objects), strict=True)))

    def _write(self, name: str, data: bytes, *, replace: bool) -> None:
        target = self._root / name
        if not replace and target.exists():
            return
        fresh = self._root / _NEW / uuid4().hex
        self._in_folder(fresh, lambda: fresh.write_bytes(data))
        try:
            if replace:
                self._in_folder(target, lambda: fresh.replace(target))
            else:
                self._in_folder(target, lambda: _link(fresh, target))
        except FileExistsError:  # another process was first
            return
        finally:
            fresh.unlink(missing_ok=True)

    def _in_folder(self, path: Path, action: Callable[[], object]) -> None:
        """Call the action; where the folder of a path is absent, create it and call again."""
        try:
            action()
        except FileNotFoundError:
            if not self._root.is_dir():  # no longer mounted: create nothing on the disk below it
                raise
            path.parent.mkdir(parents=True, exist_ok=True)
            action()

    def list(self, folder: str) -> dict[str, int]:
        """Sizes in bytes of all files below a folder, by name; see `ObjectStore`."""
        sizes = {}
        try:
            for parent, _, names in os.walk(self._root / folder):
                for name in names:
                    path = Path(parent, name)
                    with suppress(FileNotFoundError):
                        sizes[path.relative_to(self._root).as_posix()] = path.stat().st_size
        except OSError as error:
            raise StoreError(f"{self.named}: {failure_of(error).message}") from None
        return sizes

    def remove_stale(self) -> None:
        """Remove what killed processes left half-written."""
        with suppress(OSError):  # other users' files, or no right to: they do no harm
            for path in (self._root / _NEW).iterdir():
                if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                    path.unlink()

    def close(self) -> None:
        """End the threads; one that the kernel blocks is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _link(fresh: Path, target: Path) -> None:
    """Give a file its name unless that is taken; where there are no links, the last one wins."""
    try:
        os.link(fresh, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        fresh.replace(target)
