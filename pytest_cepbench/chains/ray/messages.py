"""Messages between the driver and its actors: built-in types, NumPy arrays, our own dataclasses.

Ray pickles what it sends, so everything a model returns is checked and made plain in the actor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_cepbench import errors
from pytest_cepbench.errors import CepError
from pytest_cepbench.escapes import mask_secrets
from pytest_cepbench.models.protocols import BoundRole, RoleName
from pytest_cepbench.models.torch_runtime import is_out_of_memory


@dataclass(frozen=True)
class ActorSetup:
    """The model of an actor, and what the actor needs from the driver to load it.

    role: of the model.
    spec: names the model, as the user typed it; parsed again in the actor.
    force: whether the role is taken on trust where the spec does not show it.
    threads: CPU threads of the model; None leaves the library's choice.
    gpus: the actor's part of an accelerator; 0 hides accelerators from it.
    digests: SHA-256 of files, by their stamp (see `actor.stamp_of`).
    """

    role: RoleName
    spec: str
    force: bool
    threads: int | None
    gpus: float
    digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ActorReady:
    """A model that was bound or loaded by an actor.

    bound: as bound on its node; its `load` raises in the driver.
    node: name of the node.
    version: of pytest-cepbench on the node, a space, and of Python.
    counts: whether the model says how long texts are.
    digests: SHA-256 of the files that were read, by stamp.
    seconds: of loading.
    """

    bound: BoundRole
    node: str
    version: str
    counts: bool = False
    digests: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class ActorRequest:
    """A batch for a model.

    method: of the role.
    inputs: texts, (height, width, 3) uint8 arrays, questions (lists of both), or battles and
        answered questions of these.
    rest: further arguments of the method.
    """

    method: str
    inputs: Sequence[Any]
    rest: tuple[Any, ...] = ()


@dataclass(frozen=True)
class ActorReply:
    """The outputs of a model for a batch.

    value: as the role's method returns it, checked and made plain.
    lengths: tokens of each text and the most the model reads, where it counts them.
    seconds: in the model's own code.
    """

    value: Any
    lengths: tuple[list[int], int] | None = None
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
    ours: bool
    memory: bool


def fault_of(error: Exception) -> ActorFault:
    """Turn an exception into a message for the driver, without the keys of this process."""
    text = mask_secrets(str(error))
    if isinstance(error, CepError):
        kind = next(kind.__name__ for kind in type(error).__mro__ if hasattr(errors, kind.__name__))
        memory = isinstance(error, errors.DeviceMemoryError)
        return ActorFault(kind, text, ours=True, memory=memory)
    return ActorFault(type(error).__name__, text, ours=False, memory=is_out_of_memory(error))


def exception_of(fault: ActorFault) -> Exception:
    """Turn a fault back into an exception: of its class where that is ours, else of its name.

    So a failed input is stored with the words that it has in a run in one process.
    """
    if fault.ours:
        kind: type[Exception] = getattr(errors, fault.kind)
        return kind(fault.message)
    base = MemoryError if fault.memory else Exception
    error: Exception = type(fault.kind, (base,), {})(fault.message)
    return error


def refuse_to_load() -> Any:
    """Stand for a bound role's `load` where its model lives in an actor. Raises AssertionError."""
    raise AssertionError("this model is loaded by an actor")
