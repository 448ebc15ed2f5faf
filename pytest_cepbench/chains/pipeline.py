"""A pipeline of one role's batches: threads prepare inputs ahead and store results behind.

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
from itertools import islice
from typing import Any, Generic, TypeVar

from pytest_cepbench.chains.preparation import Preparation

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
    preparation: Preparation[L, Any] | None = None,
) -> list[Callable[[], R]]:
    """Work off the items in order, `size()` at a time, called anew before each batch.

    read: gives an item's input; on threads, at most two batches ahead, where `ahead` and where it
        takes long.
    call: works on a batch and returns what stores its results, or None.
    writer: stores them, batch by batch; None where that is not worth a thread.
    preparation: prepares the next batch meanwhile; `call` takes what was prepared of its own.
    Returns a function for each batch, in order, that waits until it is stored. Raises what reading
    and calling raise, and what storing all but the last batches raises; batches that were called
    are stored then.
    """
    storing: list[Callable[[], R]] = []
    with ThreadPoolExecutor(_READERS) as readers:
        try:
            inputs = _Inputs(items, read, readers, always=preparation is not None, maybe=ahead)
            while inputs.left:
                batch, reads = inputs.next_batch(size())
                values = [result() for result in reads]
                if preparation is not None:
                    preparation.advance(inputs.following)
                store = call(batch, values)
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


class _Inputs(Generic[S, L]):
    """The inputs of items in order, read on threads where that takes long.

    always: read on threads. maybe: read there where the first takes long, which is read at once.
    """

    def __init__(
        self,
        items: Sequence[S],
        read: Callable[[S], L],
        readers: Executor,
        *,
        always: bool,
        maybe: bool,
    ) -> None:
        self._waiting = deque(items)
        self._reading: deque[tuple[S, Callable[[], L]]] = deque()
        self._read, self._readers = read, readers
        self._most = 1
        if self._waiting:
            first, started = self._waiting.popleft(), time.perf_counter()
            self._reading.append((first, partial(_same, read(first))))
            maybe = maybe and time.perf_counter() - started > _WORTH
        self._ahead = always or maybe

    @property
    def left(self) -> bool:
        """Whether there are items that were in no batch."""
        return bool(self._waiting or self._reading)

    @property
    def following(self) -> list[Callable[[], L]]:
        """Those that wait for the inputs of the next batch, if its size is that of the last one."""
        return [result for _, result in islice(self._reading, self._most)]

    def next_batch(self, most: int) -> tuple[list[S], list[Callable[[], L]]]:
        """The next items, and what waits for the input of each; as many are read ahead."""
        self._most = most
        self._read_ahead()
        batch = [self._reading.popleft() for _ in range(min(most, len(self._reading)))]
        if self._ahead:
            self._read_ahead()
        return [item for item, _ in batch], [result for _, result in batch]

    def _read_ahead(self) -> None:
        while self._waiting and len(self._reading) < self._most:
            item = self._waiting.popleft()
            read = self._read
            result = self._readers.submit(read, item).result if self._ahead else partial(read, item)
            self._reading.append((item, result))


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
