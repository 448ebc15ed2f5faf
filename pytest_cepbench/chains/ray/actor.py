"""Actors: made from the driver; each binds, loads and asks one model in a process of its own."""

from __future__ import annotations

import json
import os
import platform
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from hashlib import file_digest
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench._version import __version__
from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.artifacts.digest import FileStamp
from pytest_cepbench.chains.ray.cluster import node_preparation
from pytest_cepbench.chains.ray.messages import (
    ActorFault,
    ActorReady,
    ActorReply,
    ActorRequest,
    ActorSetup,
    fault_of,
    refuse_to_load,
)
from pytest_cepbench.chains.ray.resources import Allocation
from pytest_cepbench.chains.validation import (
    admit_answers,
    admit_detections,
    admit_drawing,
    admit_reply,
    admit_scores,
    admit_text,
    admit_vectors,
    admit_winner,
)
from pytest_cepbench.errors import ImageError, ModelError
from pytest_cepbench.files import open_regular
from pytest_cepbench.models.fingerprint_check import CoveredFiles
from pytest_cepbench.models.model_spec import parse_spec
from pytest_cepbench.models.protocols import (
    AnsweredQuestion,
    AnswerStep,
    Battle,
    BindContext,
    BoundRole,
    CountsTokens,
    Model,
    VqaQuestion,
)
from pytest_cepbench.models.registry import bind
from pytest_cepbench.models.torch_runtime import release_memory

_DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

_FIRST_ANSWERS = "the first answers were made"


# -- in the driver -------------------------------------------------------------------------------


def create_actor(setup: ActorSetup, allocation: Allocation, placement: Any) -> Any:
    """The handle of a new actor, which may wait for its place.

    placement: a placement group of one bundle; None lets Ray spread the actors.
    Its methods: `where()` gives the id and name of its node, `load()` an ActorReady or ActorFault,
    `answer(request)` an ActorReply or ActorFault.
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    strategy: Any = "SPREAD" if placement is None else PlacementGroupSchedulingStrategy(placement)
    kind: Any = ray.remote(actor_class(node_preparation()))
    return kind.options(
        num_cpus=allocation.cpus,
        num_gpus=allocation.gpus,
        max_restarts=0,  # see supervisor.py
        max_task_retries=0,
        scheduling_strategy=strategy,
    ).remote(asdict(setup))


def bind_on_node(setup: ActorSetup, node_id: str) -> ActorReady | ActorFault:
    """Bind a model on a node, in a process that binds others as well and loads no weights."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    task: Any = ray.remote(binding_task(actor_class(node_preparation())))
    on_node = task.options(num_cpus=0, scheduling_strategy=strategy)
    reply: ActorReady | ActorFault = ray.get(on_node.remote(asdict(setup)))
    return reply


