"""The actor's side, in this process: one model bound, loaded and asked, and nothing raised."""

from __future__ import annotations

import os
import platform
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench import __version__
from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.criteria import CriteriaScores
from pytest_cepbench.artifacts.digest import FileStamp
from pytest_cepbench.chains.ray.actor import (
    ChainActor,
    actor_class,
    bind_on_node,
    binding_task,
    create_actor,
    stamp_of,
)
from pytest_cepbench.chains.ray.cluster import node_preparation
from pytest_cepbench.chains.ray.messages import (
    ActorFault,
    ActorReady,
    ActorReply,
    ActorRequest,
    ActorSetup,
    exception_of,
)
from pytest_cepbench.chains.ray.resources import Allocation
from pytest_cepbench.errors import ModelError
from pytest_cepbench.models.protocols import (
    AnsweredQuestion,
    Battle,
    Reply,
    RoleName,
    StepLimit,
    Usage,
    VqaQuestion,
)
from tests.artifacts.files import noise

MODELS = "python:tests.chains.ray.actor_models"
PIXELS = noise(6, 8)
BLACK = np.zeros((6, 8, 3), np.uint8)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an actor sets is put back."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "5")


def _setup(role: RoleName, spec: str = f"{MODELS}:model", **changes: Any) -> ActorSetup:
    fields: dict[str, Any] = {"force": False, "threads": None, "gpus": 0.0}
    return ActorSetup(role, spec, **(fields | changes))


def _actor(role: RoleName, spec: str = f"{MODELS}:model") -> ChainActor:
    actor = ChainActor(_setup(role, spec), "here")
    ready = actor.load()
    assert isinstance(ready, ActorReady), ready
    return actor


def _answer(actor: ChainActor, method: str, inputs: list[Any], *rest: Any) -> ActorReply:
    reply = actor.answer(ActorRequest(method, inputs, rest))
    assert isinstance(reply, ActorReply), reply
    return reply


def test_a_ready_actor_says_what_it_loaded() -> None:
    """Identity, node, versions, seconds; the driver cannot load what it gets."""
    actor = ChainActor(_setup("encoder"), "node7")
    bound, ready = actor.bind(), actor.load()

    assert isinstance(bound, ActorReady)
    assert isinstance(ready, ActorReady)
    assert (ready.node, ready.version) == ("node7", f"{__version__} {platform.python_version()}")
    assert bound.bound.identity == ready.bound.identity
    assert ready.bound.files is None
    assert (bound.counts, ready.counts) == (False, True)
    assert bound.seconds == 0.0
    assert 0 < ready.seconds < 60
    with pytest.raises(AssertionError, match="loaded by an actor"):
        ready.bound.load()


def test_what_cannot_be_bound_or_loaded_is_a_fault() -> None:
    """Raised again in the driver, with the same words."""
    for fault in (
        ChainActor(_setup("describer", f"{MODELS}:nothing"), "n").bind(),
        ChainActor(_setup("describer", f"{MODELS}:nothing"), "n").load(),
        ChainActor(_setup("describer", f"{MODELS}:full"), "n").load(),
    ):
        assert isinstance(fault, ActorFault)
        assert str(exception_of(fault))


def test_an_actor_without_gpus_sees_none() -> None:
    """One with a part of one sees what Ray leaves it; threads are set where they are known."""
    ChainActor(_setup("encoder", gpus=0.5), "n")
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["OMP_NUM_THREADS"]) == ("5", "5")
    ChainActor(_setup("encoder", threads=3), "n")
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["HIP_VISIBLE_DEVICES"]) == ("", "")
    assert os.environ["OMP_NUM_THREADS"] == "3"


@pytest.mark.filterwarnings("error")
def test_descriptions_are_checked_and_plain() -> None:
    """Images are Pillow's there; a blank text is a failure; a reply stays around its text."""
    actor = _actor("describer")
    with pytest.warns(DeprecationWarning, match="old call"):  # and no failed batch
        reply = _answer(actor, "describe", [PIXELS, BLACK], "say", [3, 4])

    reply_text, blank = reply.value
    assert (type(reply_text.value), reply_text.value, reply_text.usage) == (
        str,
        "say (8, 6) 3",
        Usage(requests=1),
    )
    assert isinstance(blank, Failure)
    assert blank.kind == "empty-text"
    assert reply.lengths is None
    assert reply.seconds > 0


