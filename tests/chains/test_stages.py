"""Stages on the threads of several devices: what runs at once, in which order, and how it ends."""

from __future__ import annotations

import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.chains.stages import Stage, run_stages
from pytest_cepbench.models.torch_runtime import quiet, warnings_by_thread

PATIENCE = 20.0  # seconds until a test gives up on another thread


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Whatever happens, the threads of the devices have ended."""
    yield
    assert not [t.name for t in threading.enumerate() if t.name.startswith("cepbench-device")]


def stage(
    device: str,
    work: Callable[[], object] = lambda: None,
    following: Sequence[Stage] = (),
    order: tuple[int, ...] = (),
    *,
    bounded: bool = False,
    stores: bool = False,
) -> Stage:
    """A stage on a device that does something, and leads to others."""

    def do() -> Sequence[Stage]:
        work()
        return following

    return Stage(f"device {device}", order, do, bounded, stores)


def test_devices_work_at_the_same_time() -> None:
    """Each of three stages ends only when the two others have begun."""
    met = threading.Barrier(3)
    run_stages([[stage(device, lambda: met.wait(PATIENCE))] for device in "abc"])


def test_a_device_does_one_stage_at_a_time() -> None:
    """Its stages never overlap, and all are done by one thread, as libraries expect."""
    at_once, threads = Counter[str](), set()

    def work() -> None:
        at_once["now"] += 1
        at_once["most"] = max(at_once["most"], at_once["now"])
        threads.add(threading.get_ident())
        time.sleep(0.001)
        at_once["now"] -= 1

    run_stages([[stage("a", work)] for _ in range(10)])
    assert at_once["most"] == 1
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_the_lowest_order_comes_first() -> None:
    """Of stages that wait for a device; those of equal order in the order of their coming."""
    done: list[int] = []
    orders = [2, 0, 1, 0]
    waiting = [
        stage("a", lambda number=number: done.append(number), order=(order,))  # type: ignore[misc]
        for number, order in enumerate(orders)
    ]
    run_stages([[stage("a", following=waiting)]])
    assert done == [1, 3, 2, 0]


@given(
    lanes=st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=12),
    most=st.integers(1, 5),
)
def test_every_stage_is_done_once_and_after_the_one_before(
    lanes: list[list[str]], most: int
) -> None:
    """Whatever devices lanes pass through, and however many lanes are under way."""
    done: list[tuple[int, int]] = []
    under_way = Counter[str]()

    def first(number: int, devices: list[str]) -> list[Stage]:
        following: list[Stage] = []
        for at in reversed(range(len(devices))):

            def work(at: int = at) -> None:
                done.append((number, at))
                if at == len(devices) - 1:
                    under_way["lanes"] -= 1

            stores = at % 2 == 1
            device = f"disk of {devices[at]}" if stores else devices[at]
            following = [stage(device, work, following, bounded=stores, stores=stores)]
        return following

    def taken() -> Iterator[list[Stage]]:
        for number, devices in enumerate(lanes):
            assert under_way["lanes"] <= most
            under_way["lanes"] += bool(devices)
            yield first(number, devices)

    run_stages(taken(), most)
    assert sorted(done) == [
        (n, at) for n, devices in enumerate(lanes) for at in range(len(devices))
    ]
    for number, devices in enumerate(lanes):
        assert [at for own, at in done if own == number] == list(range(len(devices)))


def test_few_lanes_are_under_way_at_a_time() -> None:
    """The next is taken when one of them is done: what a lane holds is bounded."""
    go_on, taken = threading.Event(), []

    def lanes() -> Iterator[list[Stage]]:
        for number in range(6):
            taken.append(number)
            yield [stage("a", lambda: go_on.wait(PATIENCE))]

    running = threading.Thread(target=run_stages, args=(lanes(), 2))
    running.start()
    time.sleep(0.1)
    assert taken == [0, 1, 2]  # the third waits to begin
    go_on.set()
    running.join(PATIENCE)
    assert taken == list(range(6))


def test_a_device_waits_for_a_slow_disk() -> None:
    """A model does not fill the memory with results that wait to be stored."""
    go_on, drawn = threading.Event(), []

    def draw(number: int) -> list[Stage]:
        keep = stage("disk", lambda: go_on.wait(PATIENCE), bounded=True, stores=True)
        return [stage("a", lambda: drawn.append(number), [keep])]

    running = threading.Thread(target=run_stages, args=([draw(n) for n in range(8)], 8))
    running.start()
    time.sleep(0.1)
    assert drawn == [0, 1, 2, 3]  # one is being stored, two wait, and one waits to wait
    go_on.set()
    running.join(PATIENCE)
    assert drawn == list(range(8))


def test_an_error_comes_with_its_own_traceback() -> None:
    """The one who asked sees the line of the model's code; no other stage begins."""
    later: list[int] = []

    def breaks_in_its_thread() -> None:
        msg = "of the model"
        raise ZeroDivisionError(msg)

    with pytest.raises(ZeroDivisionError, match="of the model") as caught:
        run_stages([[stage("a", breaks_in_its_thread, [stage("b", lambda: later.append(1))])]])
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "breaks_in_its_thread" in names
    assert later == []


def test_what_was_made_is_stored_where_another_device_fails() -> None:
    """The batch that a model is at, and those before, are stored before the error comes."""
    began, failed = threading.Event(), threading.Event()
    stored: list[str] = []

    def draw() -> None:
        began.set()
        assert failed.wait(PATIENCE)
        time.sleep(0.05)  # the run stops meanwhile

    def fail() -> None:
        assert began.wait(PATIENCE)
        failed.set()
        raise ZeroDivisionError

    keep = stage("disk", lambda: stored.append("drawing"), stores=True)
    with pytest.raises(ZeroDivisionError):
        run_stages([[stage("a", draw, [keep]), stage("b", fail)]])
    assert stored == ["drawing"]


def test_an_error_of_the_one_who_asks_ends_the_threads() -> None:
    """Such as a sample that cannot be read when the next lane is taken."""
    done: list[int] = []

    def lanes() -> Iterator[list[Stage]]:
        yield [stage("a", lambda: done.append(1))]
        raise KeyError

    with pytest.raises(KeyError):
        run_stages(lanes())


def test_an_interrupt_ends_a_call_that_would_take_long() -> None:
    """A model's loop ends at its next step, and its thread with it."""
    looping = threading.Event()

    def loop() -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            looping.set()
            time.sleep(0.001)
        pytest.fail("it was not interrupted")

    def lanes() -> Iterator[list[Stage]]:
        yield [stage("a", loop)]
        assert looping.wait(PATIENCE)
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_stages(lanes())
    assert time.monotonic() - started < PATIENCE / 2


def test_silence_of_one_thread_hides_no_warning_of_another() -> None:
    """A library is quiet while a user's model, called at the same time, warns."""
    silent, warned = threading.Event(), threading.Event()

    def library() -> None:
        with quiet():
            silent.set()
            assert warned.wait(PATIENCE)
            warnings.warn("of a library", stacklevel=1)

    def user() -> None:
        assert silent.wait(PATIENCE)
        warnings.warn("of a model", stacklevel=1)
        warned.set()

    with warnings.catch_warnings(record=True) as caught:
        before = list(warnings.filters)
        run_stages([[stage("a", library), stage("b", user)]])
        assert warnings.filters == before
    assert [str(warning.message) for warning in caught] == ["of a model"]


def test_warnings_are_no_errors_in_threads() -> None:
    """Whatever filters the engineer's run has: a deprecation is no failure of a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with warnings_by_thread(), warnings.catch_warnings(record=True) as caught:
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert len(caught) == 1
