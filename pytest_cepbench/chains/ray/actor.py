"""Actors: each plays one model in a process of its own, and the run's model alone.

Ray pickles what it sends, so what a model returns is checked and made plain in the actor: built-in
types, NumPy arrays, our own dataclasses.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from PIL import Image

from pytest_cepbench import errors
from pytest_cepbench._version import __version__
from pytest_cepbench.artifacts import (
    Detection,
    Detections,
    Failure,
    ImageArtifact,
    Mask,
    canonical_json,
)
from pytest_cepbench.artifacts.outcome import CriteriaScores, CriterionScore
from pytest_cepbench.errors import CepError, ModelError, is_exit
from pytest_cepbench.escapes import mask_secrets
from pytest_cepbench.files import sha256_of
from pytest_cepbench.models.binding import BindContext, BoundRole, CoveredFiles, bind
from pytest_cepbench.models.protocols import (
    AnsweredQuestion,
    AnswerStep,
    Battle,
    CountsTokens,
    Reply,
    RoleName,
    Usage,
)
from pytest_cepbench.models.roles import METHODS, check_drawn, check_image
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.models.torch_runtime import is_out_of_memory, release_memory

_DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

_FIRST_ANSWERS = "the first answers were made"

ASKED = (*METHODS, "text_lengths")
"""What models are asked: the methods of all roles, and how long texts are."""

_OTHER_WEIGHTS = (
    "the weights or configurations differ: copy them, or share the folder, and let no trainer "
    "write there meanwhile"
)


# -- messages ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ActorSetup:
    """The model of an actor, and what the actor needs from the driver to load it.

    role: of the model.
    spec: names the model, as the user typed it; parsed again in the actor.
    force: whether the role is taken on trust where the spec does not show it.
    threads: CPU threads of the model; None leaves the library's choice.
    gpus: the actor's part of an accelerator; 0 hides accelerators from it.
    identity: what the actor's model has to agree with, as of `BoundRole`; None while binding.
    version: the driver's, of pytest-cepbench; Ray itself compares those of Ray and Python.
    folder: of the driver, where paths of specs begin.
    """

    role: RoleName
    spec: str
    force: bool
    threads: int | None
    gpus: float
    identity: Mapping[str, Any] | None = None
    version: str = __version__
    folder: str = field(default_factory=lambda: str(Path.cwd()))


@dataclass(frozen=True)
class ActorReady:
    """A model that was bound, or loaded by an actor.

    bound: as bound on its node; its `load` raises in the driver.
    methods: of `ASKED`, those that the loaded model has.
    node_id, node: id of its node and the name for people; empty where it was only bound.
    seconds: of loading.
    process: a name of its process.
    """

    bound: BoundRole
    methods: tuple[str, ...] = ()
    node_id: str = ""
    node: str = ""
    seconds: float = 0.0
    process: str = ""


@dataclass(frozen=True)
class ActorAnswer:
    """The outputs of a model for a batch.

    value: as the role's method returns it.
    lengths: tokens of each text and the most the model reads, where it counts them.
    seconds: in the model's own code.
    """

    value: Any
    lengths: tuple[Sequence[int], int] | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class ActorFault:
    """An exception in an actor, as text.

    kind: name of its class.
    message: its text.
    ours: whether the class is one of `pytest_cepbench.errors`.
    memory: whether memory ran out.
    """

    kind: str
    message: str
    ours: bool = True
    memory: bool = False

    @classmethod
    def of(cls, error: BaseException, before: str = "") -> ActorFault:
        """Without the keys of this process. before: begins the message of one of our errors."""
        text = mask_secrets(str(error))
        if not isinstance(error, CepError):
            memory = is_out_of_memory(error)
            return cls(type(error).__name__, text, ours=False, memory=memory)
        kind = next(kind.__name__ for kind in type(error).__mro__ if hasattr(errors, kind.__name__))
        return cls(kind, before + text, memory=isinstance(error, errors.DeviceMemoryError))

    def exception(self) -> Exception:
        """An exception of that class if it is ours, else of that name.

        So a failed input is stored with the words that it has in a run in one process.
        """
        if self.ours:
            kind: type[Exception] = getattr(errors, self.kind)
            return kind(self.message)
        base = MemoryError if self.memory else Exception
        error: Exception = type(self.kind, (base,), {})(self.message)
        return error


def refuse_to_load() -> Any:
    """Stand for a bound role's `load` where its model lives in an actor. Raises AssertionError."""
    raise AssertionError("this model is loaded by an actor")


