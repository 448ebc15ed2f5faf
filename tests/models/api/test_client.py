"""Describers behind a server: what comes back, and what a server may do to it.

What is asked is pinned in tests/golden/test_requests.py.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import read_answer, with_reasoning
from pytest_cepbench.errors import ModelError, SpecError
from pytest_cepbench.models.api.responses import requested_wait
from pytest_cepbench.models.protocols import Usage
from tests.models.api.conftest import describe, load
from tests.models.api.fake_server import (
    Answer,
    FakeServer,
    Seen,
    chat_answer,
    document,
    fault,
    web_page,
)
from tests.models.binding import bind_text


def _shade(seen: Seen) -> int:
    """Which of the images was shown."""
    return int(np.asarray(seen.images[0])[0, 0, 0])


def test_answers_stay_with_their_inputs_and_are_counted(server: FakeServer) -> None:
    """In any order, each answer is that of its image; tokens, cost and server are reported."""
    server.answer = lambda seen: replace(chat_answer(f"shade {_shade(seen)}"), after=0.1)
    model = load(server, "describer", "concurrency=4&price_in=3&price_out=15")

    replies = describe(model, 9)

    assert [reply.value for reply in replies] == [f"shade {shade}" for shade in range(9)]
    assert server.most == 4
    assert replies[0].usage == Usage(1, 0, 100, 20, 0, 0.0006)
    assert replies[0].provenance == {"server served": "tiny-2026", "server system": "fp_1"}
    assert not any(reply.remarks for reply in replies)


AGAIN = {
    "500": fault(500),
    "503 with a web page": web_page(503),
    "408": fault(408),
    "409": fault(409),
    "429": fault(429, "slow down"),
    "429 with Retry-After": fault(429, "slow down", retry_after="0.02"),
    "cut in the middle": Answer(b'{"choices": [{"message"', cut=5),
    "no body": Answer(b""),
    "no JSON": Answer(b'{"choices": [}'),
    "ten thousand brackets": Answer(b"[" * 10_000),
    "not UTF-8": Answer(b'{"choices": "\xff"}'),
    "a text": document("hello"),
    "null": document(None),
    "no choices": document({"choices": []}),
    "choices of another kind": document({"choices": {"0": 1}}),
    "a choice of another kind": document({"choices": [7]}),
    "no message": document({"choices": [{"message": None}]}),
    "content of another kind": chat_answer(7),
    "an error with 200": document({"error": {"message": "overloaded", "code": 502}}),
}


@pytest.mark.slow
def test_what_may_pass_is_asked_again(server: FakeServer) -> None:
    """Overload, cut lines and bodies that are not what was asked for cost a retry, not a sample."""
    model = load(server, "describer", "concurrency=1")
    in_turn = [
        answer for first in AGAIN.values() for answer in (first, chat_answer("a blue square"))
    ]
    server.in_turn(chat_answer(), *in_turn)
    describe(model)

    result = {name: describe(model)[0] for name in AGAIN}

    assert {reply.value for reply in result.values()} == {"a blue square"}
    assert {name: reply.usage.retries for name, reply in result.items()} == dict.fromkeys(AGAIN, 1)


def test_a_slow_answer_is_given_up_and_asked_for_again(server: FakeServer) -> None:
    """timeout= is the whole time of a request, however slowly the bytes come."""
    server.in_turn(
        document({}, after=0.6), replace(chat_answer(), drip=0.02), chat_answer("in time")
    )

    (reply,) = describe(load(server, "describer", "timeout=0.2"))

    assert reply.value == "in time"
    assert reply.usage.retries >= 2  # on a busy machine a third may be late too


def test_a_sample_without_an_answer_is_a_passing_failure(server: FakeServer) -> None:
    """It is counted, with the last fault in words, and not stored: the next run asks again. A wrong
    request is not repeated; where every request is wrong, the user sees it.
    """
    server.answer = lambda seen: fault(500, "GPU on fire") if _shade(seen) == 1 else chat_answer()
    well, ill, also_well = describe(load(server, "describer", "retries=2"), 3)
    assert (well.value, also_well.value) == ("a red circle", "a red circle")
    assert ill.value == Failure("unanswered", "after 3 requests: 500: GPU on fire")
    assert ill.passing
    assert (ill.usage.requests, ill.usage.retries) == (3, 2)
    server.in_turn(chat_answer(), document({"error": {"message": "overloaded", "code": 502}}))
    _, ill = describe(load(server, "describer", "retries=0&concurrency=1"), 2)
    assert ill.value == Failure("unanswered", "after 1 requests: overloaded")

    model = load(server, "describer", "concurrency=1")
    server.answer = lambda _: fault(400, "no such layout")
    with pytest.raises(ModelError, match="400: no such layout"):
        describe(model)
    server.in_turn(chat_answer(), fault(400, "no such layout"))
    well, ill = describe(model, 2)
    assert (well.passing, ill.passing, ill.usage.requests) == (False, True, 1)
    assert ill.value == Failure("exception", "400: no such layout")


def test_a_server_that_has_gone_is_waited_for_once(server: FakeServer) -> None:
    """A batch without any answer is an error of one line; each further case says so after one
    request, until the server answers again. One that wants an hour is not waited for.
    """
    model = load(server, "describer", "retries=3")
    server.answer = lambda _: fault(503, "gone")
    for expected in (4, 5, 6):
        with pytest.raises(
            ModelError, match=r"answered none of 1 requests; .* 503: gone.* retries="
        ):
            describe(model)
        assert len(server.seen) == expected

    server.in_turn(chat_answer(), fault(503), chat_answer())
    assert describe(model)[0].value == "a red circle"
    assert describe(model)[0].usage.retries == 1

    server.in_turn(fault(429, "tomorrow", retry_after="3600"))
    with pytest.raises(ModelError, match="after 1 requests: 429: tomorrow"):
        describe(load(server, "describer", "patience=5"))


REFUSALS = {
    "a refusal": chat_answer(None, refusal="I cannot help with that"),
    "policy": fault(400, "flagged", code="content_policy_violation"),
    "Azure": fault(400, "filtered", code="content_filter"),
    "moderation": fault(403, "blocked", code="moderation_blocked"),
    "a proxy": document({"error": {"message": "flagged", "code": "content_filter"}}),
    "partial": chat_answer("I", ended="content_filter"),
    **{
        reason: chat_answer(None, ended=reason, tokens=0)
        for reason in ("SAFETY", "refusal", "sensitive", "PROHIBITED_CONTENT")
    },
}


def test_a_refused_content_is_a_failure_of_its_own_kind(server: FakeServer) -> None:
    """It would be refused again, so it is not asked again and is stored."""
    model = load(server, "describer", "concurrency=1")
    server.in_turn(*REFUSALS.values(), chat_answer())

    replies = describe(model, len(REFUSALS))

    assert all(isinstance(reply.value, Failure) for reply in replies)
    assert {(r.value.kind, r.passing, r.usage.requests) for r in replies} == {("refused", False, 1)}


BESIDE = {
    "DeepSeek, SGLang": chat_answer("a red circle", reasoning_content="blue?"),
    "OpenRouter, vLLM": chat_answer("a red circle", reasoning="blue?"),
    "both": chat_answer("a red circle", reasoning="blue?", reasoning_content="blue?"),
    "Anthropic": chat_answer(
        [{"type": "thinking", "thinking": "blue?"}, {"type": "text", "text": "a red circle"}]
    ),
    "Mistral": chat_answer(
        [
            {"type": "thinking", "thinking": [{"type": "text", "text": "blue?"}]},
            {"type": "text", "text": "a red circle"},
        ]
    ),
}


def test_reasoning_beside_a_text_is_kept_and_told_apart(server: FakeServer) -> None:
    """Both texts in one, out of which the answer is read; with reasoning=keep the content alone.
    Reasoning alone, as where max_tokens ends it, is no answer, and is not asked again, since the
    server did what it was told.
    """
    strips, keeps = load(server, "describer"), load(server, "describer", "reasoning=keep")
    for name, answer in BESIDE.items():
        server.in_turn(answer)
        (reply,), (content,) = describe(strips), describe(keeps)
        assert reply.value == with_reasoning("blue?", "a red circle"), name
        assert read_answer(reply.value) == "a red circle"
        assert content.value == "a red circle", name
    server.in_turn(chat_answer(None, reasoning_content="blue?", ended="length"))
    (reply,) = describe(strips)
    failure = read_answer(reply.value)
    assert isinstance(failure, Failure)
    assert (failure.kind, reply.usage.retries) == ("only-reasoning", 0)


def test_the_parameter_of_reasoning_is_in_the_key_where_it_is_not_the_default() -> None:
    """Keys of before stay; a judge's verdict never lies in its reasoning."""
    spec = "openai:m?revision=1&base_url=http://127.0.0.1:1/v1"
    for role in ("describer", "writer", "judge", "vqa"):
        default = bind_text(f"{spec}&reasoning=strip", role)
        assert default.identity == bind_text(spec, role).identity
        assert default.hides_reasoning
        if role in ("judge", "vqa"):
            with pytest.raises(SpecError, match="reasoning must be strip"):
                bind_text(f"{spec}&reasoning=keep", role)
        else:
            kept = bind_text(f"{spec}&reasoning=keep", role)
            assert (kept.params["reasoning"], kept.hides_reasoning) == ("keep", False)


