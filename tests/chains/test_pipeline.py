"""Batches on their way: what is read ahead, what is stored behind, and what is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.chains.batching import in_batches, read_all

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


def test_the_next_inputs_are_read_while_the_model_works(writer: Executor) -> None:
    """The first call ends only after an input of the second batch was read, on another thread."""
    read_by: dict[int, int] = {}
    later = threading.Event()

    def read(item: int) -> int:
        read_by[item] = threading.get_ident()
        if item >= 2:
            later.set()
        return slowly(item)

    def call(items: Sequence[int], inputs: Sequence[int]) -> Callable[[], list[int]]:
        assert later.wait(PATIENCE)
        return squares(items, inputs)

    in_batches(range(4), lambda: 2, writer, read=read, call=call, ahead=True)
    assert read_by[3] != threading.get_ident()


def test_results_are_stored_while_the_model_works_on_the_next(writer: Executor) -> None:
    """The second call does not end before the results of the first are being stored."""
    storing = threading.Event()

    def call(items: Sequence[int], inputs: Sequence[int]) -> Callable[[], list[int]]:
        if items[0] == 2:
            assert storing.wait(PATIENCE)

        def store() -> list[int]:
            storing.set()
            assert threading.get_ident() != main_thread
            return list(inputs)

        return store

    main_thread = threading.get_ident()
    stored = in_batches(range(4), lambda: 2, writer, read=int, call=call, ahead=False)
    assert [part() for part in stored] == [[0, 1], [2, 3]]


def test_no_more_than_two_batches_wait_to_be_stored(writer: Executor) -> None:
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
    time.sleep(0.2)
    assert called == [0, 1, 2]
    go_on.set()
    main_thread.join(PATIENCE)
    assert called == list(range(8))


def test_the_model_is_called_by_the_thread_that_asks(writer: Executor) -> None:
    """Libraries keep states by thread: generators, inference mode, devices."""
    threads = set()

    def call(items: Sequence[int], inputs: Sequence[int]) -> None:
        threads.add(threading.get_ident())

    in_batches(range(6), lambda: 2, writer, read=slowly, call=call, ahead=True)
    assert threads == {threading.get_ident()}


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


@pytest.mark.parametrize(
    ("seconds", "alone"),
    [
        ([0.0004] * 8, 8),
        ([0.0006] * 8, 1),
        ([0.0001, 0.0001, 0.0014] + [0.0] * 5, 3),
        ([0.0001, 0.0001, 0.0012] + [0.0004] * 5, 8),
    ],
    ids=["quick", "slow", "slow from the third on", "quick on average"],
)
def test_threads_read_what_takes_half_a_millisecond_each(
    seconds: Sequence[float], alone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that asks reads until the mean is above it; then the threads read the rest."""
    clock = [100.0]
    readers = []

    def read(item: int) -> int:
        readers.append(threading.get_ident())
        if len(readers) <= alone:
            clock[0] += seconds[item]
        return item

    monkeypatch.setattr("pytest_cepbench.chains.batching.time.perf_counter", lambda: clock[0])
    assert read_all(range(8), read) == list(range(8))
    here = threading.get_ident()
    assert [reader == here for reader in readers] == [True] * alone + [False] * (8 - alone)


@pytest.mark.parametrize("seconds", [0.0, 0.002], ids=["quick", "slow"])
def test_reading_all_keeps_order_and_exceptions(seconds: float) -> None:
    """Each item has its value or what went wrong in its place, on threads or not."""

    def read(item: int) -> int:
        time.sleep(seconds)
        if item % 3 == 1:
            raise KeyError(item)
        return -item

    actual = read_all(range(8), read)
    assert [item if isinstance(item, int) else type(item) for item in actual] == [
        KeyError if item % 3 == 1 else -item for item in range(8)
    ]
    assert read_all([], read) == []
