"""Actors of a model, started, compared and replaced; in this process, with Ray's own exceptions."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")

from ray.exceptions import ActorDiedError, ActorUnavailableError

from pytest_cepbench.chains.ray import supervisor as module
from pytest_cepbench.chains.ray.messages import ActorFault, fault_of
from pytest_cepbench.chains.ray.supervisor import Supervisor, first_mismatch
from pytest_cepbench.errors import CheckpointError, DeviceMemoryError, ModelError
from tests.chains.ray.local_actors import BOUND, NOT_YET, READY, LocalCluster, local, task_error

__all__ = ["local"]

DIED: dict[str, Any] = {"ready": ActorDiedError()}
FULL: dict[str, Any] = {"ready": fault_of(DeviceMemoryError("full"))}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that passes, in seconds."""
    now = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def _started(local: LocalCluster, actors: int = 1, **changes: Any) -> Supervisor:
    supervisor = local.supervisor(actors, **changes)
    supervisor.start()
    supervisor.update()
    return supervisor


def test_actors_start_once_each_in_its_place(local: LocalCluster) -> None:
    """Those that are ready are live; their loads, seconds and digests are kept."""
    ready = replace(READY, counts=True, digests={"stamp": "digest"})
    local.begin = [{"ready": ready}, {"ready": ready}, {"ready": NOT_YET}]
    supervisor = _started(local, 3)
    supervisor.start()

    assert [(actor.group, actor.cpus) for actor in local.actors] == [
        ("group0", 0.5),
        ("group1", 0.5),
        ("group2", 0.5),
    ]
    assert len(supervisor.live) == 2
    assert (supervisor.loads, supervisor.seconds) == (2, 1.0)
    counted = supervisor.counts
    assert supervisor.setup.digests == {"stamp": "digest"}
    assert [(actor.node_id, actor.node) for actor in supervisor.live] == [("id1", "node1")] * 2
    local.actors[2].ready = READY
    supervisor.update()
    supervisor.update()
    assert len(supervisor.live) == 3
    assert supervisor.loads == 3
    assert (counted, supervisor.counts) == (True, False)
    assert len(local.actors) == 3


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        (
            "fingerprint",
            "weights-2",
            "fingerprint weights-2 on node node1, weights-1 elsewhere: the ",
        ),
        ("adapter", "test/2", "adapter test/2 on node node1, test/1 elsewhere: install the same "),
        ("params", {"a": 1}, 'params {"a":1} on node node1, {} elsewhere: give device= and dtype='),
    ],
)
def test_another_model_than_the_run_s_is_named(part: str, value: object, words: str) -> None:
    """What differs, where, and what to do."""
    ready = replace(READY, bound=replace(BOUND, **{part: value}))  # type: ignore[arg-type]

    assert first_mismatch("describer shapes:", BOUND, ready).startswith(
        f"describer shapes:: {words}"
    )


def test_the_run_s_model_matches() -> None:
    """Where it was loaded does not matter; versions do."""
    ready = replace(READY, node="node2", bound=replace(BOUND, provenance={"device": "cuda"}))
    assert first_mismatch("m", BOUND, ready) == ""
    assert "node node1 has pytest-cepbench 0 on Python 3.1.0" in first_mismatch(
        "m", BOUND, replace(READY, version="0 3.1.0")
    )


def test_a_fingerprint_is_shortened() -> None:
    """Its first digits tell it apart."""
    long = replace(BOUND, fingerprint="a" * 64)
    mismatch = first_mismatch("m", BOUND, replace(READY, bound=long))
    assert f"fingerprint {'a' * 16} on" in mismatch


def test_an_actor_with_another_model_ends_the_pool(local: LocalCluster) -> None:
    """It answers nothing: its process is ended, and the reason is kept."""
    other = replace(READY, bound=replace(BOUND, fingerprint="weights-2"))
    local.begin = [{"ready": other}]
    supervisor = _started(local, 2)

    assert isinstance(supervisor.fault, ModelError)
    assert "fingerprint weights-2" in str(supervisor.fault)
    assert local.actors[0].killed
    assert not local.actors[1].killed
    supervisor.live.clear()
    supervisor.start()
    assert len(local.actors) == 2


def test_what_loading_raises_ends_the_pool(local: LocalCluster) -> None:
    """Of the same class, with the node; a model's own exception as it is."""
    local.begin = [{"ready": fault_of(CheckpointError("no weights"))}]
    supervisor = _started(local)
    assert type(supervisor.fault) is CheckpointError
    assert str(supervisor.fault) == "node node1: no weights"

    local.begin = [{"ready": ActorFault("OddError", "odd", ours=False, memory=False)}]
    supervisor = _started(local)
    assert (type(supervisor.fault).__name__, str(supervisor.fault)) == ("OddError", "odd")

    local.begin = [{"ready": task_error("Traceback\nKeyError: 'a'")}]
    supervisor = _started(local)
    assert str(supervisor.fault) == "describer shapes: on node node1: KeyError: 'a'"


def test_memory_for_fewer_actors_does(local: LocalCluster) -> None:
    """The others work on, and the report says so; without any the next that asks starts anew."""
    local.begin = [FULL]
    supervisor = _started(local, 2)
    assert len(supervisor.live) == 1
    assert supervisor.fault is None
    assert supervisor.losses.lines() == [
        "the describer shapes: has an actor less: node node1: full"
    ]

    local.begin = [FULL]
    alone = local.supervisor(1)
    alone.start()
    with pytest.raises(DeviceMemoryError, match="full"):
        alone.update()
    assert alone.fault is None
    alone.start()
    alone.update()
    assert len(alone.live) == 1


