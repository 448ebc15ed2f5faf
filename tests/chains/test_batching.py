"""Batches: which sizes are tried and fit, and what threads read ahead and store behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import batching as module
from pytest_cepbench.chains.batching import (
    BatchCaller,
    CallCounts,
    Throughput,
    in_batches,
    load_throughput,
    read_all,
    save_throughput,
)
from pytest_cepbench.errors import ModelError
from pytest_cepbench.store import Store
from tests.chains.roles import (
    PLAN,
    SmallDescriber,
    SmallGenerator,
    bound,
    grow_and_trace,
    make_runners,
    outcomes,
    samples,
)


def test_the_next_checkpoint_begins_with_what_fitted(tmp_path: Path) -> None:
    """Its weights are other ones, its size is not: nothing larger is tried again. A size that was
    asked for does not grow, since who names one has a reason.
    """

    def sizes_of(folder: str, generator: SmallGenerator, **changes: Any) -> list[int]:
        """The calls that a generator got for twenty samples in a run of its own."""
        with Store(tmp_path / folder) as store:
            runners = make_runners(store, generator=generator, only={"generator": changes})
            grow_and_trace(PLAN, samples(20), runners)
        return generator.batches

    small = SmallGenerator(batch=holds(3, cuda_out_of_memory))
    assert sizes_of("small", small)[:3] == [8, 4, 2]
    assert max(sizes_of("small", SmallGenerator(), fingerprint="weights-2")) == 2
    assert set(sizes_of("large", SmallGenerator())) == {8, 4}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of batches, in seconds."""
    now = [50.0]
    times = SimpleNamespace(perf_counter=lambda: now[0], monotonic=lambda: now[0])
    monkeypatch.setattr(module, "time", times)
    return now


def test_the_pace_is_remembered_now_and_then(store: Store, clock: list[float]) -> None:
    """Seconds per input of full batches, for the estimate of how long a run takes. Each write takes
    time; another size is worth it at once.
    """

    def work(images: Sequence[Any]) -> None:
        clock[0] += 0.002 * len(images)

    describer = SmallDescriber(batch=work)
    grow_and_trace(PLAN, samples(32), make_runners(store, describer=describer))
    throughput = load_throughput(bound("describer", describer, fingerprint="weights-2"), store)
    assert throughput is not None
    assert throughput.batch_size == 8
    assert throughput.seconds == pytest.approx(0.002)

    caller = BatchCaller(bound("describer", SmallDescriber()), CallCounts(), 8)
    saves = [(0, 8, 1.0, 1.0), (19, 8, 2.0, 1.0), (2, 8, 3.0, 3.0), (0, 4, 4.0, 4.0)]
    for seconds, size, pace, kept in saves:
        clock[0] += seconds
        caller.size, caller.pace = size, pace
        caller.save(store)
        throughput = load_throughput(caller.bound, store)
        assert throughput is not None
        assert throughput.seconds == kept


def test_what_an_earlier_run_noted_is_taken_over_where_it_makes_sense(store: Store) -> None:
    """Notes are helpful, not needed. That run may have grown its batches: a size that the user gave
    is the largest.
    """
    for grows, size in ((True, 32), (False, 8)):
        role = bound("describer", SmallDescriber(), grows=grows)
        save_throughput(role, Throughput(32, 0.1), store)
        assert load_throughput(role, store) == Throughput(32, 0.1)
        assert BatchCaller.resume(role, CallCounts(), store).size == size
    for note, read in (
        ('{"batch_size": "many"}', None),
        ('{"batch_size": 0, "seconds": 0.5}', None),
        ('{"batch_size": 1, "seconds": -0.5}', None),
        ('{"batch_size": 1, "seconds": 0}', Throughput(1, 0.0)),
    ):
        store.index.write("UPDATE notes SET value = ?", [(note,)])
        assert load_throughput(role, store) == read


@dataclass
class Room:
    """The memory of an accelerator, which cannot be had here: it holds so many inputs."""

    inputs: int
    asked: int = 0

    def watch(self) -> None:
        """A batch begins."""

    def fits_twice(self) -> bool:
        """Whether twice the last batch fits."""
        return 2 * self.asked <= self.inputs


