"""A place that answers late, counts what it is asked, and stops answering when it is told to."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import fsspec
from fsspec.asyn import AsyncFileSystem


class SlowFileSystem(AsyncFileSystem):  # type: ignore[misc] # fsspec has no types
    """Objects in memory, all behind `delay` seconds; one for the whole process, see `reset`.

    failures: requests that still fail, before others are answered.
    blocked: nothing is written after a first object, the marker, until this is False again.
    """

    protocol = "slow"
    delay: ClassVar[float] = 0.0
    broken: ClassVar[bool] = False
    failures: ClassVar[int] = 0
    blocked: ClassVar[bool] = False
    held: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []
    written: ClassVar[list[str]] = []

    @classmethod
    def reset(cls) -> None:
        """Empty, fast and sound again."""
        cls.delay, cls.broken, cls.failures, cls.blocked = 0.0, False, 0, False
        for content in (cls.held, cls.asked, cls.written):
            content.clear()

    async def _cat_file(self, path: str, **_: Any) -> bytes:
        self.asked.append(path)
        await self._answer()
        if path not in self.held:
            raise FileNotFoundError(path)
        return self.held[path]

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        await self._answer()
        while self.blocked and self.held:
            await asyncio.sleep(0.01)
        if mode == "create" and path in self.held:
            raise FileExistsError(path)
        self.held[path] = value
        self.written.append(path)

    async def _answer(self) -> None:
        await asyncio.sleep(self.delay)
        if self.failures:
            type(self).failures -= 1
            raise ConnectionError("a hiccup")
        if self.broken:
            raise ConnectionError("the cable is out")


fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
