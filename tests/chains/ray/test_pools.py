"""Batches dealt to actors in this process: who gets them, and what happens when an actor dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("ray")

from ray.exceptions import ActorDiedError, ActorUnavailableError, ObjectLostError, RayError

from pytest_cepbench.chains.ray import pool_manager as module
from pytest_cepbench.chains.ray.cluster import Cluster, Node
from pytest_cepbench.chains.ray.messages import ActorReply, ActorRequest, ActorSetup, fault_of
from pytest_cepbench.chains.ray.pool_manager import PREFETCH, ActorPool, PoolManager
from pytest_cepbench.chains.ray.resources import ResourceRequest
from pytest_cepbench.errors import (
    CheckpointError,
    MeasurementError,
    ModelError,
    SpecError,
    StoppedError,
)
from pytest_cepbench.models.model_spec import parse_spec
from pytest_cepbench.models.protocols import BindContext, CountsTokens
from tests.chains.ray.local_actors import NOT_YET, READY, LocalCluster, local, task_error

__all__ = ["local"]

FIRST, SECOND, POISON = (ActorRequest("describe", [name]) for name in ("1", "2", "poison"))


_deadline = 0.0


@pytest.fixture(autouse=True)
def _bounded() -> None:
    """No test waits for ever where a fault makes a pool wait."""
    global _deadline  # noqa: PLW0603 - read by every wait of a test
    _deadline = time.monotonic() + 10


def _never() -> bool:
    return time.monotonic() > _deadline


def _always() -> bool:
    return True


def _pool(local: LocalCluster, actors: int = 1) -> ActorPool:
    pool = ActorPool(local.supervisor(actors))
    pool.start(_never)
    return pool


def _dying(error: RayError, on: ActorRequest = POISON) -> dict[str, Any]:
    """Fields of an actor that dies over a batch."""

    def answer(request: ActorRequest) -> Any:
        return error if request == on else ActorReply(list(request.inputs), None, 0.25)

    return {"answers": answer}


def test_batches_are_answered_and_their_time_is_counted(local: LocalCluster) -> None:
    """Loading too; actors take turns."""
    pool = _pool(local, 2)
    assert pool.ask(FIRST, _never).value == ["1"]
    assert pool.ask(SECOND, _never).value == ["2"]

    assert pool.supervisor.seconds == 0.5 + 0.5 + 0.25 + 0.25
    assert [len(actor.requests) for actor in local.actors] == [1, 1]
    assert [actor.busy for actor in pool.supervisor.live] == [0, 0]


def test_the_actor_with_least_to_do_is_next(local: LocalCluster) -> None:
    """Each has two batches at most: one that it works on, one on its way."""
    pool = _pool(local, 2)
    taken = [pool._take(_never) for _ in range(2 * PREFETCH)]

    assert [actor.busy for actor in pool.supervisor.live] == [2, 2]
    assert taken[0] is not taken[1]
    assert taken[0] is taken[2]
    with pytest.raises(StoppedError):
        pool._take(_after(2))


def _after(looks: int) -> Callable[[], bool]:
    """Stops after so many looks."""
    left = iter([False] * looks)
    return lambda: next(left, True)


def test_what_a_model_raises_is_raised_here(local: LocalCluster) -> None:
    """As it is; what escapes in an actor names model and error. The actor has a free slot again."""
    errors = iter([fault_of(ArithmeticError("no sum")), task_error("x\nE: y")])
    local.begin = [{"answers": lambda _: next(errors)}]
    pool = _pool(local)

    with pytest.raises(Exception, match="no sum") as caught:
        pool.ask(FIRST, _never)
    assert type(caught.value).__name__ == "ArithmeticError"
    with pytest.raises(ModelError, match=r"^describer shapes:: E: y$"):
        pool.ask(FIRST, _never)
    assert [actor.busy for actor in pool.supervisor.live] == [0]


def test_a_batch_that_kills_twice_is_given_up(local: LocalCluster) -> None:
    """It has each actor for itself the second time, and the others are answered."""
    local.begin = [_dying(ActorDiedError())] * 5
    pool = _pool(local, 2)

    with pytest.raises(MeasurementError, match="2 actors of the describer shapes: died while"):
        pool.ask(POISON, _never)

    assert sum(actor.killed for actor in local.actors) == 2
    assert pool.ask(FIRST, _never).value == ["1"]
    assert len(pool.supervisor.live) == 2
    (line,) = pool.supervisor.losses.lines()
    assert line.startswith("node node1 lost 2 actors (2 describer): its process died")
    assert line.endswith("; 2 batches on their way were asked for again")


def test_a_suspected_batch_waits_for_an_actor_of_its_own(local: LocalCluster) -> None:
    """No other batch is with it where an actor may die again; nor does another come before it."""
    local.begin = [_dying(ActorDiedError(), on=FIRST)]
    pool = _pool(local)
    assert pool.ask(FIRST, _never).value == ["1"]  # by the second actor
    beside = pool._take(_never)
    answered: list[Any] = []
    thread = threading.Thread(target=lambda: answered.append(pool.ask(FIRST, _never).value))
    thread.start()
    while not pool._exclusive:
        pass
    with pytest.raises(StoppedError):  # there is a slot, but not for others
        pool.ask(SECOND, _after(1))
    assert not answered
    pool._give_back(beside)
    thread.join(5)
    assert answered == [["1"]]
    assert pool.ask(SECOND, _never).value == ["2"]
    assert [actor.busy for actor in pool.supervisor.live] == [0]


@pytest.mark.parametrize(
    "error", [ActorUnavailableError("away", b"x" * 16), ObjectLostError("0" * 40, b"", "y")]
)
def test_a_batch_that_was_only_lost_is_not_suspected(local: LocalCluster, error: RayError) -> None:
    """It is asked again, with the loss told; eight times, then the cluster is being taken down."""
    local.begin = [_dying(error, on=FIRST)] * 8
    pool = _pool(local)

    with pytest.raises(MeasurementError, match=r"^infrastructure: 8 actors of the describer shap"):
        pool.ask(FIRST, _never)

    assert pool.ask(FIRST, _never).value == ["1"]
    assert len(local.actors) == 9
    assert sum(len(actor.requests) for actor in local.actors) == 9


def test_a_node_s_death_is_not_a_batch_s_fault(local: LocalCluster) -> None:
    """Ray says that the actor died; its node is gone, however often."""
    local.begin = [_dying(ActorDiedError(), on=FIRST)] * 3
    pool = _pool(local)
    local.nodes = []

    assert pool.ask(FIRST, _never).value == ["1"]
    (line,) = pool.supervisor.losses.lines()
    assert line.startswith("node node1 lost 3 actors (3 describer): the node left the cluster; 3 ")


def test_threads_leave_when_the_run_stops(local: LocalCluster) -> None:
    """While they wait for an actor, or for an answer; a closed pool answers nothing."""
    local.begin = [{"answers": lambda _: NOT_YET}]
    pool = _pool(local)
    with pytest.raises(StoppedError):
        pool.ask(FIRST, _after(2))
    with pytest.raises(StoppedError):
        pool.ask(FIRST, _always)
    pool.close()
    with pytest.raises(StoppedError):
        pool.ask(FIRST, _never)
    assert [actor.killed for actor in local.actors] == [True]
    assert pool.supervisor.live == []


def test_a_fault_of_the_pool_is_raised_for_everyone_who_asks(local: LocalCluster) -> None:
    """The same one."""
    local.begin = [{"ready": fault_of(CheckpointError("no weights"))}]
    pool = ActorPool(local.supervisor())
    for _ in range(2):
        with pytest.raises(CheckpointError, match="node node1: no weights"):
            pool.start(_never)
    assert len(local.actors) == 1


# -- all pools of a run --------------------------------------------------------------------------


class _Nodes(Cluster):
    """A cluster of nodes that the test names."""

    def __init__(self, *nodes: Node) -> None:
        super().__init__("h:1")
        self._nodes = list(nodes)

    def nodes(self) -> list[Node]:
        """As given."""
        return self._nodes


SMALL = Node("id1", "node1", 4.0, 0.0)
LARGE = Node("id2", "node2", 8.0, 0.0)
DEVICES = Node("id3", "node3", 2.0, 2.0)


@pytest.fixture
def bound_on(monkeypatch: pytest.MonkeyPatch, local: LocalCluster) -> list[tuple[str, ActorSetup]]:
    """Where models are bound, and as what; a spec of "bad:" is a fault."""
    calls: list[tuple[str, ActorSetup]] = []

    def bind(setup: ActorSetup, node_id: str) -> Any:
        calls.append((node_id, setup))
        if setup.spec == "shapes:?bad=1":
            return fault_of(SpecError("not understood"))
        if setup.spec == "shapes:?bad=2":
            words = "a\n b"
            raise ActorUnavailableError(words, b"x" * 16)
        return READY

    monkeypatch.setattr(module, "bind_on_node", bind)
    monkeypatch.setattr(module, "reserve", lambda places, _: {place: ["g"] * 9 for place in places})
    return calls


def _manager(*nodes: Node, **requests: ResourceRequest) -> PoolManager:
    return PoolManager(_Nodes(*nodes), requests, BindContext(str, None))


def test_a_role_is_bound_once_on_a_node_of_its_kind(bound_on: list[Any]) -> None:
    """One with accelerators, unless the role has none; provenance and build name the engine."""
    manager = _manager(SMALL, DEVICES, LARGE, encoder=ResourceRequest(gpus=0.0))
    manager.plan([("describer", parse_spec("shapes:")), ("encoder", parse_spec("shapes:?miss=0"))])
    for _ in range(2):
        bound = manager.bound("describer", parse_spec("shapes:"), _never)
    manager.bound("encoder", parse_spec("shapes:?miss=0"), _never)

    assert [(node, setup.gpus) for node, setup in bound_on] == [("id3", 1.0), ("id2", 0.0)]
    assert bound.provenance["engine"] == "ray"
    assert bound.build == " on a cluster of Ray"
    assert (bound.grows, bound.lasting) == (False, True)


def test_a_role_that_was_not_planned_has_what_was_asked_for(bound_on: list[Any]) -> None:
    """A whole device where there are some, else none."""
    _manager(DEVICES).bound("describer", parse_spec("shapes:"), _never)
    _manager(LARGE).bound("describer", parse_spec("shapes:"), _never)
    _manager(DEVICES, describer=ResourceRequest(gpus=0.5)).bound(
        "describer", parse_spec("shapes:"), _never
    )

    assert [setup.gpus for _, setup in bound_on] == [1.0, 0.0, 0.5]


def test_a_fault_of_binding_names_its_node(bound_on: list[Any]) -> None:
    """Once found it is raised again without asking."""
    manager = _manager(LARGE)
    for _ in range(2):
        with pytest.raises(SpecError, match=r"^not understood \(looked up on node node2 of the "):
            manager.bound("describer", parse_spec("shapes:?bad=1"), _never)
    with pytest.raises(ModelError, match=r"^describer shapes:\?bad=2 could not be bound on node n"):
        manager.bound("describer", parse_spec("shapes:?bad=2"), _never)
    assert len(bound_on) == 2


def test_pools_are_made_when_a_model_is_needed(local: LocalCluster, bound_on: list[Any]) -> None:
    """One for each model; `begin` is called before the first. Their loads and seconds add up."""
    begun: list[int] = []
    manager = PoolManager(
        _Nodes(LARGE), {}, BindContext(str, None), begin=lambda: begun.append(len(local.actors))
    )
    manager.plan([("describer", parse_spec("shapes:"))])
    assert manager.helpers == 16
    first, again = (
        manager.bound("describer", parse_spec("shapes:"), _never).load() for _ in range(2)
    )

    assert begun == [0]
    assert len(local.actors) == 8
    # Both are describers.
    assert first.describe([], "p", []) == again.describe([], "p", [])  # type: ignore[union-attr]
    assert not isinstance(first, CountsTokens)
    loads, seconds = manager.usage()
    assert dict(loads) == {"describer": loads["describer"]}
    assert seconds == loads["describer"] * 0.5 + 2 * 0.25
    manager.close()
    assert all(actor.killed for actor in local.actors)
    assert bound_on


def test_a_model_beyond_the_plan_has_one_actor_beside_the_others(
    local: LocalCluster, bound_on: list[Any]
) -> None:
    """The plan has given every core away."""
    manager = _manager(LARGE)
    manager.plan([("describer", parse_spec("shapes:"))])
    manager.bound("encoder", parse_spec("shapes:?miss=0"), _never).load()

    assert [(actor.cpus, actor.group) for actor in local.actors] == [(0.0, None)]
    assert bound_on[0][1].role == "encoder"


def test_models_of_servers_are_asked_from_here(
    bound_on: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in no plan, bound in this process and loaded once; their time counts."""
    loads: list[int] = []

    class Server:
        """Says yes."""

        def describe(self, *_: Any) -> list[str]:
            """As a describer."""
            return ["yes"]

    def load() -> Server:
        loads.append(1)
        return Server()

    monkeypatch.setattr(
        module, "bind", lambda *_, **__: replace(READY.bound, load=load, provenance={})
    )
    manager = _manager(LARGE)
    assert manager.plan([("describer", parse_spec("openai:m"))]) == {}
    assert manager.helpers == 2
    models = [manager.bound("describer", parse_spec("openai:m"), _never).load() for _ in range(2)]

    assert [
        model.describe([], "p", [])  # type: ignore[union-attr]
        for model in models
    ] == [["yes"]] * 2
    assert loads == [1]
    loaded, seconds = manager.usage()
    assert loaded == {"describer": 1}
    assert 0 < seconds < 5
    assert bound_on == []