def test_an_actor_that_dies_while_it_starts_is_replaced(local: LocalCluster) -> None:
    """Up to twice for each actor; then none can be started."""
    local.begin = [DIED] * 3
    supervisor = _started(local)
    assert len(local.actors) == 2
    supervisor.update()
    supervisor.update()

    assert len(local.actors) == 2
    with pytest.raises(ModelError, match=r"^infrastructure: no actor of the describer shapes: is "):
        supervisor.check_patience()
    (line,) = supervisor.losses.lines()
    assert line.startswith("node node1 lost 2 actors (2 describer): its process died, as it does ")


def test_starts_that_fail_with_a_node_do_not_count(local: LocalCluster) -> None:
    """It is not the model that fails; an actor that was ready begins the count anew."""
    local.nodes = []
    local.begin = [DIED] * 3
    supervisor = _started(local)
    for _ in range(3):
        supervisor.update()
    assert len(local.actors) == 4
    assert len(supervisor.live) == 1
    assert "the node left the cluster" in supervisor.losses.lines()[0]


def test_one_start_may_fail_after_each_loss(local: LocalCluster) -> None:
    """The count of failed starts ends with an actor that is ready."""
    local.begin = [DIED]
    supervisor = _started(local)
    supervisor.update()
    (actor,) = supervisor.live
    local.begin = [DIED]
    supervisor.replace_lost(actor, ActorDiedError(), by_node=False)
    supervisor.update()
    supervisor.update()
    assert len(supervisor.live) == 1
    assert len(local.actors) == 4


def test_a_lost_actor_is_replaced_once(local: LocalCluster) -> None:
    """By the thread that notices it first; its successor takes its place."""
    supervisor = _started(local, 2)
    lost = supervisor.live[1]
    for _ in range(2):
        supervisor.replace_lost(lost, ActorDiedError(), by_node=True)

    assert len(local.actors) == 3
    assert local.actors[2].group == "group1"
    assert [actor.killed for actor in local.actors] == [False, True, False]
    assert lost.loss is not None
    assert (lost.loss.node, lost.loss.reason) == ("node1", "the node left the cluster")
    supervisor.update()
    assert len(supervisor.live) == 2


def test_a_later_actor_that_cannot_work_is_done_without(local: LocalCluster) -> None:
    """The pool goes on with the others, and the report says so."""
    supervisor = _started(local, 2)
    local.begin = [{"ready": fault_of(CheckpointError("gone")), "node": ("id2", "node2")}]
    supervisor.replace_lost(supervisor.live[0], None, by_node=False)
    supervisor.update()

    assert supervisor.fault is None
    assert len(supervisor.live) == 1
    assert supervisor.losses.remarks == [
        "no new actor of the describer shapes: on node node2: node node2: gone"
    ]


def test_a_closed_pool_starts_nothing(local: LocalCluster) -> None:
    """Its actors are handed out to be ended, those that are being started too."""
    local.begin = [{}, {"ready": NOT_YET}]
    supervisor = _started(local, 2)
    (live,) = supervisor.live
    assert [actor.handle for actor in supervisor.close()] == [local.actors[1], local.actors[0]]
    assert supervisor.closed
    supervisor.live = [live]
    supervisor.replace_lost(live, None, by_node=False)
    assert len(local.actors) == 2


def test_a_node_s_death_is_told_from_a_process_s(local: LocalCluster) -> None:
    """By Ray's words, or since the node is gone; an actor without a place was on none."""
    supervisor = _started(local)
    (actor,) = supervisor.live
    assert not supervisor.is_lost_with_node(actor, ActorDiedError())
    assert supervisor.is_lost_with_node(actor, ValueError("its node has died: x"))
    local.nodes = []
    assert supervisor.is_lost_with_node(actor, ActorUnavailableError("gone", b"x" * 16))
    actor.node_id = ""
    assert not supervisor.is_lost_with_node(actor, None)


def test_patience_ends_where_no_actor_gets_a_place(local: LocalCluster, clock: list[float]) -> None:
    """Not before, nor while one loads."""
    local.begin = [{"node": NOT_YET, "ready": NOT_YET}]
    supervisor = _started(local)
    clock[0] += module.PATIENCE
    supervisor.check_patience()
    clock[0] += 1
    with pytest.raises(ModelError) as caught:
        supervisor.check_patience()
    assert str(caught.value).startswith(
        "infrastructure: no actor of the describer shapes: could be placed within 300 s (each asks "
        "for 0 GPUs and 0.5 CPUs): is the cluster in use by others, or have nodes left? Ray cluster"
    )
    local.actors[0].node = ("id1", "node1")
    supervisor.update()
    supervisor.check_patience()
    clock[0] += module.PATIENCE
    supervisor.check_patience()
    assert len(local.actors) == 1


def test_where_a_node_is_lost_another_one_s_cores_are_shared(
    local: LocalCluster, clock: list[float]
) -> None:
    """One actor without cores of its own, after a moment; none where accelerators are needed."""
    local.begin = [{"node": NOT_YET, "ready": NOT_YET}, {"node": NOT_YET, "ready": NOT_YET}]
    supervisor = _started(local)
    local.seen = 2
    clock[0] += 2.0
    supervisor.check_patience()
    assert len(local.actors) == 1
    clock[0] += 1.0
    supervisor.check_patience()
    supervisor.check_patience()

    assert [(actor.group, actor.cpus) for actor in local.actors] == [("group0", 0.5), (None, 0.0)]
    local.actors[1].node, local.actors[1].ready = ("id1", "node1"), READY
    supervisor.update()
    assert [actor.handle for actor in supervisor.live] == [local.actors[1]]

    local.begin = [{"node": NOT_YET, "ready": NOT_YET}]
    accelerated = _started(local, gpus=0.5)
    clock[0] += 3.0
    accelerated.check_patience()
    assert len(local.actors) == 3