TOO_LARGE = {
    "a proxy": Answer(b"<html><title>413 Request Entity Too Large</title></html>", 413),
    "an engine": fault(413, "Payload Too Large"),
    "Anthropic": fault(413, "Request exceeds the maximum size", "request_too_large"),
    "an image": fault(400, "image exceeds 5 MB maximum: 7340032 bytes > 5242880 bytes"),
}


def test_a_request_that_is_too_large_is_an_error_of_the_case(server: FakeServer) -> None:
    """No failure of the model, also where other requests are answered; the parameter is named."""
    for refusal in TOO_LARGE.values():
        server.in_turn(chat_answer(), refusal)
        with pytest.raises(ModelError, match=r"as large as this one .*max_pixels="):
            describe(load(server, "describer"), 2)


ERROR = {"message": "provider overloaded: no finish_reason"}

GIVEN_UP = {
    reason: chat_answer("a red ci", ended=reason)
    for reason in ("abort", "error", "insufficient_system_resource", "load", "network_error", "x")
} | {
    "null": chat_answer(None, tokens=0),
    "nothing": chat_answer("", tokens=0, ended=None),
    "parts of nothing": chat_answer([], tokens=0),
    "an error inside, as routers tell of it": document(
        {"choices": [{"message": {"content": "a"}, "finish_reason": "error", "error": ERROR}]}
    ),
    "no usage": document({"choices": [{"message": {"content": None}, "finish_reason": "stop"}]}),
}