def grown(clock: list[float], cost: Callable[[int], float], room: Room, calls: int) -> list[int]:
    """The sizes of the calls where a call of n inputs takes cost(n) seconds."""
    memory: Any = room
    caller = BatchCaller(bound("generator", SmallGenerator(), grows=True), CallCounts(), 4, memory)
    sizes = []

    def ask(_: object, inputs: Sequence[Any], __: Sequence[int]) -> Callable[[], object]:
        def make() -> Sequence[Any]:
            room.asked = len(inputs)
            clock[0] += cost(len(inputs))
            return inputs

        return make

    for _ in range(calls):
        sizes.append(caller.size)
        caller.call(SmallGenerator(), [0] * caller.size, [0] * caller.size, ask)
    return sizes


def test_the_batch_grows_while_that_pays(clock: list[float]) -> None:
    """A call that takes the same time for any number of inputs: up to what there is room for. Where
    twice the inputs take more than twice the time, it goes back to the smaller batch.
    """
    assert grown(clock, lambda _: 0.1, Room(20), 8) == [4, 4, 8, 8, 16, 16, 16, 16]
    assert grown(clock, lambda n: 0.001 * n * n, Room(1000), 7) == [4, 4, 8, 8, 4, 4, 4]
    for part, size in ((0.94, 8), (0.96, 4)):  # of the time that an input takes in the smaller one
        cost = {4: 4.0, 8: 8.0 * part}
        assert grown(clock, cost.__getitem__, Room(15), 5) == [4, 4, 8, 8, size]


PATIENCE = 10.0  # seconds until a test gives up on another thread


@pytest.fixture
def writer() -> Iterator[Executor]:
    """One thread that stores."""
    with ThreadPoolExecutor(1) as threads:
        yield threads


def slowly(item: int) -> int:
    """Read an input that is worth a thread."""
    time.sleep(0.001)
    return item


def squares(items: Sequence[int], inputs: Sequence[int]) -> Callable[[], list[int]]:
    """A model that squares."""
    return lambda: [value * value for value in inputs]


