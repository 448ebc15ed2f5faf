"""How many requests are on the way, and how they slow down where a server has too much to do."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from email.utils import formatdate

import pytest

from pytest_cepbench.models.api.faults import requested_wait
from tests.models.api.conftest import Load, describe
from tests.models.api.fake_server import Answer, FakeServer, Seen, document, fault


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
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
    assert requested_wait(headers) == seconds
    later = requested_wait({"retry-after": formatdate(time.time() + 30, usegmt=True)})
    assert later == pytest.approx(30, abs=2)


def test_too_many_requests_hold_all_back(server: FakeServer, load: Load) -> None:
    """No request is sent before the time that the server named."""
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
