"""Batches dealt to actors in this process: who gets them, and what happens when an actor dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

from pytest_cepbench.chains.ray import pools as module
from pytest_cepbench.chains.ray.actor import ActorAnswer, ActorReady, ActorSetup, ChainActor
from pytest_cepbench.chains.ray.cluster import Allocation, Cluster, Node, same_imports
from pytest_cepbench.chains.ray.pools import ActorPool, PoolManager
from pytest_cepbench.errors import (
    DeviceMemoryError,
    MeasurementError,
    ModelError,
    SpecError,
    StoppedError,
)
from pytest_cepbench.models.binding import BindContext, BoundRole, IdleParts
from pytest_cepbench.models.spec import parse_spec

# -- a cluster in this process: actors reply at once, die when told, and count calls --------------

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


# -- what the tests ask of it ----------------------------------------------------------------------

FIRST, SECOND, POISON = (("describe", [[name], "say"]) for name in ("1", "2", "poison"))

AWAY = ActorUnavailableError("restarting", b"x" * 16)
DIED: dict[str, Any] = {"ready_says": ActorDiedError()}
FULL: dict[str, Any] = {"ready_says": DeviceMemoryError("node node1: full")}

_deadline = 0.0


@pytest.fixture(autouse=True)
def _bounded() -> None:
    """No test waits for ever where a fault makes a pool wait."""
    global _deadline  # noqa: PLW0603 - read by every wait of a test
    _deadline = time.monotonic() + 10


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that passes, in seconds."""
    now = [1000.0]
    monkeypatch.setattr(
        module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None)
    )
    return now


def _never() -> bool:
    return time.monotonic() > _deadline


def _pool(local: LocalCluster, actors: int = 1) -> ActorPool:
    pool = local.pool(actors)
    pool.start(_never)
    return pool


def _looked(local: LocalCluster, actors: int = 1, **changes: Any) -> ActorPool:
    """A pool that looked at its actors once."""
    pool = local.pool(actors, **changes)
    with pytest.raises(StoppedError):
        pool.start(lambda: True)
    return pool


def _look(pool: ActorPool) -> None:
    """Look at the actors once more."""
    left = iter([False])
    with pytest.raises(StoppedError):
        pool.start(lambda: next(left, True))


def _dying(error: RayError, on: Any = POISON, times: int = 99) -> dict[str, Any]:
    """Fields of an actor that dies over a batch, so many times."""
    left = [times]

    def answer(inputs: Any) -> Any:
        if inputs == on[1][0] and left[0]:
            left[0] -= 1
            return error
        return ActorAnswer(list(inputs), 0.25)

    return {"answers": answer}


# -- batches ---------------------------------------------------------------------------------------


def test_a_batch_that_kills_twice_is_given_up(local: LocalCluster) -> None:
    """And named; the others are answered, by processes that Ray starts again."""
    local.begin = [_dying(AWAY), _dying(AWAY)]
    pool = _pool(local, 2)

    with pytest.raises(MeasurementError) as caught:
        pool.ask(*POISON, _never)

    assert str(caught.value).startswith(
        "infrastructure: 2 actors of the describer shapes: died while they worked on the same "
        "batch of 1: "
    )
    assert pool.ask(*FIRST, _never).value == ["1"]
    pool.start(_never)
    assert pool.used[0] >= 3
    assert not any(actor.killed for actor in local.actors)
    lines = [line.replace("maynot", "may not") for line in pool.messages()]  # Ray 2.44
    assert lines == [
        (
            "node node1 lost 2 describer actors in the middle of a batch, which was asked for "
            "again: ActorUnavailableError: The actor is unavailable: restarting. The task may or "
            "may not have been executed on the actor."
        )
    ]
    with pytest.raises(MeasurementError):  # it is known by its content, and not tried again
        pool.ask(*POISON, _never)
    assert (
        sum(actor.requests.count(("describe", [["poison"], "say"])) for actor in local.actors) == 2
    )


def test_what_a_model_raises_is_raised_at_once(local: LocalCluster) -> None:
    """Its batch is halved where it was sent from; no actor is lost."""
    local.begin = [{"answers": lambda _: ValueError("cannot take this")}]
    pool = _pool(local)
    with pytest.raises(ValueError, match="cannot take this"):
        pool.ask(*FIRST, _never)
    assert len(local.actors[0].requests) == 1
    assert pool.messages() == []


