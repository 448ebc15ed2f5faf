"""Models as the driver's threads hold them: what is sent to actors, and who waits for a server."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.chains.ray import pools as module
from pytest_cepbench.chains.ray.actor import ASKED as ASKED_METHODS
from pytest_cepbench.chains.ray.actor import ActorAnswer, RemoteModel, methods_of, with_images
from pytest_cepbench.chains.ray.pools import ServedModel, for_thread
from pytest_cepbench.errors import StoppedError
from pytest_cepbench.models.protocols import (
    AnsweredQuestion,
    AnswerScorer,
    Battle,
    CountsTokens,
    JsonDescriber,
    JsonWriter,
    RoleName,
    StepLimit,
    VqaQuestion,
)
from pytest_cepbench.models.roles import ROLES
from tests.artifacts.files import noise

PIXELS = noise(6, 8)
IMAGE = Image.fromarray(PIXELS)

ASKED = VqaQuestion("is it red?", ("yes", "Yes"))


class _Actors:
    """Replies to every request with what the test says, and keeps the requests."""

    def __init__(self, value: Any = None, lengths: Any = None) -> None:
        self.answer = ActorAnswer(value, lengths)
        self.requests: list[tuple[str, Sequence[Any]]] = []

    def ask(self, method: str, args: Sequence[Any]) -> ActorAnswer:
        """As a pool does."""
        self.requests.append((method, args))
        return self.answer


@pytest.mark.parametrize("role", ROLES)
def test_a_remote_model_plays_the_roles_of_its_methods(role: RoleName) -> None:
    """All of its methods are passed on: a role that is left out would fail every batch."""
    names = [method.name for method in ROLES[role].required]
    actors = _Actors(["value"])

    model: Any = RemoteModel(names, actors.ask)

    assert isinstance(model, ROLES[role].protocol)
    for name in names:
        assert getattr(model, name)(["input"], "rest") == ["value"]
    assert actors.requests == [(name, (["input"], "rest")) for name in names]
    others = [other for other, own in ROLES.items() if isinstance(model, own.protocol)]
    assert others == [role]


def test_a_remote_model_has_the_abilities_of_its_methods() -> None:
    """Those of the model and no other: else it would be asked another way than in one process."""
    able: Any = RemoteModel(ASKED_METHODS, _Actors().ask)
    abilities = (JsonDescriber, JsonWriter, AnswerScorer, CountsTokens)
    assert all(isinstance(able, ability) for ability in abilities)
    plain: Any = RemoteModel(["describe", "write", "judge"], _Actors().ask)
    assert not any(isinstance(plain, ability) for ability in abilities)
    assert methods_of(able) == tuple(ASKED_METHODS)
    assert set(methods_of(plain)) == {"describe", "write", "judge"}


def test_images_are_sent_as_pixels() -> None:
    """Wherever they are among the arguments; sequences are lists, and all else is as it was."""
    question, limit = ("what", IMAGE), StepLimit(3)
    battle = Battle(question, ["first"], (IMAGE,))
    schema = {"type": "object"}

    sent = with_images(((IMAGE,), [question], "say", (1,), limit, schema, [(ASKED,)]))

    assert np.array_equal(sent[0][0], PIXELS)
    assert sent[1][0][0] == "what"
    assert np.array_equal(sent[1][0][1], PIXELS)
    assert sent[2:] == ["say", [1], limit, schema, [[ASKED]]]
    ((judged, scored),) = with_images([[battle, AnsweredQuestion([IMAGE], ["answer"])]])
    assert (judged.question[0], judged.first, scored.answer) == ("what", ["first"], ["answer"])
    for image in (judged.question[1], judged.second[0], scored.question[0]):
        assert np.array_equal(image, PIXELS)


def test_lengths_come_with_the_last_reply() -> None:
    """For the same texts nothing is asked again; for others it is."""
    actors = _Actors(lengths=([2], 77))
    model: Any = RemoteModel(["encode_texts", "text_lengths"], actors.ask)
    model.encode_texts(["two words"])
    assert model.text_lengths(("two words",)) == ([2], 77)
    assert len(actors.requests) == 1

    actors.answer = ActorAnswer(([3], 77))
    assert model.text_lengths(["another text here"]) == ([3], 77)
    assert [method for method, _ in actors.requests] == ["encode_texts", "text_lengths"]
    model.text_lengths(["two words"])
    assert len(actors.requests) == 3


class _Server:
    """Answers with what it is asked."""

    def describe(self, *asked: Any) -> Any:
        """As a describer."""
        return asked

    generate = describe


def _never() -> bool:
    return False


def test_a_model_behind_a_server_is_loaded_once() -> None:
    """However many threads and roles hold it; its time is counted."""
    loads: list[str] = []

    def load() -> _Server:
        loads.append("load")
        return _Server()

    shared = ServedModel(load)
    assert shared.used == (0, 0.0)
    models: list[Any] = [for_thread(shared, _never) for _ in range(2)]
    assert models[0].describe([IMAGE], "p", (2,)) == ([IMAGE], "p", (2,))
    assert models[1].generate(["t"], [3]) == (["t"], [3])
    assert not hasattr(models[0], "judge")
    assert (loads, shared.used[0]) == (["load"], 1)
    assert 0 < shared.used[1] < 5


def test_threads_take_turns_until_the_run_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call at a time; a thread that waits leaves when the run stops."""
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.01)
    stopped, entered, leave = threading.Event(), threading.Event(), threading.Event()
    errors: list[Exception] = []

    class Slow(_Server):
        """Takes as long as the test says."""

        def describe(self, *asked: Any) -> Any:
            """As a describer."""
            entered.set()
            assert leave.wait(5)
            return asked

    shared = ServedModel(Slow)
    first: Any = for_thread(shared, _never)
    second: Any = for_thread(shared, stopped.is_set)

    def wait() -> None:
        try:
            second.describe("never")
        except StoppedError as error:
            errors.append(error)

    asking = threading.Thread(target=lambda: first.describe("first"))
    asking.start()
    assert entered.wait(5)
    waiting = threading.Thread(target=wait)
    waiting.start()
    stopped.set()
    waiting.join(5)
    assert len(errors) == 1
    leave.set()
    asking.join(5)
    assert second.describe("now") == ("now",)  # free again: nothing to wait for
