"""Batches: as many inputs in a call as fit and pay, fewer where one input makes a call fail.

Threads read inputs ahead and store results behind. The model is only called on the caller's
thread, one batch after the other: what it returns depends on the batches alone. Reading and
decoding, encoding and writing release Python's lock for most of their time, so they cost the model
little.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from pytest_cepbench.artifacts import Failure, canonical_json, digest_json
from pytest_cepbench.errors import (
    CepError,
    DeviceMemoryError,
    ModelError,
    in_words,
    is_exit,
    is_own_bug,
)
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Model, Reply, Usage
from pytest_cepbench.models.torch_runtime import (
    DeviceMemory,
    device_name,
    is_out_of_memory,
    release_memory,
)
from pytest_cepbench.store import Store
from pytest_cepbench.store.rows import batches

LARGEST = 32
"""Most inputs of a batch where the user gave no size."""

MOST_CRASHES = 2
"""Processes of a run that may die over the same work, a shard or a batch, before it is given up."""

_SAVE_SECONDS = 20.0  # between notes of a role's throughput

# An array, letters of one text, and what has an order of its own.
_AS_IT_IS = (np.ndarray, str, bytes, Mapping, set, frozenset)

_WORTH = 0.95  # a larger batch stays where an input takes at most this part of the time


Ask = Callable[[Any, Sequence[Any], Sequence[int]], Callable[[], object]]
"""The call of a model for inputs and their seeds. Any exception of the call itself but a `CepError`
is an outcome of the model's."""

Check = Callable[[Sequence[Any], Sequence[Any]], Sequence[object]]
"""Checks and converts the outputs for inputs. As in `Ask`, another exception than a `CepError` is a
bug of this package."""


