"""What a run says of lost actors."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_cepbench.chains.ray.pools import LossLog, LostActor, format_actor_error
from tests.chains.ray.local_actors import NOT_YET, LocalCluster, local

__all__ = ["local"]

LEFT = "the node left the cluster"


def test_actors_of_a_node_are_lost_in_one_sentence() -> None:
    """Which node, how many of which role, why, and what became of their batches."""
    log = LossLog(
        [
            LostActor("describer", "node1", LEFT, batches=1),
            LostActor("describer", "node1", LEFT, batches=1),
            LostActor("encoder", "node1", LEFT, batches=1),
            LostActor("encoder", "node2", LEFT),
        ]
    )

    assert log.lines() == [
        (
            "node node1 lost 3 actors (2 describer, 1 encoder): the node left the cluster; "
            "3 batches on their way were asked for again"
        ),
        "node node2 lost 1 actor (1 encoder): the node left the cluster; no batch was lost",
    ]


def test_reasons_are_told_apart() -> None:
    """A node may lose actors in two ways."""
    log = LossLog(
        [
            LostActor("encoder", "node1", "its process died"),
            LostActor("encoder", "node1", LEFT, batches=1),
        ]
    )

    assert log.lines() == [
        "node node1 lost 1 actor (1 encoder): its process died; no batch was lost",
        (
            "node node1 lost 1 actor (1 encoder): the node left the cluster; "
            "a batch on its way was asked for again"
        ),
    ]


def test_actors_without_a_place_have_no_node() -> None:
    """They died before they said where they are. Remarks come last."""
    log = LossLog([LostActor("encoder", "", "its process died")], {"no new actor": None})

    assert log.lines() == [
        "1 actor (1 encoder) lost before they were ready: its process died; no batch was lost",
        "no new actor",
    ]


def test_what_became_of_the_node_is_found_out_there(local: LocalCluster) -> None:
    """A task that runs there shows that only the process is gone."""
    ray = pytest.importorskip("ray")
    found = {}
    for result in (
        NOT_YET,
        None,
        ray.exceptions.TaskUnschedulableError("no such node"),
        ray.exceptions.NodeDiedError("gone"),
        ray.exceptions.WorkerCrashedError(),
    ):
        local.probe = result
        lost: Any = LostActor("encoder", "node1", probe=local.start_on_node("id1", None))
        lost.look()
        lost.look()
        found[type(result).__name__] = (lost.reason, lost.by_process, lost.probe is None)

    died = ("its process died, as it does when memory runs out", True, True)
    assert found == {
        "object": ("it could not be reached any more", False, False),
        "NoneType": died,
        "TaskUnschedulableError": (LEFT, False, True),
        "NodeDiedError": (LEFT, False, True),
        "WorkerCrashedError": died,
    }


def test_an_exception_in_an_actor_is_its_last_line() -> None:
    """Ray's own text is a traceback; without any, the class has to do."""
    assert format_actor_error(ValueError("Traceback\n  File x\nKeyError:  'a'\n\n")) == (
        "KeyError: 'a'"
    )
    assert format_actor_error(ValueError("")) == "ValueError"
    assert len(format_actor_error(ValueError("x" * 400))) == 300