def binding_task(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that binds a model by an actor of a kind; sent by value as the kind is."""

    def bind_setup(fields: Any) -> Any:
        import os

        if fields["gpus"] and not os.environ.get("CUDA_VISIBLE_DEVICES"):
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # hidden, since a task asks for no GPU
        return kind(fields).bind()

    return bind_setup


def actor_class(prepare: Callable[[], None]) -> type:
    """A class that Ray sends by value: `prepare` makes our package importable on the node."""

    class Actor:
        def __init__(self, fields: Any) -> None:
            import ray

            prepare()
            from pytest_cepbench.chains.ray.actor import ChainActor
            from pytest_cepbench.chains.ray.messages import ActorSetup

            self.node_id = ray.get_runtime_context().get_node_id()
            self.node = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            self.actor = ChainActor(ActorSetup(**fields), self.node)

        def where(self) -> Any:
            return self.node_id, self.node

        def bind(self) -> Any:
            return self.actor.bind()

        def load(self) -> Any:
            return self.actor.load()

        def answer(self, request: Any) -> Any:
            return self.actor.answer(request)

    return Actor


# -- on its node ---------------------------------------------------------------------------------


class ChainActor:
    """A model in an actor's process. node: the name of the node, for people."""

    def __init__(self, setup: ActorSetup, node: str) -> None:
        self._setup = setup
        self._node = node
        self._model: Model | None = None
        self._unread: CoveredFiles | None = None  # files that the first answers may read
        self._digests: dict[str, str] = dict(setup.digests)
        if setup.gpus == 0:  # Ray may leave them visible to those that asked for none
            os.environ.update(dict.fromkeys(_DEVICE_VARIABLES, ""))
        if setup.threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(setup.threads)

    def bind(self) -> ActorReady | ActorFault:
        """Resolve the spec on this node; an exception becomes a fault."""
        try:
            return self._ready(self._bound())
        except Exception as error:  # noqa: BLE001 - it is raised again in the driver
            return fault_of(error)

    def load(self) -> ActorReady | ActorFault:
        """Resolve the spec and load the model; an exception becomes a fault."""
        started = time.perf_counter()
        try:
            with warnings.catch_warnings(action="default"):
                bound = self._bound()
                self._model = bound.load()
                self._unread = bound.files
        except Exception as error:  # noqa: BLE001 - as above
            fault = fault_of(error)
        else:
            ready = self._ready(bound)
            counts = isinstance(self._model, CountsTokens)
            return replace(ready, counts=counts, seconds=time.perf_counter() - started)
        release_memory()
        return fault

    def answer(self, request: ActorRequest) -> ActorReply | ActorFault:
        """The model's outputs for a batch, checked and plain; an exception becomes a fault."""
        assert self._model is not None
        try:
            with nullcontext() if self._unread is None else self._unread.unchanged(_FIRST_ANSWERS):
                reply = _answer(self._model, request)
        except Exception as error:  # noqa: BLE001 - an outcome; the driver decides which
            fault = fault_of(error)
        else:
            self._unread = None
            return reply
        if fault.memory:
            release_memory()  # not before the error and the tensors in its traceback are gone
        return fault

    def _bound(self) -> BoundRole:
        setup = self._setup
        context = BindContext(self._hash, setup.threads)
        return bind(parse_spec(setup.spec), setup.role, context, force=setup.force)

    def _ready(self, bound: BoundRole) -> ActorReady:
        return ActorReady(
            replace(bound, load=refuse_to_load, files=None),
            self._node,
            f"{__version__} {platform.python_version()}",
            digests=dict(self._digests),
        )

    def _hash(self, path: Path) -> str:
        stamp = FileStamp.of(path)
        name = stamp_of(path, stamp)
        if name not in self._digests:
            with open_regular(path) as stream:
                digest = file_digest(stream, "sha256").hexdigest()
            if stamp != FileStamp.of(path) or not stamp.settled:
                return digest
            self._digests[name] = digest
        return self._digests[name]


def stamp_of(path: Path, stamp: FileStamp) -> str:
    """A name that files of other content do not share: a change time cannot be set at will."""
    return f"{path.resolve()} {stamp}"


def _answer(model: Any, request: ActorRequest) -> ActorReply:
    inputs = [_role_input(value) for value in request.inputs]
    started = time.perf_counter()
    with warnings.catch_warnings(action="default"):  # as `CallCounts.timed`, and why
        value = _call(model, request.method, inputs, *request.rest)
        lengths = None
        if request.method in ("generate", "encode_texts") and isinstance(model, CountsTokens):
            lengths = _call(model, "text_lengths", inputs)
    return ActorReply(value, lengths, time.perf_counter() - started)


def _role_input(value: Any) -> Any:
    """An input as roles take it: pixels are Pillow images."""
    if isinstance(value, Battle):
        parts = (value.question, value.first, value.second)
        return Battle(*([_role_input(piece) for piece in part] for part in parts))
    if isinstance(value, AnsweredQuestion):
        return AnsweredQuestion(_role_input(value.question), _role_input(value.answer))
    if isinstance(value, list):
        return [_role_input(piece) for piece in value]
    return Image.fromarray(value) if isinstance(value, np.ndarray) else value


def _call(model: Any, method: str, inputs: list[Any], *rest: Any) -> Any:
    """Call a method of the model; its outputs checked, and as types that the driver has."""
    outputs = getattr(model, method)(inputs, *rest)
    if method in _ADMISSIONS:
        return [admit_reply(output, _ADMISSIONS[method]) for output in outputs]
    match method:
        case "generate" | "edit":
            return [admit_reply(admit_drawing(image), _pixels) for image in outputs]
        case "detect":
            return admit_detections(outputs, rest[0])
        case "answer":
            return [
                admit_reply(output, partial(_plain_probabilities, questions=asked))
                for output, asked in zip(outputs, rest[0], strict=True)
            ]
        case "text_lengths":
            return list(outputs[0]), outputs[1]
    admit_vectors(outputs, len(inputs))  # raises where they are none
    with np.errstate(over="ignore"):
        return np.asarray(outputs).astype(np.float32)


def _plain_text(text: object) -> str | Failure:
    admitted = admit_text(text)
    return admitted if isinstance(admitted, Failure) else str.__str__(admitted)


def _plain_probabilities(value: object, questions: Sequence[VqaQuestion]) -> object:
    admitted = admit_answers(value, questions)
    return json.loads(admitted) if isinstance(admitted, str) else admitted


def _plain_answer(answer: Any) -> object:
    """An answer of built-in texts and arrays; the driver checks it as one of its own models'."""
    if isinstance(answer, Failure):
        return answer
    steps = list(answer)
    if not all(isinstance(step, AnswerStep) and isinstance(step.text, str) for step in steps):
        raise ModelError(
            "an interleaver returns a sequence of AnswerStep for each question, this one returned "
            f"a {type(answer).__name__} that holds something else"
        )
    try:
        return [AnswerStep(str.__str__(step.text), _plain_image(step.image)) for step in steps]
    except ImageError as error:
        return Failure("bad-image", str(error))


def _plain_image(image: Any) -> Any:
    return ImageArtifact.from_pil(image).pixels if isinstance(image, Image.Image) else image


def _pixels(image: object) -> object:
    return image.pixels if isinstance(image, ImageArtifact) else image


_ADMISSIONS: Mapping[str, Callable[[object], object]] = {
    "describe": _plain_text,
    "write": _plain_text,
    "judge": admit_winner,
    "score_answers": admit_scores,
    "interleave": _plain_answer,
}
"""By the method of a role: what checks one of its results and makes it plain."""
