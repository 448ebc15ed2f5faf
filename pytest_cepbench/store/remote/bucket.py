"""Shared stores in whatever fsspec supports: S3 and compatible servers, and others."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fsspec.asyn import get_loop, sync

from pytest_cepbench.errors import StoreError
from pytest_cepbench.store.remote.object_store import (
    AT_ONCE,
    ObjectStore,
    StoreFailure,
    failure_of,
    most_bytes,
    server_answer,
)

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_SECONDS = 120.0  # for one object, retries of the library included

_LISTING_SECONDS = 3600.0  # a thousand names a request

_CLOSING_SECONDS = 5.0  # a server that does not answer must not keep the process

_RETRY_PAUSE = 1.0


class BucketObjects(ObjectStore):
    """The objects below a path of a file system; see `ObjectStore`.

    fs: used by this object only, since its connections are closed in the end.
    root: the path there.
    named: the option and the URL as the user gave them, without secrets.
    """

    def __init__(self, fs: AbstractFileSystem, root: str, named: str) -> None:
        super().__init__(named)
        self._fs = fs
        self._root = root.rstrip("/")
        self._can_create = True  # until the file system refuses a conditional write
        # Not every web server honours a request for a part of a file.
        protocols = [fs.protocol] if isinstance(fs.protocol, str) else fs.protocol
        self._reads_ranges = {"http", "https"}.isdisjoint(protocols)

    async def _read(self, name: str, seconds: float) -> bytes | str:
        """The object, or why it is unfit. A byte beyond the limit shows that it is too large."""
        path, end = self._path(name), most_bytes(name) + 1
        if not self._reads_ranges:
            size = (await self._call("info", path, seconds=seconds)).get("size")
            if isinstance(size, int) and size >= end:
                return _too_large(name)
        try:
            data: bytes = await self._call("cat_file", path, start=0, end=end, seconds=seconds)
        except Exception as error:
            if server_answer(error)[1] == 416:  # an empty object has no range
                return b""
            raise
        return data if len(data) < end else _too_large(name)

    async def _write(self, name: str, data: bytes, seconds: float, *, replace: bool) -> None:
        path = self._path(name)
        if self._can_create and not replace:
            try:
                await self._call("pipe_file", path, data, mode="create", seconds=seconds)
            except FileExistsError:
                return
            except (TypeError, NotImplementedError):
                # Not every implementation of this method has modes, or has this one.
                self._can_create = False
            except OSError as error:
                _, status = server_answer(error)
                if status in (409, 412):  # not all servers name the condition that failed
                    return
                if error.errno != errno.ENOSYS and status != 501:
                    raise
                self._can_create = False
            else:
                return
        await self._call("pipe_file", path, data, seconds=seconds)

    def list(self, folder: str) -> dict[str, int]:
        """Sizes in bytes of all objects below a folder, by name; see `ObjectStore`."""

        async def find(name: str, seconds: float) -> dict[str, Any]:
            try:
                path = self._path(name)
                entries: dict[str, Any] = await self._call(
                    "find", path, detail=True, seconds=seconds
                )
            except FileNotFoundError:
                return {}
            self._fs.invalidate_cache()  # it holds a second copy of the whole listing
            return entries

        answer = self._for_each([folder], find, _LISTING_SECONDS)[folder]
        if isinstance(answer, StoreFailure):
            raise StoreError(f"{self.named}: {answer.message}")
        start = len(self._path("").lstrip("/"))
        return {path.lstrip("/")[start:]: int(entry["size"] or 0) for path, entry in answer.items()}

    def close(self) -> None:
        """Close the library's connections, which it would do only when the process ends."""
        with suppress(Exception):  # the process goes on without them
            if hasattr(self._fs, "set_session"):  # of S3 and HTTP: returns the open one
                client = sync(get_loop(), self._fs.set_session, timeout=_CLOSING_SECONDS)
            else:
                client = getattr(self._fs, "session", None)
            if client is not None:
                sync(get_loop(), client.close, timeout=_CLOSING_SECONDS)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    async def _call(self, method: str, *args: Any, seconds: float, **options: Any) -> Any:
        """Call a method of the file system with a timeout. Raises whatever the library raises."""
        if self._fs.async_impl:
            request = getattr(self._fs, f"_{method}")(*args, **options)
        else:
            request = asyncio.to_thread(getattr(self._fs, method), *args, **options)
        return await asyncio.wait_for(request, seconds)

    def _for_each(
        self,
        names: Iterable[str],
        action: Callable[[str, float], Awaitable[Any]],
        seconds: float | None,
    ) -> dict[str, Any]:
        """Run up to AT_ONCE actions at the same time, on fsspec's thread.

        That is a daemon: after an interrupt, a process must not wait for a server before it ends.
        """
        names = list(names)

        async def answers() -> list[Any]:
            free = asyncio.Semaphore(AT_ONCE)

            async def answer(name: str) -> Any:
                async with free:
                    return await _attempt(action, name, seconds)

            return await asyncio.gather(*map(answer, names))

        running = asyncio.run_coroutine_threadsafe(answers(), get_loop())
        try:
            return dict(zip(names, running.result(), strict=True))
        except BaseException:  # an interrupt
            running.cancel()
            raise


async def _attempt(
    action: Callable[[str, float], Awaitable[Any]], name: str, seconds: float | None
) -> Any:
    """What the action returns, or its failure.

    A transient failure is tried once more, unless seconds limits each try.
    """
    try:
        return await action(name, seconds or _SECONDS)
    except Exception as error:  # noqa: BLE001 - libraries raise anything
        failure = failure_of(error)
    if seconds is not None or not failure.transient:
        return failure
    await asyncio.sleep(_RETRY_PAUSE)
    return await _attempt(action, name, _SECONDS)


def _too_large(name: str) -> str:
    return f"it has more than {most_bytes(name):,} bytes"
