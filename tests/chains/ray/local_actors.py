"""A cluster in the tests' own process: actors reply at once, die when told, and count calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pytest_cepbench import __version__
from pytest_cepbench.chains.ray import supervisor as module
from pytest_cepbench.chains.ray.cluster import Cluster, Node
from pytest_cepbench.chains.ray.losses import LossLog
from pytest_cepbench.chains.ray.messages import (
    ActorReady,
    ActorReply,
    ActorRequest,
    ActorSetup,
    refuse_to_load,
)
from pytest_cepbench.chains.ray.resources import Allocation
from pytest_cepbench.chains.ray.supervisor import Supervisor
from pytest_cepbench.models.protocols import BoundRole

ray = pytest.importorskip("ray")

BOUND = BoundRole("describer", "shapes:", "a model", "weights-1", "test/1", refuse_to_load)

READY = ActorReady(
    BOUND, "node1", f"{__version__} 3.{__import__('sys').version_info[1]}.0", seconds=0.5
)

SETUP = ActorSetup("describer", "shapes:", force=False, threads=1, gpus=0.0)

NOT_YET = object()
"""In the place of a result that is yet to come."""


class Ref:
    """What a call gives: `result()` at once, or when the test lets it."""

    def __init__(self, result: Callable[[], Any]) -> None:
        self.result = result


@dataclass
class Method:
    """A method of an actor, as Ray offers it."""

    call: Callable[..., Any]

    def remote(self, *arguments: Any) -> Ref:
        """Call it when the result is asked for."""
        return Ref(lambda: self.call(*arguments))


@dataclass(eq=False)
class LocalActor:
    """An actor. place, ready: what it replies, an exception that is raised, or NOT_YET."""

    cpus: float
    group: Any
    setup: ActorSetup
    node: Any = ("id1", "node1")
    ready: Any = READY
    answers: Callable[[ActorRequest], Any] = lambda request: ActorReply(
        list(request.inputs), None, 0.25
    )
    killed: bool = False
    requests: list[ActorRequest] = field(default_factory=list)

    @property
    def where(self) -> Method:
        """As an actor's."""
        return Method(lambda: self.node)

    @property
    def load(self) -> Method:
        """As an actor's."""
        return Method(lambda: self.ready)

    @property
    def answer(self) -> Method:
        """As an actor's."""

        def answer(request: ActorRequest) -> Any:
            self.requests.append(request)
            return self.answers(request)

        return Method(answer)


@dataclass
class LocalCluster:
    """Creates actors. begin: fields of the next ones, one for each; then they are as usual."""

    begin: list[dict[str, Any]] = field(default_factory=list)
    actors: list[LocalActor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=lambda: [Node("id1", "node1", 2.0, 0.0)])
    seen: int = 1

    def create_actor(self, setup: ActorSetup, allocation: Allocation, group: Any) -> LocalActor:
        """As `actor.create_actor`."""
        fields = self.begin.pop(0) if self.begin else {}
        self.actors.append(LocalActor(allocation.cpus, group, setup, **fields))
        return self.actors[-1]

    def supervisor(self, actors: int = 1, **changes: Any) -> Supervisor:
        """The supervisor of a describer with so many actors."""
        cluster = Cluster("h:1")
        cluster.nodes = lambda: self.nodes  # type: ignore[method-assign] # no Ray is asked
        cluster.has_lost_nodes = lambda: len(self.nodes) < self.seen  # type: ignore[method-assign]
        allocation = replace(Allocation(actors, 0.0, 0.5, 1), **changes)
        groups = [f"group{place}" for place in range(actors)]
        return Supervisor(cluster, BOUND, SETUP, allocation, LossLog(), groups)


def task_error(text: str) -> Exception:
    """What Ray raises for an exception that escapes in an actor."""
    error: Exception = ray.exceptions.RayTaskError("method", text, KeyError("a"))
    return error


def _get(ref: Ref, timeout: float | None = None) -> Any:
    del timeout
    result = ref.result()
    if result is NOT_YET:
        raise ray.exceptions.GetTimeoutError
    if isinstance(result, BaseException):
        raise result
    return result


def _wait(refs: list[Ref], timeout: float) -> tuple[list[Ref], list[Ref]]:
    del timeout
    done = [ref for ref in refs if ref.result() is not NOT_YET]
    return done, [ref for ref in refs if ref not in done]


def _kill(actor: LocalActor) -> None:
    actor.killed = True


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """A cluster in this process; Ray is never started."""
    cluster = LocalCluster()
    monkeypatch.setattr(module, "create_actor", cluster.create_actor)
    monkeypatch.setattr(ray, "get", _get)
    monkeypatch.setattr(ray, "wait", _wait)
    monkeypatch.setattr(ray, "kill", _kill)
    return cluster