def test_actors_beside_a_lost_one_are_looked_at_first(local: LocalCluster) -> None:
    """Where a node dies its other actors are gone too: a batch would be lost to each of them."""
    far = replace(READY, node_id="id2", node="node2")
    local.begin = [{"ready_says": [READY, AWAY, NOT_YET]} for _ in range(2)]
    local.begin[0] |= _dying(AWAY, on=FIRST)
    local.begin.append({"ready_says": [far, far]})
    pool = local.pool(3)
    pool.start(_never)

    assert pool.ask(*FIRST, _never).value == ["1"]

    assert [len(actor.requests) for actor in local.actors] == [1, 0, 1]
    assert pool.messages()[0].startswith("node node1 lost 1 describer actor in the middle of ")


# -- actors ----------------------------------------------------------------------------------------


def test_actors_start_once_each_in_its_place(local: LocalCluster) -> None:
    """Those that are ready are live; their loads, seconds and abilities are kept."""
    local.begin = [{}, {}, {"ready_says": NOT_YET}]
    pool = _pool(local, 3)
    pool.start(_never)

    assert [(actor.place, actor.cpus) for actor in local.actors] == [(0, 0.5), (1, 0.5), (2, 0.5)]
    options = dict(local.actors[0].options)
    assert options.pop("runtime_env") == same_imports()
    assert options.pop("scheduling_strategy").placement_group == "group"
    assert options.pop("max_restarts") > 0
    assert options == {"num_cpus": 0.5, "num_gpus": 0.0, "max_task_retries": 0}
    assert pool.used == (1, 0.5)  # a process is counted when it is first asked
    assert pool.methods == ("describe", "write")
    local.actors[2].ready_says = READY
    pool.start(_never)
    assert len(local.actors) == 3


def test_memory_for_fewer_actors_does(local: LocalCluster) -> None:
    """The others work on, and the report says so; without any the next that asks starts anew."""
    local.begin = [FULL]
    pool = _pool(local, 2)
    assert len(pool.actors) == 1
    assert pool.messages() == ["the describer shapes: has an actor less: node node1: full"]

    local.begin = [FULL]
    alone = local.pool(1)
    with pytest.raises(DeviceMemoryError, match="full"):
        alone.start(_never)
    alone.start(_never)
    assert len(alone.actors) == 1

    local.begin = [FULL]
    shared = local.pool(1)
    with pytest.raises(DeviceMemoryError, match="full"):
        shared.start(_never)
    with pytest.raises(ModelError, match="no actor of the describer shapes: is left"):
        shared.ask(*FIRST, _never)  # as another thread, that waits for the same actor


def test_an_actor_that_never_starts_is_done_without(local: LocalCluster) -> None:
    """Ray has tried it some times; where there is no other, none can be started. Nor is one that
    died too often started again.
    """
    local.begin = [DIED]
    pool = _pool(local, 2)
    assert len(pool.actors) == 1
    (line,) = pool.messages()
    assert line.startswith("the describer shapes: has an actor less: infrastructure: d")

    local.begin = [DIED]
    with pytest.raises(ModelError, match=r"^infrastructure: describer shapes:: "):
        _pool(local)
    assert len(local.actors) == 3

    local.begin = [{**_dying(AWAY), "ready_says": [READY, ActorDiedError()]}]
    pool = _pool(local)
    with pytest.raises(ModelError, match="no actor of the describer shapes: is left"):
        pool.ask(*POISON, _never)


def test_a_process_that_is_another_model_by_now_is_done_without(local: LocalCluster) -> None:
    """It answers nothing; the pool goes on with the others, and the report says so."""
    refusal = ModelError("fingerprint B on node node1")
    local.begin = [{"answers": lambda _: None, "ready_says": [READY, refusal]}]
    pool = _pool(local, 2)
    assert pool.ask(*FIRST, _never).value == ["1"]

    assert pool.ask(*SECOND, _never).value == ["2"]
    assert [actor.killed for actor in local.actors] == [True, False]
    assert pool.messages() == [
        "the describer shapes: has an actor less: fingerprint B on node node1"
    ]
    assert not pool.lost