def test_images_are_pixels_or_failures() -> None:
    """One that raises when it is read fails alone, and not for ever."""
    reply = _answer(_actor("generator"), "generate", ["gray", "nan", "raise"], [1, 2, 3])

    gray, nan, unreadable = reply.value
    assert np.array_equal(gray, np.full((2, 4, 3), 9, np.uint8))
    assert isinstance(nan, Failure)
    assert nan.kind == "nan-image"
    assert isinstance(unreadable, Reply)
    assert unreadable.passing
    assert unreadable.value == Failure("exception", "ArithmeticError: no pixels")
    assert reply.lengths == ([1, 1, 1], 3)


def test_vectors_are_float32_and_as_many_as_inputs() -> None:
    """Too large for float32 is infinite, a failure in the driver; a missing row is a fault."""
    encoder = _actor("encoder")
    images = _answer(encoder, "encode_images", [PIXELS, PIXELS])
    texts = _answer(encoder, "encode_texts", ["one", "two words"])
    fault = encoder.answer(ActorRequest("encode_texts", ["short", "two"]))

    assert (images.value.dtype, images.value.shape) == (np.float32, (2, 2))
    assert np.isinf(images.value[:, 1]).all()
    assert images.lengths is None
    assert texts.lengths == ([1, 2], 3)
    assert isinstance(fault, ActorFault)
    assert isinstance(exception_of(fault), ModelError)
    assert _answer(encoder, "text_lengths", ["a b c d"]).value == ([4], 3)


def test_battles_hold_images_again() -> None:
    """The sides stay where they are."""
    wide: Any = noise(6, 12)  # as they are sent
    narrow: Any = noise(6, 8)
    battles = [Battle(["q"], [wide], [narrow]), Battle(["q"], [narrow], [wide])]

    assert _answer(_actor("judge"), "judge", battles, [1, 2]).value == ["A", "B"]


def test_answers_to_be_scored_hold_images_again() -> None:
    """Numbers by criterion come back as scores, checked: 12 is none."""
    wide: Any = noise(6, 12)
    narrow: Any = noise(6, 8)
    answers = [AnsweredQuestion([wide], [narrow]), AnsweredQuestion([narrow], [wide])]

    fits, odd = _answer(_actor("judge"), "score_answers", answers, [1, 2]).value
    assert fits == CriteriaScores.of({"richness": 8})
    assert odd.value("richness") is None


def test_pieces_that_are_asked_about_hold_images_again() -> None:
    """Probabilities come back as plain numbers, checked."""
    pieces: Any = [PIXELS, "a text", "odd"]
    asked = [VqaQuestion("is it red?", ("yes",))]

    picture, text, odd = _answer(_actor("vqa"), "answer", pieces, [asked * 2, asked, asked]).value
    assert (picture, text) == ([1.0, 1.0], [0.0])
    assert [type(number) for number in picture] == [float, float]
    assert odd.kind == "bad-answer"


def test_questions_hold_images_again() -> None:
    """Texts are plain; an edited image is pixels."""
    question: Any = ["what", PIXELS]

    (text,) = _answer(_actor("writer"), "write", [question], "say", [3]).value
    (turned,) = _answer(_actor("editor"), "edit", [PIXELS], ["turn"], [3]).value

    assert (type(text), text) == (str, "say ['what', (8, 6)] 3")
    assert turned.shape == (8, 6, 3)


def test_the_steps_of_an_answer_are_plain() -> None:
    """Texts and pixels, or the failure that it is; anything else is a fault."""
    actor = _actor("interleaver")
    limits = [StepLimit(2), StepLimit()]

    made, refused = _answer(actor, "interleave", [["what"], ["no"]], limits, [1, 2]).value

    assert [(type(step.text), step.image.shape) for step in made] == [(str, (2, 4, 3))] * 2
    assert refused == Failure("refused", "no")
    fault = actor.answer(ActorRequest("interleave", [["odd"]], ([StepLimit()], [1])))
    assert isinstance(fault, ActorFault)
    assert "returns a sequence of AnswerStep" in str(exception_of(fault))


def test_a_file_that_changes_before_the_first_answers_is_a_fault(tmp_path: Path) -> None:
    """After these it has been read: a trainer may go on writing."""
    path = tmp_path / "weights"
    path.write_text("A")
    request = ActorRequest("encode_texts", ["a"])
    early = _actor("encoder", f"{MODELS}:late?path={path}")
    late = _actor("encoder", f"{MODELS}:late?path={path}")
    assert isinstance(late.answer(request), ActorReply)
    path.write_text("B, longer")

    assert isinstance(late.answer(request), ActorReply)
    fault = early.answer(request)
    assert isinstance(fault, ActorFault)
    assert fault.kind == "IdentityError"


