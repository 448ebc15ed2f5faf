"""A pipeline of one role's batches: threads read inputs ahead and store results behind.

The model is only called on the caller's thread, one batch after the other: what it returns depends
on the batches alone. Reading and decoding, encoding and writing release Python's lock for most of
their time, so they cost the model little.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

_READERS = min(4, os.cpu_count() or 1)

_WORTH = 0.0005  # seconds of reading an input; a shorter read costs less than a thread's turn

_IN_FLIGHT = 2  # batches that are being stored; more would only hold memory

S = TypeVar("S")
L = TypeVar("L")
R = TypeVar("R")


def in_batches(
    items: Sequence[S],
    size: Callable[[], int],
    writer: Executor | None,
    *,
    read: Callable[[S], L],
    call: Callable[[Sequence[S], Sequence[L]], Callable[[], R] | None],
    ahead: bool,
) -> list[Callable[[], R]]:
    """Work off the items in order, `size()` at a time, called anew before each batch.

    read: gives an item's input; on threads, at most two batches ahead, where `ahead` and where it
        takes long.
    call: works on a batch and returns what stores its results, or None.
    writer: stores them, batch by batch; None where that is not worth a thread.
    Returns a function for each batch, in order, that waits until it is stored. Raises what reading
    and calling raise, and what storing all but the last batches raises; batches that were called
    are stored then.
    """
    waiting = deque(items)
    reading: deque[tuple[S, Callable[[], L]]] = deque()
    storing: list[Callable[[], R]] = []
    if waiting:
        first, started = waiting.popleft(), time.perf_counter()
        reading.append((first, partial(_same, read(first))))
        ahead = ahead and time.perf_counter() - started > _WORTH
    with ThreadPoolExecutor(_READERS) as readers:

        def read_ahead(most: int) -> None:
            while waiting and len(reading) < most:
                item = waiting.popleft()
                reading.append(
                    (item, readers.submit(read, item).result if ahead else partial(read, item))
                )

        try:
            while waiting or reading:
                most = size()
                read_ahead(most)
                batch = [reading.popleft() for _ in range(min(most, len(reading)))]
                if ahead:
                    read_ahead(most)
                store = call([item for item, _ in batch], [result() for _, result in batch])
                if store is not None:
                    storing.append(
                        partial(_same, store()) if writer is None else writer.submit(store).result
                    )
                if len(storing) > _IN_FLIGHT:
                    storing[-1 - _IN_FLIGHT]()
        except BaseException:
            readers.shutdown(wait=False, cancel_futures=True)
            for wait in storing:
                with suppress(Exception):  # the first error is the one to raise
                    wait()
            raise
    return storing


def _same(value: R) -> R:
    return value


def read_all(items: Sequence[S], read: Callable[[S], L]) -> list[L | Exception]:
    """`read` every item; an exception stands for its item. On threads where reading takes long."""

    def attempt(item: S) -> L | Exception:
        try:
            return read(item)
        except Exception as error:  # noqa: BLE001 - the caller knows which it expects
            return error

    results: list[L | Exception] = []
    started = time.perf_counter()
    for number, item in enumerate(items):
        results.append(attempt(item))
        if time.perf_counter() - started > _WORTH * (number + 1):
            break
    with ThreadPoolExecutor(_READERS) as readers:
        return results + list(readers.map(attempt, items[len(results) :]))