# -- in the driver -------------------------------------------------------------------------------


class RemoteModel:
    """A model that is asked elsewhere: it has the methods that the model has.

    So it plays the roles that the model plays, with the same abilities. For one thread at a time.
    methods: of `ASKED`. ask: calls one of them with its arguments.
    """

    def __init__(
        self, methods: Iterable[str], ask: Callable[[str, tuple[Any, ...]], ActorAnswer]
    ) -> None:
        self._ask = ask
        self._lengths: tuple[list[Any], Any] | None = None  # of the texts of the last answer
        for method in methods:  # set here, since Protocols look for attributes of the object
            setattr(self, method, partial(self._call, method))

    def _call(self, method: str, *args: Any) -> Any:
        known = self._lengths
        if method == "text_lengths" and known is not None and known[0] == list(args[0]):
            return known[1]
        answer = self._ask(method, args)
        self._lengths = None if answer.lengths is None else (list(args[0]), answer.lengths)
        return answer.value


def methods_of(model: object) -> tuple[str, ...]:
    """Those of `ASKED` that a model has."""
    return tuple(method for method in ASKED if callable(getattr(model, method, None)))


def as_sent(value: Any, *, back: bool = False) -> Any:
    """Arguments as they are sent: images as (height, width, 3) uint8, sequences as lists.

    back: as roles take them, pixels being Pillow images.
    """
    if isinstance(value, Battle | AnsweredQuestion):
        return type(value)(*(as_sent(part, back=back) for part in vars(value).values()))
    if isinstance(value, list | tuple):
        return [as_sent(part, back=back) for part in value]
    if back:
        return Image.fromarray(value) if isinstance(value, np.ndarray) else value
    return np.asarray(value) if isinstance(value, Image.Image) else value


# -- on its node ---------------------------------------------------------------------------------


def bind_here(setup: ActorSetup) -> ActorReady | ActorFault:
    """Bind a model in a process that binds others as well and loads no weights."""
    if setup.gpus and not os.environ.get("CUDA_VISIBLE_DEVICES"):
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # hidden, since a task asks for no GPU
    try:
        return _ready(_bind(setup))
    except Exception as error:  # noqa: BLE001 - it is raised again in the driver
        return ActorFault.of(error)


class ChainActor:
    """A model in an actor's process; Ray makes another one where it starts the process again.

    ready: what became of it: a fault where the model cannot be loaded or is not the run's.
    """

    ready: ActorReady | ActorFault

    def __init__(self, setup: ActorSetup, node_id: str = "", node: str = "") -> None:
        if not node:
            import ray

            node = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            node_id = ray.get_runtime_context().get_node_id()
        self._model: Any = None
        self._unread: CoveredFiles | None = None  # files that the first answers may read
        started = time.perf_counter()
        try:
            mismatch = (
                ""
                if setup.version == __version__
                else (
                    f"node {node} has pytest-cepbench {__version__}, this process {setup.version}: "
                    "install the same everywhere"
                )
            )
            if not mismatch:
                with warnings.catch_warnings(action="default"):
                    bound = _bind(setup)
                    mismatch = _other_model(setup, bound, node)
                    self._model = None if mismatch else bound.load()
        except Exception as error:  # noqa: BLE001 - as above
            self.ready = ActorFault.of(error, f"node {node}: ")
        else:
            if not mismatch:
                seconds = time.perf_counter() - started
                self._unread = bound.files
                methods, process = methods_of(self._model), uuid4().hex
                self.ready = _ready(bound, methods, node_id, node, seconds, process)
                return
            self.ready = ActorFault("ModelError", mismatch)
        release_memory()

    def state(self) -> ActorReady | ActorFault:
        """What became of the model, see `ready`."""
        return self.ready

    def answer(self, method: str, args: Sequence[Any]) -> ActorAnswer | ActorFault | None:
        """The model's outputs for a batch, checked and plain; an exception becomes a fault.

        None where there is no model, see `ready`.
        """
        if self._model is None:
            return None
        try:
            with nullcontext() if self._unread is None else self._unread.unchanged(_FIRST_ANSWERS):
                answer = _answer(self._model, method, as_sent(args, back=True))
        except BaseException as error:
            if not (isinstance(error, Exception) or is_exit(error)):
                raise
            fault = ActorFault.of(error)
        else:
            self._unread = None
            return answer
        if fault.memory:
            release_memory()  # not before the error and the tensors in its traceback are gone
        return fault


