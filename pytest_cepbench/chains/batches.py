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
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
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
    keeper: Executor,
    *,
    read: Callable[[S], L],
    call: Callable[[Sequence[S], Sequence[L]], Callable[[], R] | None],
    ahead: bool,
) -> list[Future[R]]:
    """Work off the items in order, `size()` at a time, asked anew before each batch.

    read: gives an item's input; on threads, at most two batches ahead, where `ahead` and where it
    takes long. call: works on a batch and returns what is left to do with its results, or None.
    keeper: does that, one after the other. Returns what comes of it, in order; the last may not be
    done yet. Raises what reading and calling raise, and what was left to do of all but the last
    batches; what was called before is finished then.
    """
    waiting = deque(items)
    reading: deque[tuple[S, Future[L]]] = deque()
    storing: list[Future[R]] = []
    if waiting:
        started = time.perf_counter()
        reading.append(_read_now(read, waiting.popleft()))
        ahead = ahead and time.perf_counter() - started > _WORTH
    with ThreadPoolExecutor(_READERS) as readers:

        def read_ahead(most: int) -> None:
            while waiting and len(reading) < most:
                item = waiting.popleft()
                reading.append(
                    (item, readers.submit(read, item)) if ahead else _read_now(read, item)
                )

        try:
            while waiting or reading:
                most = size()
                read_ahead(most)
                batch = [reading.popleft() for _ in range(min(most, len(reading)))]
                if ahead:
                    read_ahead(most)
                rest = call([item for item, _ in batch], [future.result() for _, future in batch])
                if rest is not None:
                    storing.append(keeper.submit(rest))
                if len(storing) > _IN_FLIGHT:
                    storing[-1 - _IN_FLIGHT].result()
        except BaseException:
            for _, future in reading:
                future.cancel()
            wait(storing)
            raise
    return storing


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


def _read_now(read: Callable[[S], L], item: S) -> tuple[S, Future[L]]:
    """An item, and a future that holds its input already."""
    future: Future[L] = Future()
    try:
        future.set_result(read(item))
    except Exception as error:  # noqa: BLE001 - raised again where the result is asked for
        future.set_exception(error)
    return item, future
