"""What a run says of lost actors, and which batches it gives up."""

from __future__ import annotations

import pytest

from pytest_cepbench.chains.ray.losses import (
    LossLog,
    PoisonBatches,
    format_actor_error,
    is_process_death,
    loss_reason,
)
from pytest_cepbench.chains.ray.messages import ActorRequest
from pytest_cepbench.errors import MeasurementError

BATCH = ActorRequest("describe", ["a", "b", "c"], ("prompt", [1, 2, 3]))
OTHER = ActorRequest("describe", ["a", "b", "c"], ("prompt", [1, 2, 4]))


def test_actors_of_a_node_are_lost_in_one_sentence() -> None:
    """Which node, how many of which role, why, and what became of their batches."""
    log = LossLog()
    first = log.add("describer", "node1", "the node left the cluster")
    second = log.add("describer", "node1", "the node left the cluster")
    third = log.add("encoder", "node1", "the node left the cluster")
    log.add("encoder", "node2", "the node left the cluster")
    for actor in (first, second, third):
        log.add_batch(actor)

    assert log.lines() == [
        (
            "node node1 lost 3 actors (2 describer, 1 encoder): the node left the cluster; "
            "3 batches on their way were asked for again"
        ),
        "node node2 lost 1 actor (1 encoder): the node left the cluster; no batch was lost",
    ]


def test_reasons_are_told_apart() -> None:
    """A node may lose actors in two ways."""
    log = LossLog()
    log.add("encoder", "node1", "its process died")
    log.add_batch(log.add("encoder", "node1", "the node left the cluster"))

    assert log.lines() == [
        "node node1 lost 1 actor (1 encoder): its process died; no batch was lost",
        (
            "node node1 lost 1 actor (1 encoder): the node left the cluster; "
            "a batch on its way was asked for again"
        ),
    ]


def test_actors_without_a_place_have_no_node() -> None:
    """They died before they said where they are."""
    log = LossLog()
    log.add("encoder", "", "its process died")

    assert log.lines() == [
        "1 actor (1 encoder) lost before they were ready: its process died; no batch was lost"
    ]


def test_remarks_are_said_once() -> None:
    """After what was lost."""
    log = LossLog()
    log.remark("no new actor")
    log.remark("no new actor")
    log.add("encoder", "n", "why")

    assert log.lines()[1:] == ["no new actor"]


def test_a_batch_that_kills_twice_is_given_up() -> None:
    """Not at its first death, and no other batch with it: seeds alone tell two apart."""
    poison = PoisonBatches("describer shapes:")
    assert not poison.check(BATCH)
    poison.add(BATCH)
    assert poison.check(BATCH)
    assert not poison.check(OTHER)
    poison.add(BATCH)

    with pytest.raises(MeasurementError) as caught:
        poison.check(BATCH)

    assert str(caught.value).startswith(
        "infrastructure: 2 actors of the describer shapes: died while they worked on the same "
        "batch of 3: "
    )
    assert not poison.check(OTHER)


def test_reasons_follow_from_what_ray_raises() -> None:
    """Memory, a process, a node, or nothing that is known."""
    ray = pytest.importorskip("ray")
    died = ray.exceptions.ActorDiedError()
    memory = ray.exceptions.OutOfMemoryError("too much")

    assert loss_reason(died, by_node=True) == "the node left the cluster"
    assert loss_reason(died, by_node=False) == ("its process died, as it does when memory runs out")
    assert loss_reason(memory, by_node=False) == "Ray ended the process, since memory ran out"
    assert loss_reason(ValueError("OUT_OF_MEMORY"), by_node=False) == (
        "Ray ended the process, since memory ran out"
    )
    assert loss_reason(None, by_node=False) == "it could not be reached any more"
    assert [is_process_death(error) for error in (died, memory, ValueError(), None)] == [
        True,
        True,
        False,
        False,
    ]


def test_an_exception_in_an_actor_is_its_last_line() -> None:
    """Ray's own text is a traceback; without any, the class has to do."""
    assert format_actor_error(ValueError("Traceback\n  File x\nKeyError:  'a'\n\n")) == (
        "KeyError: 'a'"
    )
    assert format_actor_error(ValueError("")) == "ValueError"
    assert len(format_actor_error(ValueError("x" * 400))) == 300
