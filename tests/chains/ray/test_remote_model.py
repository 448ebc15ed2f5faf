"""Models as the driver's threads hold them: what is sent to actors, and who waits for a server."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.chains.ray.messages import ActorReply, ActorRequest
from pytest_cepbench.chains.ray.remote_model import (
    ApiProxy,
    CountingModel,
    RemoteModel,
    SerializedModel,
)
from pytest_cepbench.errors import StoppedError
from pytest_cepbench.models.protocols import (
    AnsweredQuestion,
    Battle,
    CountsTokens,
    StepLimit,
    VqaQuestion,
)
from tests.artifacts.files import noise

PIXELS = noise(6, 8)
IMAGE = Image.fromarray(PIXELS)

ASKED = VqaQuestion("is it red?", ("yes", "Yes"))


class _Actors:
    """Replies to every request with what the test says, and keeps the requests."""

    def __init__(self, value: Any = None, lengths: Any = None) -> None:
        self.reply = ActorReply(value, lengths)
        self.requests: list[ActorRequest] = []

    def ask(self, request: ActorRequest) -> ActorReply:
        """As a pool does."""
        self.requests.append(request)
        return self.reply


@pytest.mark.parametrize(
    ("call", "rest"),
    [
        (lambda model: model.describe([IMAGE], "say", (3,)), ("say", [3])),
        (lambda model: model.encode_images([IMAGE]), ()),
        (lambda model: model.detect([IMAGE], [("a", "b")]), ([["a", "b"]],)),
        (lambda model: model.answer([IMAGE], [(ASKED,)]), ([[ASKED]],)),
        (lambda model: model.edit([IMAGE], ("turn",), (3,)), (["turn"], [3])),
    ],
    ids=["describe", "encode_images", "detect", "answer", "edit"],
)
def test_images_are_sent_as_pixels(call: Any, rest: tuple[Any, ...]) -> None:
    """With the further arguments as plain lists; the value of the reply is returned."""
    actors = _Actors(["value"])

    assert call(RemoteModel(actors.ask)) == ["value"]

    (request,) = actors.requests
    assert request.rest == rest
    assert np.array_equal(request.inputs[0], PIXELS)


def test_texts_and_battles_are_sent_plain() -> None:
    """A battle's images are pixels too."""
    actors = _Actors(["A"])
    model: Any = RemoteModel(actors.ask)
    battle = Battle(["question", IMAGE], ["first"], [IMAGE])

    assert model.generate(("a text",), (7,)) == ["A"]
    assert model.encode_texts(("a text",)) == ["A"]
    assert model.judge([battle], (1,)) == ["A"]

    drawn, encoded, judged = actors.requests
    assert (drawn.method, drawn.inputs, drawn.rest) == ("generate", ["a text"], ([7],))
    assert (encoded.method, encoded.inputs, encoded.rest) == ("encode_texts", ["a text"], ())
    (sent,) = judged.inputs
    assert (judged.method, judged.rest, sent.question[0]) == ("judge", ([1],), "question")
    assert all(np.array_equal(image, PIXELS) for image in (sent.question[1], sent.second[0]))


def test_answers_to_be_scored_are_sent_plain() -> None:
    """Their images are pixels, those of question and answer."""
    actors = _Actors(["scores"])
    answered = AnsweredQuestion(["question", IMAGE], [IMAGE, "answer"])

    assert RemoteModel(actors.ask).score_answers([answered], (1,)) == ["scores"]

    (request,) = actors.requests
    (sent,) = request.inputs
    assert (request.method, request.rest) == ("score_answers", ([1],))
    assert (sent.question[0], sent.answer[1]) == ("question", "answer")
    assert all(np.array_equal(image, PIXELS) for image in (sent.question[1], sent.answer[0]))


def test_questions_are_sent_plain() -> None:
    """Their images are pixels; limits and system prompt go with them."""
    actors = _Actors(["value"])
    model: Any = RemoteModel(actors.ask)
    question, limit = ["what", IMAGE], StepLimit(3)

    assert model.write([question], "say", (1,)) == ["value"]
    assert model.interleave([question], (limit,), (1,)) == ["value"]

    written, answered = actors.requests
    assert (written.method, written.rest) == ("write", ("say", [1]))
    assert (answered.method, answered.rest) == ("interleave", ([limit], [1]))
    for request in actors.requests:
        ((text, pixels),) = request.inputs
        assert text == "what"
        assert np.array_equal(pixels, PIXELS)


def test_lengths_come_with_the_last_reply() -> None:
    """For the same texts nothing is asked again; for others it is."""
    actors = _Actors(lengths=([2], 77))
    model = CountingModel(actors.ask)
    model.encode_texts(["two words"])
    assert model.text_lengths(("two words",)) == ([2], 77)
    assert len(actors.requests) == 1

    actors.reply = ActorReply(([3], 77))
    assert model.text_lengths(["another text here"]) == ([3], 77)
    assert [request.method for request in actors.requests] == ["encode_texts", "text_lengths"]
    actors.reply = ActorReply(([2], 77))
    assert CountingModel(actors.ask).text_lengths(["two words"]) == ([2], 77)
    assert len(actors.requests) == 3
    assert not isinstance(RemoteModel(actors.ask), CountsTokens)


class _Server:
    """Answers with what it is asked."""

    def describe(self, *asked: Any) -> Any:
        """As a describer."""
        return asked

    generate = judge = score_answers = write = interleave = describe


def test_a_model_behind_a_server_is_loaded_once() -> None:
    """However many threads and roles hold it; its time is counted."""
    loads: list[str] = []

    def load() -> _Server:
        loads.append("load")
        return _Server()

    shared = SerializedModel(load)
    assert shared.loads == 0
    proxies = [ApiProxy(shared, lambda: False) for _ in range(2)]
    assert proxies[0].describe([1], "p", [2]) == ([1], "p", [2])
    assert proxies[1].generate(["t"], [3]) == (["t"], [3])
    assert proxies[1].judge(["b"], [4]) == (["b"], [4])  # type: ignore[list-item] # passed on
    assert proxies[0].score_answers(["a"], [4]) == (["a"], [4])  # type: ignore[list-item]
    assert proxies[0].write([["q"]], "p", [5]) == ([["q"]], "p", [5])
    assert proxies[0].interleave([["q"]], [StepLimit()], [6]) == ([["q"]], [StepLimit()], [6])
    assert (loads, shared.loads) == (["load"], 1)
    assert 0 < shared.seconds < 5


def test_threads_take_turns_until_the_run_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call at a time; a thread that waits leaves when the run stops."""
    monkeypatch.setattr("pytest_cepbench.chains.ray.remote_model._LOCK_SECONDS", 0.01)
    shared = SerializedModel(_Server)
    stopped = threading.Event()
    errors: list[Exception] = []

    def wait() -> None:
        try:
            with shared.turn(stopped.is_set):
                pytest.fail("two threads have the model")
        except StoppedError as error:
            errors.append(error)

    with shared.turn(stopped.is_set):
        thread = threading.Thread(target=wait)
        thread.start()
        stopped.set()
        thread.join(5)
    assert len(errors) == 1
    with shared.turn(lambda: True) as model:  # free again: nothing to wait for
        assert isinstance(model, _Server)
