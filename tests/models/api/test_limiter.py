"""How many requests are on the way, and how they slow down where a server has too much to do."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from email.utils import formatdate
from itertools import pairwise

import pytest

from pytest_cepbench.models.api.client import RequestLimiter
from pytest_cepbench.models.api.faults import requested_wait
from tests.models.api.conftest import Load, describe
from tests.models.api.fake_server import Answer, FakeServer, Seen, document, fault


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": formatdate(1030, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(900, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(
    headers: dict[str, str], seconds: float | None
) -> None:
    """Seconds, milliseconds, a date; nonsense is nothing."""
    assert requested_wait(headers, now=lambda: 1000.0) == seconds


def test_too_many_requests_hold_all_back(server: FakeServer, load: Load) -> None:
    """No request is sent again before the time the server named, and fewer at once afterwards."""
    model = load("describer", "concurrency=8")
    held: list[float] = []

    def answer(seen: Seen) -> Answer:
        if not held:
            held.append(seen.at)
            return fault(429, "slow down", retry_after_ms="300")
        return document({"choices": [{"message": {"content": "x"}}]}, after=0.1)

    server.answer = answer

    replies = describe(model, 16)

    assert all(reply.value == "x" for reply in replies)
    after = [seen.at - held[0] for seen in server.seen]
    # What was on the way already is answered, eight at most; all others wait.
    assert sum(gap < 0.29 for gap in after) <= 8
    assert sum(gap >= 0.29 for gap in after) >= 9
    assert sum(reply.usage.retries for reply in replies) == 1


def test_requests_per_minute_are_spaced(server: FakeServer, load: Load) -> None:
    """rpm=1200 is one every 50 ms, however many may be on the way."""
    model = load("describer", "rpm=1200")
    began = time.monotonic()
    describe(model, 5)
    assert time.monotonic() - began >= 0.2
    assert len(server.seen) == 5

    async def starts() -> list[float]:
        limiter, times = RequestLimiter(16, rpm=1200), []

        async def request() -> None:
            async with limiter.slot() as started:
                times.append(started)

        await asyncio.gather(*(request() for _ in range(5)))
        return times

    assert all(later - before > 0.0499 for before, later in pairwise(asyncio.run(starts())))


def test_the_limit_halves_once_for_requests_that_went_together_and_grows_back() -> None:
    """Sixteen refusals of one moment are one sign; each round that goes well adds a place."""

    async def play() -> list[int]:
        limiter, seen = RequestLimiter(16), []
        taken = []
        for _ in range(16):
            async with limiter.slot() as now:
                taken.append(now)
        for now in taken:
            limiter.record_throttling(now, 0.0)
        seen.append(limiter.limit)
        async with limiter.slot() as now:
            limiter.record_throttling(now, 0.0)
        seen.append(limiter.limit)
        for _ in range(9):
            limiter.record_success()
        seen.append(limiter.limit)
        for _ in range(500):
            limiter.record_success()
        seen.append(limiter.limit)
        for _ in range(9):
            async with limiter.slot() as now:
                limiter.record_throttling(now, 0.0)
        seen.append(limiter.limit)
        return seen

    assert asyncio.run(play()) == [8, 4, 5, 16, 1]


def test_an_interrupt_ends_the_waiting_at_once(server: FakeServer, load: Load) -> None:
    """Ctrl-C does not wait for a slow server, nor for the seconds that it asked for."""
    model = load("describer")
    server.answer = lambda _: document({}, after=5.0)
    main = threading.get_ident()
    threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    started = time.monotonic()

    with pytest.raises(KeyboardInterrupt):
        describe(model, 4)

    assert time.monotonic() - started < 5.0


def test_a_model_can_be_asked_inside_an_event_loop(load: Load) -> None:
    """Tests of one's own may be coroutines."""
    model = load("describer")

    async def ask() -> str:
        return str(describe(model)[0].value)

    assert asyncio.run(ask()) == "a red circle"


def test_a_dropped_model_is_closed(load: Load) -> None:
    """No thread and no socket stays behind a model without a reference."""
    model = load("describer")
    describe(model)

    def alive() -> list[str]:
        names = [thread.name for thread in threading.enumerate()]
        return [name for name in names if name.startswith("openai-describer")]

    assert alive()

    del model
    gc.collect()

    assert not alive()
