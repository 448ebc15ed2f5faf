"""Batches of one role on their way: inputs are read ahead and results stored behind, on threads.

The model is only ever called on the thread that asks, one batch after the other: what it returns
depends on the batches alone. Reading and decoding, encoding and writing let go of Python's lock for
most of their time, so they cost the model little.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_READERS = min(4, os.cpu_count() or 1)

_IN_FLIGHT = 2  # batches that are being stored; more would only hold memory

S = TypeVar("S")
L = TypeVar("L")
R = TypeVar("R")


def in_batches(
    items: Sequence[S],
    size: Callable[[], int],
    *,
    read: Callable[[S], L],
    call: Callable[[Sequence[S], Sequence[L]], Callable[[], R] | None],
    ahead: bool,
) -> list[R]:
    """Work off the items in order, `size()` at a time, asked anew before each batch.

    read: gives an item's input; on threads, at most two batches ahead, where `ahead`. call: works on
    a batch and returns what is left to do with its results, which a thread does, or None. Returns
    what that gave, in order. Raises what any of them raises; what was called before is finished.
    """
    waiting = deque(items)
    reading: deque[tuple[S, Future[L]]] = deque()
    storing: deque[Future[R]] = deque()
    kept: list[R] = []
    with ThreadPoolExecutor(_READERS) as readers, ThreadPoolExecutor(1) as keeper:

        def read_ahead(most: int) -> None:
            while waiting and len(reading) < most:
                item = waiting.popleft()
                reading.append((item, readers.submit(read, item) if ahead else _done(read, item)))

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
                    kept.append(storing.popleft().result())
            kept += [future.result() for future in storing]
        except BaseException:
            for _, future in reading:
                future.cancel()
            raise
    return kept


def _done(read: Callable[[S], L], item: S) -> Future[L]:
    """A future that holds its result already."""
    future: Future[L] = Future()
    try:
        future.set_result(read(item))
    except Exception as error:  # noqa: BLE001 - raised again where the result is asked for
        future.set_exception(error)
    return future