def _bind(setup: ActorSetup) -> BoundRole:
    if Path(setup.folder).is_dir():
        os.chdir(setup.folder)
    if setup.gpus == 0:  # Ray may leave them visible to those that asked for none
        os.environ.update(dict.fromkeys(_DEVICE_VARIABLES, ""))
    if setup.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(setup.threads)
    context = BindContext(sha256_of, setup.threads)
    return bind(parse_spec(setup.spec), setup.role, context, force=setup.force)


def _ready(bound: BoundRole, *about: Any) -> ActorReady:
    """Without the functions of the bound role: they are of this process, and not pickled."""
    idle = partial(replace, bound.idle())
    plain = replace(bound, load=refuse_to_load, files=None, warn=None, idle=idle)
    return ActorReady(plain, *about)


def _other_model(setup: ActorSetup, bound: BoundRole, node: str) -> str:
    """The first thing in which a model differs from the run's; empty where it is the same."""
    for part, remedy in (
        ("fingerprint", _OTHER_WEIGHTS),
        ("adapter", "install the same packages on all nodes"),
        ("params", "give device= and dtype= in the spec, or only nodes of one kind"),
    ):
        values = [(setup.identity or {})[part], bound.identity[part]]
        expected, actual = (
            value[:16] if isinstance(value, str) else canonical_json(dict(value))
            for value in values
        )
        if expected != actual:
            name = f"{setup.role} {setup.spec}"
            return f"{name}: {part} {actual} on node {node}, {expected} elsewhere: {remedy}"
    return ""


def _answer(model: Any, method: str, args: Sequence[Any]) -> ActorAnswer:
    started = time.perf_counter()
    lengths = None
    with warnings.catch_warnings(action="default"):  # as `CallCounts.timed`, and why
        outputs = getattr(model, method)(*args)
        asked = METHODS.get(method)  # None for `text_lengths`
        if asked is not None and asked.reads_texts and isinstance(model, CountsTokens):
            lengths = model.text_lengths(args[0])
        if not (isinstance(outputs, Sequence) or hasattr(outputs, "__array__")):
            outputs = list(outputs)
        if asked is not None and asked.draws:  # here, since bytes are less to send than floats
            outputs = [check_drawn(image) for image in outputs]
        value = _plain(outputs)
    return ActorAnswer(value, _plain(lengths), time.perf_counter() - started)


# -- what a model returns ------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """What a model returned, of built-in types, arrays and our own dataclasses.

    Whether it is what the role should return is looked at in the driver, as of every model. Raises
    ModelError for anything else: the driver may not have its class.
    """
    if value is None or isinstance(value, bool):
        return value
    for kinds, make in _PLAIN:
        if isinstance(value, kinds):
            return make(value)
    for kind in _OURS:
        if isinstance(value, kind):
            return kind(**{part.name: _plain(getattr(value, part.name)) for part in fields(kind)})
    array = np.asarray(value) if hasattr(value, "__array__") else None
    if array is None or array.dtype.kind not in "biuf":
        raise ModelError(f"a model's results cannot hold a {type(value).__name__}: {value!r:.80}")
    return array


_OURS: tuple[Any, ...] = (
    *(Reply, Usage, Failure, AnswerStep, Detections, Detection, Mask),
    *(CriteriaScores, CriterionScore),
)

_PLAIN: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (np.generic, lambda number: number.item()),
    (int, int),
    (float, float),
    (Image.Image, lambda image: _plain(check_image(image))),
    (ImageArtifact, lambda image: image.pixels),
    (Mapping, lambda parts: {_plain(name): _plain(part) for name, part in parts.items()}),
    (tuple, lambda parts: tuple(map(_plain, parts))),
    (Sequence, lambda parts: list(map(_plain, parts))),
)
"""What is made of a value of some class; the first that fits."""