def test_digests_are_taken_once_for_each_content(tmp_path: Path) -> None:
    """Those of the driver are used; what changed has another name."""
    path = tmp_path / "weights"
    path.write_text("A")
    os.utime(path, (1, 1))
    actor = ChainActor(_setup("encoder"), "n")
    digest = actor._hash(path)
    assert digest == sha256(b"A").hexdigest()
    name = stamp_of(path, FileStamp.of(path))
    known = ChainActor(_setup("encoder", digests={name: "known"}), "n")
    assert known._hash(path) == "known"
    path.write_text("B")
    assert known._hash(path) == sha256(b"B").hexdigest()


@pytest.mark.parametrize(
    ("gpus", "visible", "left"), [(0.5, "", None), (0.5, "3", "3"), (0.0, "", ""), (0.0, "3", "3")]
)
def test_models_are_bound_where_accelerators_are_seen(
    gpus: float, visible: str, left: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray hides them from a task that asks for none; the model's actors will have some."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    seen: list[str | None] = []

    class Actor:
        """Looks at its environment."""

        def __init__(self, fields: dict[str, float]) -> None:
            seen.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
            self.bind = lambda: fields

    fields = {"gpus": gpus}
    assert binding_task(Actor)(fields) == fields
    assert seen == [left]


def test_the_class_that_is_sent_finds_the_package_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes to the driver's folder, adds its paths behind the node's own, and wraps an actor."""
    ray = pytest.importorskip("ray")
    context = type("Context", (), {"get_node_id": lambda _: "id7"})
    monkeypatch.setattr(ray, "get_runtime_context", context)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "10.0.0.7")
    before = list(sys.path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "mine"), str(tmp_path / "gone"), *before])
    prepare = node_preparation()
    monkeypatch.setattr(sys, "path", list(before))
    monkeypatch.chdir("/")
    fields = {"role": "encoder", "spec": f"{MODELS}:model", "force": False, "threads": None}

    actor = actor_class(prepare)(fields | {"gpus": 0.0, "digests": {}})

    assert actor.where() == ("id7", "10.0.0.7")
    assert Path.cwd() == tmp_path
    assert sys.path == [*before, str(tmp_path), str(tmp_path / "mine")]
    assert actor.bind().bound.role == "encoder"
    assert actor.load().node == "10.0.0.7"
    assert actor.answer(ActorRequest("encode_texts", ["a"])).value.shape == (1, 2)


@pytest.mark.parametrize("placed", [False, True])
def test_an_actor_is_created_in_its_place(monkeypatch: pytest.MonkeyPatch, *, placed: bool) -> None:
    """With its resources; Ray restarts nothing by itself (see `supervisor`)."""
    ray = pytest.importorskip("ray")
    options: dict[str, Any] = {}

    class Kind:
        """A class that Ray was given."""

        def options(self, **chosen: Any) -> Kind:
            """As Ray's."""
            options.update(chosen)
            return self

        def remote(self, fields: dict[str, Any]) -> dict[str, Any]:
            """The handle: what was sent."""
            return fields

    monkeypatch.setattr(ray, "remote", lambda _: Kind())
    group = object() if placed else None

    sent: Any = create_actor(_setup("encoder"), Allocation(2, 0.5, 1.5, None), group)

    assert ActorSetup(**sent) == _setup("encoder")
    strategy = options.pop("scheduling_strategy")
    assert (strategy.placement_group if placed else strategy) == (group if placed else "SPREAD")
    assert options == {"num_cpus": 1.5, "num_gpus": 0.5, "max_restarts": 0, "max_task_retries": 0}


def test_a_model_is_bound_on_the_node_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """There alone, without a core of its own: cores are for the models."""
    ray = pytest.importorskip("ray")
    options: dict[str, Any] = {}

    class Task:
        """A task of Ray's."""

        def options(self, **chosen: Any) -> Task:
            """As Ray's."""
            options.update(chosen)
            return self

        def remote(self, fields: dict[str, Any]) -> str:
            """What was sent."""
            return f"{fields['role']} is bound"

    monkeypatch.setattr(ray, "remote", lambda _: Task())
    monkeypatch.setattr(ray, "get", lambda reply: reply)

    reply: Any = bind_on_node(_setup("encoder"), "a" * 56)

    assert reply == "encoder is bound"
    strategy = options.pop("scheduling_strategy")
    assert (strategy.node_id, strategy.soft, options) == ("a" * 56, False, {"num_cpus": 0})
