"""What travels between the driver and its actors: built-in types, NumPy arrays, our own dataclasses.

Ray pickles what it sends, so everything a model returns is checked and made plain in the actor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_cepbench import errors
from pytest_cepbench.errors import CepError
from pytest_cepbench.models.protocols import BoundRole, RoleName
from pytest_cepbench.models.spec import ModelSpec
from pytest_cepbench.models.torch_runtime import is_out_of_memory


@dataclass(frozen=True)
class ActorSetup:
    """What an actor is to play, and what it needs from the driver for it.

    threads: CPU threads of the model; None leaves the library's choice. gpus: the actor's part of
    one; 0 hides accelerators from it. digests: of files, by their stamp (see `player.stamp_of`).
    """

    role: RoleName
    spec: ModelSpec
    force: bool
    threads: int | None
    gpus: float
    digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ActorReady:
    """A model that is at hand.

    bound: as bound on its node; its `load` does nothing here. version: of pytest-cepbench there, and of Python.
    counts: whether the model says how long texts are. digests: of files that were read. seconds: of
    loading.
    """

    bound: BoundRole
    node: str
    version: str
    counts: bool = False
    digests: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class ActorRequest:
    """A batch. method: of the role. inputs: texts, (h, w, 3) uint8, or battles of these. rest: further arguments."""

    method: str
    inputs: Sequence[Any]
    rest: tuple[Any, ...] = ()


@dataclass(frozen=True)
class ActorReply:
    """What the model made of a batch. lengths: of its texts and the most it reads, where it counts.

    seconds: in the model's own code.
    """

    value: Any
    lengths: tuple[list[int], int] | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class ActorFault:
    """An exception, as words: kind: its class, ours: whether it is one of `errors`."""

    kind: str
    words: str
    ours: bool
    memory: bool


def fault_of(error: Exception) -> ActorFault:
    """An exception of a model, or one of ours, on its way to the driver."""
    if isinstance(error, CepError):
        known = next(
            kind.__name__ for kind in type(error).__mro__ if hasattr(errors, kind.__name__)
        )
        return ActorFault(
            known, str(error), ours=True, memory=isinstance(error, errors.DeviceMemoryError)
        )
    return ActorFault(type(error).__name__, str(error), ours=False, memory=is_out_of_memory(error))


def exception_of(fault: ActorFault) -> Exception:
    """The exception again: of the same class where it is ours, else of one with the same name.

    So what is stored of a failed input has the words that it has in process.
    """
    if fault.ours:
        kind: type[Exception] = getattr(errors, fault.kind)
        return kind(fault.words)
    base = MemoryError if fault.memory else Exception
    made: Exception = type(fault.kind, (base,), {})(fault.words)
    return made


def not_here() -> Any:
    """In the place of a bound role's `load` where its model lives elsewhere."""
    msg = "this model is loaded by an actor"
    raise AssertionError(msg)