def test_an_answer_that_the_server_gave_up_is_asked_for_again(server: FakeServer) -> None:
    """It is no result: without another one the case is an error, which says why."""
    for name, half in GIVEN_UP.items():
        model = load(server, "describer", "retries=1")
        server.in_turn(half, chat_answer("whole"))
        (reply,) = describe(model)
        assert (reply.value, reply.usage.retries) == ("whole", 1), name
        server.in_turn(half)
        with pytest.raises(ModelError, match=r"finish_reason|empty message"):
            describe(model)


WHOLE = ("stop", "end_turn", "STOP", "eos_token", "tool_calls", None)

CUT = ("length", "max_tokens", "MAX_TOKENS", "model_length")


def test_an_answer_counts_under_every_name_of_its_end(server: FakeServer) -> None:
    """Also of servers that never say how an answer ended; an empty one is the model's too. One that
    was cut says so in the provenance, which is stored, so that later runs count it too.
    """
    model, nothing = load(server, "describer", "concurrency=1"), list[Any]((None, "", []))
    for reason in (*WHOLE, *CUT):
        empty = (chat_answer(content, ended=reason, tokens=1) for content in nothing)
        server.in_turn(chat_answer("a dog", ended=reason), *empty)
        replies = describe(model, 4)
        assert [reply.value for reply in replies] == ["a dog", "", "", ""]
        finish = "length" if reason in CUT else None
        assert {reply.provenance.get("finish") for reply in replies} == {finish}
        assert not any(reply.usage.retries for reply in replies)