def test_patience_ends_where_no_actor_gets_a_place(local: LocalCluster, clock: list[float]) -> None:
    """Not before, nor while one loads."""
    local.begin = [{"ready_says": NOT_YET}]
    local.reserved = False
    pool = _looked(local)
    clock[0] += module.PATIENCE
    _look(pool)
    clock[0] += 1
    with pytest.raises(ModelError) as caught:
        pool.start(_never)
    assert str(caught.value).startswith(
        "infrastructure: no actor of the describer shapes: could be placed within 300 s (each asks "
        "for 0 GPUs and 0.5 CPUs): is the cluster in use by others, or have nodes left? Ray cluster"
    )
    local.reserved = True
    _look(pool)
    local.reserved = False
    clock[0] += module.PATIENCE
    _look(pool)
    assert len(local.actors) == 1


def test_where_a_node_is_lost_another_one_s_cores_are_shared(
    local: LocalCluster, clock: list[float]
) -> None:
    """One actor without cores of its own, after a moment."""
    local.begin = [{"ready_says": NOT_YET}, {"ready_says": NOT_YET}]
    local.reserved = False
    pool = _looked(local)
    for seconds, nodes in ((3.0, local.nodes), (-1.0, []), (1.0, []), (1.0, [])):
        clock[0] += seconds
        local.nodes = nodes
        _look(pool)

    assert [(actor.place, actor.cpus) for actor in local.actors] == [(0, 0.5), (None, 0.0)]
    assert local.actors[1].options["scheduling_strategy"] == "SPREAD"
    local.actors[1].ready_says = READY
    pool.start(_never)


# -- all pools of a run --------------------------------------------------------------------------


SMALL = Node("1" * 56, "node1", 4.0, 0.0)  # as long as Ray's
LARGE = Node("2" * 56, "node2", 8.0, 0.0)
DEVICES = Node("3" * 56, "node3", 2.0, 2.0)


@pytest.fixture
def bound_on(monkeypatch: pytest.MonkeyPatch, local: LocalCluster) -> list[tuple[str, ActorSetup]]:
    """Where models are bound, and as what; a spec of "bad:" is a fault."""
    calls: list[tuple[str, ActorSetup]] = []

    def bind(node_id: str, setup: ActorSetup) -> Any:
        calls.append((node_id, setup))
        faults = {
            "shapes:?bad=1": SpecError("not understood"),
            "shapes:?bad=2": ActorUnavailableError("a\n b", b"x" * 16),
            "shapes:?bad=3": ArithmeticError("no sum"),
        }
        return faults.get(setup.spec, BOUND)

    local.bind = bind
    monkeypatch.setattr(module, "reserve", lambda _: "group")
    groups = pytest.importorskip("ray.util.placement_group")
    monkeypatch.setattr(groups, "remove_placement_group", calls.append)
    return calls


def _manager(*nodes: Node, **requests: dict[str, float]) -> PoolManager:
    cluster = Cluster("h:1")
    cluster.nodes = lambda: list(nodes)  # type: ignore[method-assign] # no Ray is asked
    return PoolManager(cluster, requests, BindContext(str, None))


def test_a_role_is_bound_once_on_a_node_of_its_kind(bound_on: list[Any]) -> None:
    """One with accelerators, unless the role has none; provenance and build name the engine."""
    manager = _manager(SMALL, DEVICES, LARGE, encoder={"gpus": 0.0})
    manager.plan([("describer", parse_spec("shapes:")), ("encoder", parse_spec("shapes:?miss=0"))])
    for _ in range(2):
        bound = manager.bound("describer", parse_spec("shapes:"), _never)
    manager.bound("encoder", parse_spec("shapes:?miss=0"), _never)

    assert [(node, setup.gpus) for node, setup in bound_on] == [(DEVICES.id, 1.0), (LARGE.id, 0.0)]
    assert bound.provenance["engine"] == "ray"
    assert bound.resources.build == " on a cluster of Ray"
    assert (bound.resources.grows, bound.resources.lasting) == (False, True)
    assert bound.idle() == IdleParts(("idle",))


def test_a_fault_of_binding_names_its_node(bound_on: list[Any]) -> None:
    """Once found it is raised again without asking."""
    manager = _manager(LARGE)
    for _ in range(2):
        with pytest.raises(SpecError, match=r"^not understood \(looked up on node node2 of the "):
            manager.bound("describer", parse_spec("shapes:?bad=1"), _never)
    with pytest.raises(ModelError, match=r"^describer shapes:\?bad=2 could not be bound on node n"):
        manager.bound("describer", parse_spec("shapes:?bad=2"), _never)
    with pytest.raises(ArithmeticError, match=r"^no sum$"):
        manager.bound("describer", parse_spec("shapes:?bad=3"), _never)
    assert len(bound_on) == 3