@given(count=st.integers(0, 20), size=st.integers(1, 7), ahead=st.booleans())
def test_every_item_is_worked_off_once_and_in_order(count: int, size: int, ahead: bool) -> None:
    """Whatever the batches are, and on whichever thread inputs are read."""
    with ThreadPoolExecutor(1) as writer:
        sizes: list[int] = []

        def call(items: Sequence[int], inputs: Sequence[int]) -> Callable[[], list[int]]:
            assert list(items) == list(inputs)
            sizes.append(len(items))
            return squares(items, inputs)

        stored = in_batches(range(count), lambda: size, writer, read=int, call=call, ahead=ahead)
        assert [item for part in stored for item in part()] == [i * i for i in range(count)]
    assert sizes == [size] * (count // size) + [count % size] * (count % size > 0)


def test_inputs_are_read_and_results_stored_while_the_model_works(writer: Executor) -> None:
    """The first call ends only after an input of the second batch was read, on another thread; the
    second one not before the results of the first are being stored.
    """
    read_by: dict[int, int] = {}
    later, storing, main_thread = threading.Event(), threading.Event(), threading.get_ident()

    def read(item: int) -> int:
        read_by[item] = threading.get_ident()
        if item >= 2:
            later.set()
        return slowly(item)

    def call(items: Sequence[int], inputs: Sequence[int]) -> Callable[[], list[int]]:
        assert later.wait(PATIENCE)
        if items[0] == 2:
            assert storing.wait(PATIENCE)

        def store() -> list[int]:
            storing.set()
            assert threading.get_ident() != main_thread
            return list(inputs)

        return store

    stored = in_batches(range(4), lambda: 2, writer, read=read, call=call, ahead=True)
    assert read_by[3] != main_thread
    assert [part() for part in stored] == [[0, 1], [2, 3]]


def test_no_more_than_one_batch_waits_to_be_stored(writer: Executor) -> None:
    """The model waits for the disk rather than fill the memory with results."""
    go_on = threading.Event()
    called: list[int] = []

    def call(items: Sequence[int], _: Sequence[int]) -> Callable[[], bool]:
        called.append(items[0])
        return lambda: go_on.wait(PATIENCE)

    main_thread = threading.Thread(
        target=in_batches,
        args=(range(8), lambda: 1, writer),
        kwargs={"read": int, "call": call, "ahead": False},
    )
    main_thread.start()
    time.sleep(0.1)
    assert called == [0, 1]
    go_on.set()
    main_thread.join(PATIENCE)
    assert called == list(range(8))


def test_an_input_that_cannot_be_read_ends_it_after_what_was_called(writer: Executor) -> None:
    """The exception comes as it is; the results of the batches before are stored."""
    kept: list[int] = []

    def read(item: int) -> int:
        if item == 3:
            raise OSError(item)
        return slowly(item)

    def call(items: Sequence[int], inputs: Sequence[int]) -> Callable[[], None]:
        return lambda: kept.extend(inputs)

    with pytest.raises(OSError, match="3"):
        in_batches(range(6), lambda: 2, writer, read=read, call=call, ahead=True)
    assert kept == [0, 1]


def test_reading_all_keeps_order_and_exceptions() -> None:
    """Each item has its value or what went wrong in its place."""

    def read(item: int) -> int:
        if item % 3 == 1:
            raise KeyError(item)
        return -item

    actual = read_all(range(800), read)
    assert [item if isinstance(item, int) else type(item) for item in actual] == [
        KeyError if item % 3 == 1 else -item for item in range(800)
    ]
    assert read_all([], read) == []


def cuda_out_of_memory() -> Exception:
    """What libraries below torch raise."""
    return RuntimeError("CUDA error: out of memory (CUBLAS_STATUS_ALLOC_FAILED)")


def torch_out_of_memory() -> Exception:
    """What torch raises."""
    torch = pytest.importorskip("torch", reason="torch comes with the [models] extra")
    # torch is untyped here.
    return torch.OutOfMemoryError("Tried to allocate 20.00 GiB")  # type: ignore[no-any-return]


ROLES = ("describer", "generator", "encoder")


def holds(most: int, error: Callable[[], BaseException]) -> Callable[[Sequence[Any]], None]:
    """A memory that holds so many inputs and no more."""

    def fit(inputs: Sequence[Any]) -> None:
        if len(inputs) > most:
            raise error()

    return fit


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What comes of twenty samples where memory is large."""
    with Store(tmp_path_factory.mktemp("large") / "store") as store:
        return outcomes(grow_and_trace(PLAN, samples(20), make_runners(store)))


@pytest.mark.parametrize(
    ("role", "error"),
    [
        ("describer", cuda_out_of_memory),
        ("encoder", cuda_out_of_memory),
        ("generator", MemoryError),
        pytest.param("generator", torch_out_of_memory, marks=pytest.mark.models),
    ],
)
def test_the_batch_is_halved_until_it_fits(
    store: Store, expected: dict[str, Any], role: str, error: Callable[[], BaseException]
) -> None:
    """All results come as from a larger memory, no chain fails, and the smaller size is kept."""
    runners = make_runners(store)
    models = {name: getattr(runners, name).bound.load() for name in ROLES}
    models[role].batch = holds(3, error)
    assert outcomes(grow_and_trace(PLAN, samples(20), runners)) == expected
    sizes = models.pop(role).batches
    assert getattr(runners, role).caller.size == 2
    assert sizes[:2] == [8, 4]
    # The first batch finds the size; from then on nothing larger is tried.
    assert max(sizes[sizes.index(2) + 5 :]) == 2
    assert all(max(model.batches) == 8 for model in models.values())


def test_memory_for_not_even_one_input_is_an_error(store: Store) -> None:
    """Nothing can be said of such a model: the error names it and what may help."""
    runners = make_runners(store, generator=SmallGenerator(batch=holds(0, cuda_out_of_memory)))
    with pytest.raises(ModelError, match="python:tests:generator runs out of memory on a single "):
        grow_and_trace(PLAN, samples(4), runners)


def test_an_ordinary_error_does_not_shrink_the_batch(store: Store) -> None:
    """One bad input halves its own batch and no later one."""

    def refuse(inputs: Sequence[Any]) -> None:
        if any("text 1" in text.split(": ")[1:] for text in inputs):
            raise ValueError("cannot take this")

    runners = make_runners(store, generator=SmallGenerator(batch=refuse))
    plan = PLAN.__class__("text", 1, "describe", "draw: {description}")
    traces = grow_and_trace(plan, samples(16), runners)
    failed = {own.chain.sample.id: own.failure for own in traces if own.failure}
    assert failed == {"s01": Failure("exception", "ValueError: cannot take this")}
    assert runners.generator.caller.size == 8
