"""Asking a model for a batch: as much at once as fits, and one by one where one input spoils it."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import CepError, DeviceMemoryError, ModelError
from pytest_cepbench.models.protocols import BoundRole, Model, Reply, Usage
from pytest_cepbench.models.torch_runtime import is_out_of_memory, release_memory

LARGEST = 32
"""Most inputs of a batch that nobody asked for."""

_WORTH = 0.95  # a larger batch stays where an input takes at most this much of the time

Ask = Callable[[Model, Sequence[Any], Sequence[int]], Sequence[object]]


@dataclass
class CallCounts:
    """What a role did in this process.

    seconds: in its model's own code, loading included. usage: what its model counted. remarks: what
    it had to say to people, each once. codes: under which stored answers were made that it took,
    other than its own. provenances: of its results, as JSON, each once, where people are told of them.
    """

    loads: int = 0
    inputs: int = 0
    hits: int = 0
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    remarks: dict[str, None] = field(default_factory=dict)
    codes: dict[str, None] = field(default_factory=dict)
    provenances: dict[str, None] = field(default_factory=dict)

    def hear(self, outputs: Iterable[object]) -> None:
        """Count what replies say they took, and keep what they remark."""
        for one in outputs:
            if isinstance(one, Reply):
                self.usage += one.usage
                self.remarks.update(dict.fromkeys(one.remarks))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count the time of a model's own code, and keep its libraries' warnings warnings.

        Under a user's `-W error` a deprecation inside a library would be a failed step otherwise. On
        other threads than the main one no model's code runs here, but on a cluster.
        """
        started = time.perf_counter()
        try:
            # Filters are the whole process's: threads would put back one another's.
            with warnings.catch_warnings(action="default") if in_main_thread() else nullcontext():
                yield
        finally:
            self.seconds += time.perf_counter() - started


def total(tallies: Iterable[CallCounts]) -> CallCounts:
    """What several roles did together."""
    together = CallCounts()
    for tally in tallies:
        together.loads += tally.loads
        together.inputs += tally.inputs
        together.hits += tally.hits
        together.seconds += tally.seconds
        together.usage += tally.usage
        together.remarks |= tally.remarks
        together.codes |= tally.codes
        together.provenances |= tally.provenances
    return together


class MemoryBudget(Protocol):
    """The memory of the device that a model works on."""

    def watch(self) -> None:
        """A batch begins."""

    def fits_twice(self) -> bool:
        """Whether a batch of twice the size would have fit, by what the last one took."""


@dataclass(frozen=True)
class TransientFailure:
    """A failure that is counted now and not stored: it may go better another time."""

    failure: Failure


@dataclass
class BatchCaller:
    """Asks one model, in batches of the size that suits it.

    size: most inputs in one call; halved when memory runs out, and doubled while there is room and it
    pays, where nobody asked for a size. room: None where no more is to be tried. settled: whether
    no other size is tried any more. pace: seconds per input of the last full batch,
    of the first call as long as there was none.
    """

    bound: BoundRole
    tally: CallCounts
    size: int
    room: MemoryBudget | None = None
    settled: bool = False
    pace: float | None = None
    _smaller: tuple[int, float] | None = field(default=None, repr=False)
    _warm: int = field(default=0, repr=False)  # the size that full batches have been asked at

    def call(
        self, model: Model, inputs: Sequence[Any], seeds: Sequence[int], ask: Ask
    ) -> list[Any]:
        """One output for each input, or a `Passing` failure.

        Raises DeviceMemoryError when a single input does not fit, ModelError when there is not one
        output for each input, and CepErrors of the model.
        """
        if self.room is not None:
            self.room.watch()
        started = time.perf_counter()
        whole, size = len(inputs) >= self.size, self.size
        outputs = self._ask(model, inputs, seeds, ask)
        seconds = (time.perf_counter() - started) / len(inputs)
        if self.pace is None:
            self.pace = seconds  # better than nothing, until there is a full batch
        if whole and self.size == size:
            self._pace_of(seconds)
        return outputs

    def _ask(
        self, model: Model, inputs: Sequence[Any], seeds: Sequence[int], ask: Ask
    ) -> list[Any]:
        try:
            with self.tally.at_work():
                outputs = list(ask(model, inputs, seeds))
        except CepError:
            raise
        except Exception as error:  # noqa: BLE001 - any exception of a model is an outcome (design 4)
            # The exception itself is let go: its traceback holds the tensors that did not fit.
            no_memory, words = is_out_of_memory(error), in_words(error)
        else:
            if len(outputs) != len(inputs):
                msg = f"{self.bound.spec} returned {len(outputs)} results for {len(inputs)} inputs"
                raise ModelError(msg)
            self.tally.inputs += len(inputs)
            self.tally.hear(outputs)
            return outputs
        if no_memory:
            release_memory()
        if len(inputs) == 1:
            return [self._failed(words, no_memory=no_memory)]
        half = (len(inputs) + 1) // 2
        if no_memory:
            self.size, self.settled = half, True
        halves = (slice(0, half), slice(half, None))
        return [
            output for part in halves for output in self._ask(model, inputs[part], seeds[part], ask)
        ]

    def _failed(self, words: str, *, no_memory: bool) -> TransientFailure:
        if no_memory:
            msg = (
                f"{self.bound.spec} runs out of memory on a single input: use a smaller dtype, "
                f"smaller images, --cep-residency=swap, or a larger device ({words})"
            )
            raise DeviceMemoryError(msg)
        return TransientFailure(Failure("exception", words))

    def _pace_of(self, seconds: float) -> None:
        """A full batch took so many seconds per input: keep to its size, or try another."""
        if self._warm != self.size:  # the first of a size also compiles and allocates
            self._warm = self.size
            return
        self.pace = seconds
        if self.settled or self.room is None:
            return
        if self._smaller is not None and seconds > _WORTH * self._smaller[1]:
            (self.size, self.pace), self.settled = self._smaller, True
        elif 2 * self.size <= LARGEST and self.room.fits_twice():
            self._smaller = (self.size, seconds)
            self.size *= 2


def in_main_thread() -> bool:
    """Whether this is the thread that the interpreter began with."""
    return threading.current_thread() is threading.main_thread()


def in_words(error: Exception) -> str:
    """An exception of a model, short enough to be stored."""
    return f"{type(error).__name__}: {error}"[:300]
