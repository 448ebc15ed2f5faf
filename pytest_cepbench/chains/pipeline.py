"""Batches of one role on their way: inputs are read ahead and results stored behind, on threads.

The model is only ever called on the thread that asks, one batch after the other: what it returns
depends on the batches alone. Reading and decoding, encoding and writing let go of Python's lock for
most of their time, so they cost the model little.
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

_WORTH = 0.0005  # seconds of reading an input; less costs less than a thread's turn

_IN_FLIGHT = 2  # batches that are being stored; more would only hold memory

S = TypeVar("S")
L = TypeVar("L")
R = TypeVar("R")


def in_batches(
    items: Sequence[S],
    size: Callable[[], int],
    keeper: Executor | None,
    *,
    read: Callable[[S], L],
    call: Callable[[Sequence[S], Sequence[L]], Callable[[], R] | None],
    ahead: bool,
) -> list[Callable[[], R]]:
    """Work off the items in order, `size()` at a time, asked anew before each batch.

    read: gives an item's input; on threads, at most two batches ahead, where `ahead` and where it
    takes long. call: works on a batch and returns what is left to do with its results, or None.
    keeper: does that, one after the other; None where it is not worth a thread. Returns what waits
    for the outcome of each batch, in order. Raises what reading and calling raise, and what was left
    to do of all but the last batches; what was called before is finished then.
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
                rest = call([item for item, _ in batch], [give() for _, give in batch])
                if rest is not None:
                    storing.append(_begin(rest, keeper))
                if len(storing) > _IN_FLIGHT:
                    storing[-1 - _IN_FLIGHT]()
        except BaseException:
            readers.shutdown(wait=False, cancel_futures=True)
            for wait in storing:
                with suppress(Exception):  # the first that went wrong is the one to tell
                    wait()
            raise
    return storing


def _begin(rest: Callable[[], R], keeper: Executor | None) -> Callable[[], R]:
    """Have the rest done by the keeper, or now; returns what waits for it."""
    return partial(_same, rest()) if keeper is None else keeper.submit(rest).result


def _same(value: R) -> R:
    return value


def read_all(items: Sequence[S], read: Callable[[S], L]) -> list[L | Exception]:
    """What `read` gives for each item, or the exception it raised; on threads where it takes long."""

    def attempt(item: S) -> L | Exception:
        try:
            return read(item)
        except Exception as error:  # noqa: BLE001 - the caller tells which it expects
            return error

    found: list[L | Exception] = []
    started = time.perf_counter()
    for number, item in enumerate(items):
        found.append(attempt(item))
        if time.perf_counter() - started > _WORTH * (number + 1):
            break
    with ThreadPoolExecutor(_READERS) as readers:
        return found + list(readers.map(attempt, items[len(found) :]))
