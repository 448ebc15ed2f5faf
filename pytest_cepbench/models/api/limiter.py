"""How many requests may be on the way: fewer after each "too many", one more after many that went well."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class RequestLimiter:
    """The places for requests of one event loop.

    most: how many there are at best. rpm: most requests per minute, None for any number. What lowers
    them is shared: where a server says that it has too much to do, it says so to all.
    """

    def __init__(self, most: int, rpm: float | None = None) -> None:
        self._most = most
        self._limit = float(most)
        self._busy = 0
        self._freed = asyncio.Event()
        self._door = asyncio.Lock()  # hands places out in the order in which they are asked for
        self._spacing = 60.0 / rpm if rpm else 0.0
        self._next = 0.0
        self._held_until = 0.0
        self._lowered = 0.0

    @property
    def limit(self) -> int:
        """How many may be on the way now."""
        return max(1, int(self._limit))

    @asynccontextmanager
    async def place(self) -> AsyncIterator[float]:
        """Wait for a place and keep it; gives the time when it was taken."""
        async with self._door:
            await self._wait()
            self._busy += 1
            now = time.monotonic()
            self._next = max(now, self._next) + self._spacing
        try:
            yield now
        finally:
            self._busy -= 1
            self._freed.set()

    async def _wait(self) -> None:
        while True:
            pause = max(self._held_until, self._next) - time.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            elif self._busy >= self.limit:
                self._freed.clear()
                await self._freed.wait()
            else:
                return

    def went_well(self) -> None:
        """A request was answered: after as many as there are places, there is one place more."""
        self._limit = min(self._most, self._limit + 1.0 / self._limit)

    def throttled(self, taken: float, wait: float) -> None:
        """A request that took its place at `taken` was one too many; all are held for `wait` seconds.

        Those that were on the way together lower the limit once.
        """
        now = time.monotonic()
        self._held_until = max(self._held_until, now + wait)
        if taken >= self._lowered:
            self._limit = max(1.0, self._limit / 2)
            self._lowered = now
