"""Objects in whatever fsspec reaches: S3 and what speaks like it, Google's storage, and others."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Container, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_cepbench.errors import StoreError
from pytest_cepbench.store.remote.object_store import AT_ONCE, FetchResult, WriteResult, most_bytes
from pytest_cepbench.store.remote.remote_errors import (
    StoreFailure,
    answer_of,
    trouble_of,
    unwritten,
)

if TYPE_CHECKING:
    from fsspec.asyn import AsyncFileSystem

_SECONDS = 120.0  # for one object, retries of the library included

_LISTING_SECONDS = 3600.0  # a thousand names a request

_PAUSE = 1.0

_T = TypeVar("_T")


class BucketObjects:
    """The objects below a path of a file system; see `Objects`.

    fs: not shared with anybody, since it is closed in the end. root: the path there.
    """

    def __init__(self, fs: AsyncFileSystem, root: str, named: str) -> None:
        self.named = named
        self._fs = fs
        self._root = root.rstrip("/")
        self._exclusive = True
        # Not every web server gives a part of a file that is asked for.
        self._whole = not {"http", "https"}.isdisjoint(_protocols(fs))

    def read(self, names: Sequence[str], seconds: float | None = None) -> FetchResult:
        """All of them in about one round trip; see `Objects`."""
        answers = self._all(dict.fromkeys(names, self._read), seconds)
        troubles = [one for one in answers.values() if isinstance(one, StoreFailure)]
        return FetchResult(
            {name: one for name, one in answers.items() if isinstance(one, bytes)},
            next((one for one in troubles if one.kind != "absent"), None),
            {name: one for name, one in answers.items() if isinstance(one, str)},
        )

    async def _read(self, name: str) -> bytes | str:
        """The object, or why it is none. One byte more than it may have tells that it is too large."""
        path, end = self._path(name), most_bytes(name) + 1
        if self._whole:
            size = (await self._fs._info(path)).get("size")  # noqa: SLF001 - fsspec's name for what can be awaited
            if isinstance(size, int) and size >= end:
                return _too_large(name)
        try:
            data: bytes = await self._fs._cat_file(path, start=0, end=end)  # noqa: SLF001 - as above
        except Exception as error:
            if answer_of(error)[1] == 416:  # there is no part of what is empty
                return b""
            raise
        return data if len(data) < end else _too_large(name)

    def write(
        self,
        objects: Mapping[str, bytes],
        replace: Container[str] = (),
        seconds: float | None = None,
    ) -> WriteResult:
        """All of them in about one round trip; see `Objects`."""

        async def write(name: str) -> bool:
            return await self._write(name, objects[name], replace=name in replace)

        answers = self._all(dict.fromkeys(objects, write), seconds)
        return WriteResult(
            {
                name: unwritten(one)
                for name, one in answers.items()
                if isinstance(one, StoreFailure)
            },
            frozenset(name for name, one in answers.items() if one is False),
        )

    async def _write(self, name: str, data: bytes, *, replace: bool) -> bool:
        """Whether it was not there before, where the file system can tell."""
        path = self._path(name)
        if self._exclusive and not replace:
            try:
                await self._fs._pipe_file(path, data, mode="create")  # noqa: SLF001 - as above
            except FileExistsError:
                return False
            except (TypeError, NotImplementedError):
                self._exclusive = False
            except OSError as error:
                if _status(error) in (409, 412):  # not all servers name the condition that failed
                    return False
                if error.errno != errno.ENOSYS and _status(error) != 501:
                    raise
                self._exclusive = False
            else:
                return True
        await self._fs._pipe_file(path, data)  # noqa: SLF001 - as above
        return True

    def list(self, folder: str) -> dict[str, int]:
        """Bytes of every object below a folder, by name; see `Objects`."""

        async def find(name: str) -> dict[str, Any]:
            try:
                found: dict[str, Any] = await self._fs._find(self._path(name), detail=True)  # noqa: SLF001 - as above
            except FileNotFoundError:
                return {}
            self._fs.invalidate_cache()  # which holds all of it once more
            return found

        answer = self._all({folder: find}, _LISTING_SECONDS)[folder]
        if isinstance(answer, StoreFailure):
            msg = f"{self.named}: {answer.words}"
            raise StoreError(msg)
        start = len(self._path("").lstrip("/"))
        return {path.lstrip("/")[start:]: int(one["size"] or 0) for path, one in answer.items()}

    def close(self) -> None:
        """Close the library's connections: it does so by itself only when it is too late."""
        for name in ("_s3", "_session"):
            client = getattr(self._fs, name, None)
            if client is not None and hasattr(client, "close"):
                with suppress(Exception):  # it is left anyway
                    self._wait(_closing(client), 5.0)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _all(self, asked: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
        """What each coroutine function gives for its name, or what troubled it.

        What may pass is tried once more, unless there is a limit of seconds.
        """

        async def once(name: str) -> Any:
            try:
                return await asyncio.wait_for(asked[name](name), seconds or _SECONDS)
            except Exception as error:  # noqa: BLE001 - libraries raise what they like
                return trouble_of(error)

        async def one(name: str, gate: asyncio.Semaphore) -> Any:
            async with gate:
                answer = await once(name)
                if isinstance(answer, StoreFailure) and answer.passing and seconds is None:
                    await asyncio.sleep(_PAUSE)
                    answer = await once(name)
            return answer

        async def everything() -> list[Any]:
            gate = asyncio.Semaphore(AT_ONCE)
            return await asyncio.gather(*(one(name, gate) for name in asked))

        return dict(zip(asked, self._wait(everything(), None), strict=True))

    def _wait(self, work: Coroutine[Any, Any, _T], seconds: float | None) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._fs.loop)
        try:
            return future.result(seconds)
        except BaseException:  # an interrupt, mostly
            future.cancel()
            raise


def _too_large(name: str) -> str:
    return f"it has more than {most_bytes(name):,} bytes"


def _protocols(fs: AsyncFileSystem) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


async def _closing(client: Any) -> None:
    await client.close()


def _status(error: OSError) -> int | None:
    response = getattr(error.__cause__, "response", None) or {}
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None
