"""Actors: each plays one model in a process of its own, and the run's model alone.

Ray pickles what it sends. Images go as pixels, which Pillow would pickle in ten times the time, and
what a model draws is checked in the actor, since bytes are less to send than floats.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from PIL import Image

from pytest_cepbench import errors
from pytest_cepbench._version import __version__
from pytest_cepbench.artifacts import ImageArtifact, canonical_json
from pytest_cepbench.artifacts.modality import check_image
from pytest_cepbench.chains.batching import listed
from pytest_cepbench.errors import CepError, ModelError, OtherModelError, is_exit
from pytest_cepbench.escapes import mask_secrets
from pytest_cepbench.files import sha256_of
from pytest_cepbench.models.binding import BindContext, BoundRole, bind
from pytest_cepbench.models.devices import DEVICE_VARIABLES
from pytest_cepbench.models.protocols import AnsweredQuestion, AnswerStep, Battle, Reply, RoleName
from pytest_cepbench.models.roles import METHODS, check_drawn
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.models.torch_runtime import is_out_of_memory, release_memory

ASKED = (*METHODS, "text_lengths")
"""What models are asked: the methods of all roles, and how long texts are."""


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
    """A model that an actor loaded.

    methods: of `ASKED`, those that the model has.
    node_id, node: id of its node and the name for people.
    seconds: of loading.
    process: a name of its process.
    """

    methods: tuple[str, ...]
    node_id: str
    node: str
    seconds: float
    process: str = field(default_factory=lambda: uuid4().hex)


@dataclass(frozen=True)
class ActorAnswer:
    """The outputs of a model for a batch.

    value: as the role's method returns it.
    seconds: in the model's own code.
    """

    value: Any
    seconds: float = 0.0


def portable(error: BaseException, before: str = "") -> Exception:
    """An exception as it is sent: any process has its class, and it holds no keys of this one.

    One of `pytest_cepbench.errors` keeps its class, or has the nearest base there; another is one
    of the same name, a MemoryError where memory ran out. So a failed input is stored with the words
    that it has in a run in one process.

    before: begins the message of one of our errors.
    """
    text = mask_secrets(str(error))
    if isinstance(error, CepError):
        ours = (getattr(errors, kind.__name__, None) for kind in type(error).__mro__)
        kind: type[Exception] = next(filter(None, ours))
        return kind(before + text)
    base = MemoryError if is_out_of_memory(error) else Exception
    foreign: Exception = type(type(error).__name__, (base,), {})(text)
    return foreign


class RemoteModel:
    """A model that is asked elsewhere: it has the methods that the model has.

    So it plays the roles that the model plays, with the same abilities.
    methods: of `ASKED`. ask: calls one of them with its arguments.
    """

    def __init__(
        self, methods: Iterable[str], ask: Callable[[str, tuple[Any, ...]], ActorAnswer]
    ) -> None:
        def call(method: str, *args: Any) -> Any:
            return ask(method, args).value

        for method in methods:  # set here, since Protocols look for attributes of the object
            setattr(self, method, partial(call, method))


def methods_of(model: object) -> tuple[str, ...]:
    """Those of `ASKED` that a model has."""
    return tuple(method for method in ASKED if callable(getattr(model, method, None)))


def with_images(
    value: Any,
    convert: Callable[[Any], Any] = np.asarray,
    kinds: tuple[type, ...] = (Image.Image, ImageArtifact),
) -> Any:
    """Arguments or results with their images converted, sequences as lists.

    convert: of the kinds; from images to (height, width, 3) uint8, as they are sent, or back.
    """
    if isinstance(value, Battle | AnsweredQuestion | AnswerStep | Reply):
        return type(value)(*(with_images(part, convert, kinds) for part in vars(value).values()))
    if isinstance(value, list | tuple):
        return [with_images(part, convert, kinds) for part in value]
    return convert(value) if isinstance(value, kinds) else value


def _checked_pixels(image: Any) -> Any:
    checked = image if isinstance(image, ImageArtifact) else check_image(image)
    return checked.pixels if isinstance(checked, ImageArtifact) else checked


# -- on its node ---------------------------------------------------------------------------------


def bind_here(setup: ActorSetup) -> BoundRole | Exception:
    """Bind a model in a process that binds others as well and loads no weights.

    The bound role can be pickled: it lacks the functions of this process, and what finds idle parts
    is called here, where the files are. An exception is returned, as `portable` makes it.
    """
    if setup.gpus and not os.environ.get("CUDA_VISIBLE_DEVICES"):
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # hidden, since a task asks for no GPU
    try:
        bound = _bind(setup)
        idle = partial(replace, bound.idle())
        return replace(bound, load=_loads_nothing, files=None, warn=None, idle=idle)
    except Exception as error:  # noqa: BLE001 - it is raised again in the driver
        return portable(error)


def _loads_nothing() -> Any:
    raise AssertionError("this model is loaded by an actor")


class ChainActor:
    """A model in an actor's process; Ray makes another one where it starts the process again.

    Where the model cannot be loaded or is not the run's, it answers nothing, and says why: of what
    a constructor raises, Ray hands on the words alone.
    """

    def __init__(self, setup: ActorSetup, node_id: str = "", node: str = "") -> None:
        if not node:
            import ray

            node = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            node_id = ray.get_runtime_context().get_node_id()
        self._model: Any = None
        self._state: ActorReady | Exception
        started = time.perf_counter()
        try:
            with warnings.catch_warnings(action="default"):
                bound = _bind_same(setup, node)
                self._model, self._unread = bound.load(), bound.files
        except OtherModelError as error:
            self._state = ModelError(str(error))
        except Exception as error:  # noqa: BLE001 - as above
            self._state = portable(error, f"node {node}: ")
        else:
            seconds = time.perf_counter() - started
            self._state = ActorReady(methods_of(self._model), node_id, node, seconds)
            return
        release_memory()

    def state(self) -> ActorReady | Exception:
        """What became of the model; Ray asks for it once the constructor is through."""
        return self._state

    def answer(self, method: str, args: Sequence[Any]) -> ActorAnswer | Exception | None:
        """The model's outputs for a batch, or what it raised, as `portable`.

        None where there is no model, see `state`.
        """
        if self._model is None:
            return None
        unread = self._unread  # files that the first answers may read
        unchanged = nullcontext() if unread is None else unread.unchanged(_FIRST)
        try:
            with unchanged, warnings.catch_warnings(action="default"):  # as `CallCounts.timed`
                answer = self._ask(method, with_images(args, Image.fromarray, (np.ndarray,)))
        except BaseException as error:
            if not (isinstance(error, Exception) or is_exit(error)):
                raise
            raised = portable(error)
        else:
            self._unread = None
            return answer
        if isinstance(raised, MemoryError | errors.DeviceMemoryError):
            release_memory()  # not before the error and the tensors in its traceback are gone
        return raised

    def _ask(self, method: str, args: Sequence[Any]) -> ActorAnswer:
        started = time.perf_counter()
        asked = METHODS.get(method)  # None of `text_lengths`
        outputs = getattr(self._model, method)(*args)
        if asked is not None:
            outputs = asked.convert(outputs)
        outputs = listed(outputs)  # what is neither list nor array the driver refuses
        if asked is not None and asked.draws and isinstance(outputs, list | np.ndarray):
            outputs = [check_drawn(image) for image in outputs]
        return ActorAnswer(with_images(outputs, _checked_pixels), time.perf_counter() - started)


_FIRST = "the first answers were made"

_REMEDIES = {
    "fingerprint": (
        "the weights or configurations differ: copy them, or share the folder, and let no trainer "
        "write there meanwhile"
    ),
    "adapter": "install the same packages on all nodes",
    "params": "give device= and dtype= in the spec, or only nodes of one kind",
}


def _bind(setup: ActorSetup) -> BoundRole:
    if Path(setup.folder).is_dir():
        os.chdir(setup.folder)
    if setup.gpus == 0:  # Ray may leave them visible to those that asked for none
        os.environ.update(dict.fromkeys(DEVICE_VARIABLES, ""))
    if setup.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(setup.threads)
    context = BindContext(sha256_of, setup.threads)
    return bind(parse_spec(setup.spec), setup.role, context, force=setup.force)


def _bind_same(setup: ActorSetup, node: str) -> BoundRole:
    """The run's model, bound here. Raises OtherModelError, which names the first difference."""
    if setup.version != __version__:
        raise OtherModelError(
            f"node {node} has pytest-cepbench {__version__}, this process {setup.version}: "
            "install the same everywhere"
        )
    bound = _bind(setup)
    for part, remedy in _REMEDIES.items():
        expected, actual = (
            value[:16] if isinstance(value, str) else canonical_json(dict(value))
            for value in ((setup.identity or {})[part], bound.identity[part])
        )
        if expected != actual:
            raise OtherModelError(
                f"{setup.role} {setup.spec}: {part} {actual} on node {node}, {expected} elsewhere: "
                f"{remedy}"
            )
    return bound
