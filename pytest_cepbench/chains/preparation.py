"""Images that are loaded, resized and made numbers of before a model is asked about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from operator import is_
from typing import Generic, TypeVar

L = TypeVar("L")
P = TypeVar("P")


@dataclass(frozen=True)
class PreparedBatch(Generic[L, P]):
    """What a model reads of the inputs of a batch."""

    inputs: Sequence[L]
    prepared: P

    def of(self, inputs: Sequence[L]) -> P | None:
        """What was prepared, where it was of exactly these inputs."""
        same = len(inputs) == len(self.inputs) and all(map(is_, inputs, self.inputs))
        return self.prepared if same else None


class Preparation(Generic[L, P]):
    """Prepares the inputs of the next batch on a thread, while a model works on another batch.

    prepare: makes what the model reads of the inputs of a batch.
    """

    def __init__(self, prepare: Callable[[Sequence[L]], P]) -> None:
        self._prepare = prepare
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prepare")
        self._current: Future[PreparedBatch[L, P]] | None = None
        self._next: Future[PreparedBatch[L, P]] | None = None

    def advance(self, reads: Sequence[Callable[[], L]]) -> None:
        """Go on to the batch that is being prepared, and begin to prepare the one after it.

        reads: wait for the inputs of that one.
        """
        self._current, self._next = self._next, None
        if reads:
            self._next = self._thread.submit(self._work, reads)

    def _work(self, reads: Sequence[Callable[[], L]]) -> PreparedBatch[L, P]:
        inputs = [read() for read in reads]
        return PreparedBatch(inputs, self._prepare(inputs))

    def take(self, inputs: Sequence[L]) -> P | None:
        """What was prepared of exactly these inputs; None where it has to be prepared now.

        So it is where preparing failed: the error comes to the thread that calls the model.
        """
        current, self._current = self._current, None
        if current is None or current.exception() is not None:
            return None
        return current.result().of(inputs)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)