UNSUPPORTED = {
    "temperature": fault(
        400, "Unsupported value: 'temperature' does not support 0 with this model.",
        "unsupported_value", "temperature",
    ),
    "FastAPI": document(
        {"detail": [{"loc": ["body", "temperature"], "msg": "Extra inputs are not permitted"}]}, 422
    ),
    "transformers": document({"detail": "Unexpected fields in the request: {'temperature'}"}, 422),
}  # fmt: skip


def test_what_a_provider_does_not_honour_is_left_out_and_recorded(server: FakeServer) -> None:
    """Greedy was asked for and is not to be had: every result says so, and reports warn of it. A
    limit that is honoured by its newer name needs no message.
    """
    for refusal in UNSUPPORTED.values():
        server.seen.clear()
        server.in_turn(refusal, chat_answer())
        replies = describe(load(server, "describer", "concurrency=1"), 3)
        assert [reply.provenance["not honoured"] for reply in replies] == ["temperature=0"] * 3
        assert ["temperature" in seen.body for seen in server.seen] == [True, False, False, False]

    wrong = "Unsupported parameter: 'max_tokens' is not supported with this model."
    server.in_turn(fault(400, wrong, "unsupported_parameter", "max_tokens"), chat_answer())
    replies = describe(load(server, "describer", "max_tokens=7&concurrency=1"), 3)
    assert [seen.body.get("max_completion_tokens") for seen in server.seen[-3:]] == [7, 7, 7]
    assert not any("max_tokens" in seen.body for seen in server.seen[-3:])
    assert not any(reply.remarks or "not honoured" in reply.provenance for reply in replies)


def test_retry_after_is_read_in_all_its_forms() -> None:
    """Seconds, milliseconds, a date; nonsense is nothing."""
    for text, seconds in (("7", 7.0), ("0.5", 0.5), (formatdate(900, usegmt=True), 0.0)):
        assert requested_wait({"retry-after": text}) == seconds
    assert requested_wait({"retry-after": "7", "retry-after-ms": "250"}) == 0.25
    for text in ("soon", "-1", "inf", "nan", ""):
        assert requested_wait({"retry-after": text}) is None
    later = requested_wait({"retry-after": formatdate(time.time() + 30, usegmt=True)})
    assert later == pytest.approx(30, abs=2)


def test_too_many_requests_hold_all_back(server: FakeServer) -> None:
    """No request is sent before the time that the server named; one that has passed, by a clock
    that is slow, is as none.
    """
    server.in_turn(fault(429, "busy", retry_after=formatdate(900, usegmt=True)), chat_answer())
    describe(load(server, "describer", "max_retry_wait=0.2"))
    assert server.seen[1].at - server.seen[0].at >= 0.1
    server.seen.clear()
    model = load(server, "describer", "concurrency=8")
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


def test_an_interrupt_ends_the_waiting_at_once(server: FakeServer) -> None:
    """Ctrl-C does not wait for a slow server, nor for the seconds that it asked for."""
    model = load(server, "describer")
    server.answer = lambda _: document({}, after=5.0)
    main = threading.get_ident()
    threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    started = time.monotonic()

    with pytest.raises(KeyboardInterrupt):
        describe(model, 4)

    assert time.monotonic() - started < 5.0


def test_a_model_can_be_asked_inside_an_event_loop_and_is_closed_when_it_is_dropped(
    server: FakeServer,
) -> None:
    """Tests of one's own may be coroutines; no thread stays behind a model without a reference."""
    before = threading.enumerate()  # with those of models that other tests keep
    model = load(server, "describer")

    async def ask(asked: Any) -> str:
        return str(describe(asked)[0].value)

    def alive() -> bool:
        began = [thread.name for thread in threading.enumerate() if thread not in before]
        return any(name.startswith("openai-describer") for name in began)

    assert asyncio.run(ask(model)) == "a red circle"
    assert alive()

    del model
    gc.collect()

    assert not alive()
