"""A cluster in the tests' own process: actors reply at once, die when told, and count calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pytest_cepbench.chains.ray import pools as module
from pytest_cepbench.chains.ray.actor import ActorAnswer, ActorReady, ActorSetup, ChainActor
from pytest_cepbench.chains.ray.cluster import Allocation, Cluster, Node
from pytest_cepbench.chains.ray.pools import ActorPool
from pytest_cepbench.models.binding import BoundRole, IdleParts

ray = pytest.importorskip("ray")

BOUND = BoundRole(
    "describer",
    "shapes:",
    "a model",
    "weights-1",
    "test/1",
    dict,  # type: ignore[arg-type] # nothing is loaded here
    idle=lambda: IdleParts(("idle",)),
)

READY = ActorReady(("describe", "write"), "id1", "node1", 0.5)

SETUP = ActorSetup("describer", "shapes:", force=False, threads=1, gpus=0.0)

NOT_YET = object()
"""In the place of a result that is yet to come."""


class Ref:
    """What a call gives: at once, or when the test lets it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._result: Any = NOT_YET

    def peek(self) -> Any:
        """The result, made once; NOT_YET as long as it is yet to come."""
        if self._result is NOT_YET:
            self._result = self._make()
        return self._result


@dataclass
class Method:
    """A method of an actor, as Ray offers it."""

    call: Callable[..., Any]

    def remote(self, *arguments: Any) -> Ref:
        """Call it when the result is asked for."""
        return Ref(lambda: self.call(*arguments))


@dataclass(eq=False)
class LocalActor:
    """An actor. ready: what it says, an exception that is raised, or NOT_YET."""

    cpus: float
    place: int | None
    setup: ActorSetup
    options: dict[str, Any] = field(default_factory=dict)
    ready_says: Any = READY
    answers: Callable[[Any], Any] = lambda inputs: ActorAnswer(list(inputs), 0.25)
    killed: bool = False
    deaths: int = 0
    requests: list[Any] = field(default_factory=list)

    @property
    def state(self) -> Method:
        """As an actor's; a list is what it says from one call to the next."""
        says = self.ready_says
        value = says.pop(0) if isinstance(says, list) else None

        def say() -> Any:
            said = self.ready_says if value is None else value
            ready = isinstance(said, ActorReady)
            return replace(said, process=f"{id(self)} {self.deaths}") if ready else said

        return Method(say)

    @property
    def answer(self) -> Method:
        """As an actor's, of a method with one argument."""

        def answer(method: str, args: Any) -> Any:
            self.requests.append((method, args))
            answer = self.answers(args[0])
            self.deaths += isinstance(answer, ray.exceptions.RayError) or answer is None
            return answer

        return Method(answer)


@dataclass
class Sent:
    """What Ray was given, and what it was told of it."""

    cluster: LocalCluster
    what: Any
    chosen: dict[str, Any] = field(default_factory=dict)

    def options(self, **chosen: Any) -> Sent:
        """As Ray's."""
        return replace(self, chosen=chosen)

    def remote(self, setup: ActorSetup) -> Any:
        """A new actor, or a reference to what the function gives."""
        if self.what is not ChainActor:
            node_id = self.chosen["scheduling_strategy"].node_id
            return Ref(lambda: self.cluster.bind(node_id, setup))
        strategy = self.chosen["scheduling_strategy"]
        place = getattr(strategy, "placement_group_bundle_index", None)
        fields = self.cluster.begin.pop(0) if self.cluster.begin else {}
        self.cluster.actors.append(
            LocalActor(self.chosen["num_cpus"], place, setup, options=self.chosen, **fields)
        )
        return self.cluster.actors[-1]


@dataclass
class LocalCluster:
    """Creates actors. begin: fields of the next ones, one for each; then they are as usual.

    nodes: that are alive. reserved: whether a pool has its places. bind: stands for `bind_here`,
    with the node before its argument.
    """

    begin: list[dict[str, Any]] = field(default_factory=list)
    actors: list[LocalActor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=lambda: [Node("id1", "node1", 2.0, 0.0)])
    reserved: bool = True
    bind: Callable[[str, ActorSetup], Any] = lambda _, __: BOUND

    def remote(self, what: Any) -> Sent:
        """As Ray's: of an actor's class, or of a function."""
        return Sent(self, what)

    def pool(self, actors: int = 1, **changes: Any) -> ActorPool:
        """The pool of a describer with so many actors."""
        cluster = Cluster("h:1", _seen={"id1": Node("id1", "node1", 2.0, 0.0)})
        cluster.nodes = lambda: self.nodes  # type: ignore[method-assign] # no Ray is asked
        allocation = replace(Allocation(actors, 0.0, 0.5, 1), **changes)
        return ActorPool(cluster, SETUP, allocation, "group")


def _get(ref: Ref, timeout: float | None = None) -> Any:
    del timeout
    result = ref.peek()
    assert result is not NOT_YET, "nothing is waited for without looking whether the run stops"
    if isinstance(result, ray.exceptions.RayError):
        raise result
    return result


def _wait(refs: list[Ref], *, num_returns: int = 1, timeout: float) -> tuple[list[Ref], list[Ref]]:
    del num_returns, timeout
    done = [ref for ref in refs if ref.peek() is not NOT_YET]
    return done, [ref for ref in refs if ref not in done]


def _kill(actor: LocalActor) -> None:
    actor.killed = True


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """A cluster in this process; Ray is never started."""
    cluster = LocalCluster()
    monkeypatch.setattr(ray, "remote", cluster.remote)
    monkeypatch.setattr(module, "is_reserved", lambda _: cluster.reserved)
    monkeypatch.setattr(ray, "get", _get)
    monkeypatch.setattr(ray, "wait", _wait)
    monkeypatch.setattr(ray, "kill", _kill)
    return cluster