@dataclass
class CallCounts:
    """What a role did in this process.

    loads: of its model.
    inputs: that its model was asked for.
    hits: results that were in the store.
    seconds: in its model's own code, loading included.
    usage: what its model counted.
    remarks: of its model for users, each once.
    codes: other versions of the user's code by which stored results were made.
    provenances: of its results, as JSON, each once, where the adapter warns of them.
    passing: failures that were not stored, since another run may do better.
    """

    loads: int = 0
    inputs: int = 0
    hits: int = 0
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    remarks: dict[str, None] = field(default_factory=dict)
    codes: dict[str, None] = field(default_factory=dict)
    provenances: dict[str, None] = field(default_factory=dict)
    passing: int = 0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time of a model's own code, and keep its libraries' warnings warnings.

        Under a user's `-W error` a deprecation inside a library would be a failed step otherwise.
        """
        started = time.perf_counter()
        try:
            # Filters belong to the process: threads would put back each other's.
            main = threading.current_thread() is threading.main_thread()
            with warnings.catch_warnings(action="default") if main else nullcontext():
                yield
        finally:
            self.seconds += time.perf_counter() - started


def total(tallies: Iterable[CallCounts]) -> CallCounts:
    """The counts of several roles together."""
    together = CallCounts()
    for tally in tallies:
        for name, count in vars(tally).items():
            before = getattr(together, name)
            both = before | count if isinstance(count, dict) else before + count
            setattr(together, name, both)
    return together


@dataclass
class BatchCaller:
    """Asks one model, in batches of the size that suits it.

    tally: counts of the role.
    size: most inputs in one call; halved when memory runs out, and doubled while there is memory
        and it pays, where the user gave no size.
    memory: of the device; None where no larger size is to be tried.
    settled: whether no other size is tried any more.
    pace: seconds per input of the last full batch, of the first call as long as there was none.
    """

    bound: BoundRole
    tally: CallCounts
    size: int
    memory: DeviceMemory | None = None
    settled: bool = False
    pace: float | None = None
    _smaller: tuple[int, float] | None = field(default=None, repr=False)
    _warm: int = field(default=0, repr=False)  # the size of the last full batch
    _saved: tuple[int, float] = field(default=(0, 0.0), repr=False)  # size, and when it was saved

    @classmethod
    def resume(cls, bound: BoundRole, tally: CallCounts, store: Store) -> BatchCaller:
        """Begin with the batch size that fitted in an earlier run."""
        throughput = load_throughput(bound, store)
        asked, grows = bound.resources.batch_size, bound.resources.grows
        size = asked if throughput is None else throughput.batch_size
        if not grows:
            size = min(size, asked)
        grows = grows and bound.device.startswith("cuda")  # where memory can be asked for
        return cls(bound, tally, size, DeviceMemory(bound.device) if grows else None)

    def save(self, store: Store) -> None:
        """Keep size and pace for later runs: at once where the size changed, else now and then."""
        size, since = self._saved
        now = time.monotonic()
        if self.pace is not None and (self.size != size or now - since >= _SAVE_SECONDS):
            self._saved = (self.size, now)
            save_throughput(self.bound, Throughput(self.size, self.pace), store)

    def call(
        self,
        model: Model,
        inputs: Sequence[Any],
        seeds: Sequence[int],
        ask: Ask,
        check: Check = lambda outputs, _: outputs,
    ) -> list[Any]:
        """One output for each input; a passing failure where the model cannot take it.

        Raises DeviceMemoryError when a single input does not fit, ModelError when there is not one
        output for each input, CepErrors of the model, and bugs of this package as they are.
        """
        if self.memory is not None:
            self.memory.watch()
        started = time.perf_counter()
        full, size = len(inputs) >= self.size, self.size
        outputs = self._ask(model, inputs, seeds, ask, check)
        seconds = (time.perf_counter() - started) / len(inputs)
        if self.pace is None:
            self.pace = seconds  # better than nothing, until there is a full batch
        if not full or self.size != size:
            return outputs
        if self._warm != size:  # the first of a size also compiles and allocates
            self._warm = size
            return outputs
        self.pace = seconds
        if self.settled or self.memory is None:
            return outputs
        if self._smaller is not None and seconds > _WORTH * self._smaller[1]:
            (self.size, self.pace), self.settled = self._smaller, True
        elif 2 * size <= LARGEST and self.memory.fits_twice():
            self._smaller = (size, seconds)
            self.size *= 2
        return outputs

    def _ask(
        self, model: Model, inputs: Sequence[Any], seeds: Sequence[int], ask: Ask, check: Check
    ) -> list[Any]:
        call = ask(model, inputs, seeds)
        try:
            with self.tally.timed():
                returned = listed(call())
        except CepError:
            raise
        except BaseException as error:
            # Any exception of a model is an outcome, and so is code that would end or skip the run.
            if not (isinstance(error, Exception) or is_exit(error)) or is_own_bug(error):
                raise
            # The exception itself is dropped: its traceback holds the tensors that did not fit.
            no_memory, reason = is_out_of_memory(error), in_words(error)
        else:
            if not isinstance(returned, list | np.ndarray):
                raise ModelError(
                    f"{self.bound.spec} returned a {type(returned).__name__} for {len(inputs)} "
                    "inputs: a sequence with a result for each is expected"
                )
            outputs = list(check(returned, inputs))  # type: ignore[arg-type] # an array is one
            if len(outputs) != len(inputs):
                raise ModelError(
                    f"{self.bound.spec} returned {len(outputs)} results for {len(inputs)} inputs"
                )
            self.tally.inputs += len(inputs)
            for reply in outputs:
                if isinstance(reply, Reply):
                    self.tally.usage += reply.usage
                    self.tally.remarks.update(dict.fromkeys(reply.remarks))
            return outputs
        if no_memory:
            release_memory()
        if len(inputs) == 1 and no_memory:
            raise DeviceMemoryError(
                f"{self.bound.spec} runs out of memory on a single input: use a smaller dtype, "
                "smaller images, --cep-residency=swap, more devices (device_map=, "
                f"--cep-devices-per-worker), offload=, or a larger device ({reason})"
            )
        if len(inputs) == 1:
            return [Reply(Failure("exception", reason), passing=True)]
        half = (len(inputs) + 1) // 2
        if no_memory:
            self.size, self.settled = half, True
        first = self._ask(model, inputs[:half], seeds[:half], ask, check)
        return first + self._ask(model, inputs[half:], seeds[half:], ask, check)


def listed(returned: object) -> object:
    """What a model returned, as a list or an array; what is no results in order as it is.

    Where it is a generator, this runs the model's own code.
    """
    if isinstance(returned, Iterable) and not isinstance(returned, _AS_IT_IS):
        return list(returned)
    return returned


# -- throughput of earlier runs ------------------------------------------------------------------


@dataclass(frozen=True)
class Throughput:
    """How a role works on a kind of device, as measured by earlier runs.

    batch_size: inputs of a call that fit.
    seconds: per input, of such calls.
    """

    batch_size: Annotated[int, msgspec.Meta(ge=1)]
    seconds: Annotated[float, msgspec.Meta(ge=0)]


def load_throughput(bound: BoundRole, store: Store) -> Throughput | None:
    """The throughput that was saved; None where there is none or the note cannot be read."""
    name = _note_name(bound)
    text = store.notes([name]).get(name)
    try:
        return None if text is None else msgspec.json.decode(text, type=Throughput)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def save_throughput(bound: BoundRole, throughput: Throughput, store: Store) -> None:
    """Keep a throughput for later runs. Raises StoreError."""
    store.note(_note_name(bound), canonical_json(asdict(throughput)))


def _note_name(bound: BoundRole) -> str:
    """The weights are left out: the next checkpoint of a training run works like this one."""
    about = {
        "role": bound.role,
        "what": bound.what,
        "build": bound.resources.build,
        "adapter": bound.adapter,
        "params": dict(bound.params),
        "asked": bound.resources.batch_size,
        "device": device_name(bound.device),
    }
    return f"habit {digest_json(about)}"  # as stores hold it


_PARTS = 64

_READERS = min(4, os.cpu_count() or 1)

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

    read: gives an item's input; on threads, at most two batches ahead, where `ahead`.
    call: works on a batch and returns what stores its results, or None.
    writer: stores them, batch by batch; None where that is not worth a thread.
    Returns a function for each batch, in order, that waits until it is stored. Raises what reading
    and calling raise, and what storing all but the last batches raises; batches that were called
    are stored then.
    """
    waiting, storing = deque(items), list[Callable[[], R]]()
    reading: deque[tuple[S, Callable[[], L]]] = deque()
    with ThreadPoolExecutor(_READERS) as readers:

        def read_on(most: int) -> None:
            while waiting and len(reading) < most:
                item = waiting.popleft()
                later = readers.submit(read, item).result if ahead else partial(read, item)
                reading.append((item, later))

        try:
            while waiting or reading:
                most = size()
                read_on(most)
                batch = [reading.popleft() for _ in range(min(most, len(reading)))]
                if ahead:
                    read_on(most)
                store = call([item for item, _ in batch], [result() for _, result in batch])
                if store is not None and writer is not None:
                    storing.append(writer.submit(store).result)
                elif store is not None:
                    storing.append(partial(_same, store()))
                if len(storing) > 1:  # one batch is stored while the model works on the next
                    storing[-2]()
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
    """`read` every item, on threads; an exception stands for its item."""

    def attempt(item: S) -> L | Exception:
        try:
            return read(item)
        except Exception as error:  # noqa: BLE001 - the caller knows which it expects
            return error

    # In parts, since handing over a text or a known digest takes longer than reading it.
    parts = batches(items, max(1, len(items) // _PARTS))
    with ThreadPoolExecutor(_READERS) as readers:
        read_parts = readers.map(lambda part: list(map(attempt, part)), parts)
        return [result for part in read_parts for result in part]
