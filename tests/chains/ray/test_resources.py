"""How a cluster is divided: an actor of each role on each device, unless the user says otherwise."""

from __future__ import annotations

import pytest

from pytest_cepbench.chains.ray.cluster import Node
from pytest_cepbench.chains.ray.resources import ResourceRequest, allocate, check_requests
from pytest_cepbench.errors import SpecError

ROLES = ["describer", "generator", "encoder"]


def _nodes(*sizes: tuple[float, float]) -> list[Node]:
    return [Node(f"id{n}", f"node{n}", cpus, gpus) for n, (cpus, gpus) in enumerate(sizes)]


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_every_accelerator_has_one_of_each_role() -> None:
    """Thirds of it, and no more cores than there are for its device."""
    pools = allocate(ROLES, {}, _nodes((32, 4), (32, 4)))

    assert {pool.actors for pool in pools.values()} == {8}
    assert {pool.gpus for pool in pools.values()} == {0.333}
    assert {pool.threads for pool in pools.values()} == {None}
    assert all(pool.shared for pool in pools.values())


def test_two_encoders_count_twice() -> None:
    """Roles are those of models: a suite's further encoders take their part."""
    pools = allocate([*ROLES, "encoder"], {}, _nodes((8, 1)))

    assert pools["encoder"].gpus == 0.25


def test_without_accelerators_cores_are_divided() -> None:
    """One for each core; where there are many, several cores to a place, and so many threads."""
    few = allocate(ROLES, {}, _nodes((1, 0), (1, 0)))
    many = allocate(ROLES, {}, _nodes((64, 0)))

    assert (few["encoder"].actors, few["encoder"].cpus, few["encoder"].threads) == (2, 0.333, 1)
    assert (many["encoder"].actors, many["encoder"].cpus, many["encoder"].threads) == (16, 1.0, 4)


def test_a_requestedleaves_the_rest_to_the_others() -> None:
    """What one role asks for is gone; the others share the devices that are left."""
    pools = allocate(ROLES, {"describer": ResourceRequest(2, 1.0, 2.0)}, _nodes((16, 4)))

    assert (pools["describer"].actors, pools["describer"].gpus) == (2, 1.0)
    assert (pools["generator"].actors, pools["generator"].gpus) == (2, 0.5)
    assert not pools["describer"].shared


def test_an_encoder_on_the_cores_leaves_devices_whole() -> None:
    """`gpus=0` puts a role on the processor, beside the devices."""
    pools = allocate(ROLES, {"encoder": ResourceRequest(gpus=0.0)}, _nodes((16, 2)))

    assert (pools["encoder"].gpus, pools["generator"].gpus) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (
            ResourceRequest(4, 1.0),
            "--cep-ray-pool describer: 4 actors of 1 GPUs and 0 CPUs: that is 4 GPUs, the ",
        ),
        (
            ResourceRequest(1, 0.0, 12.0),
            "no node has so much for one actor; there are node0 (8 CPUs, 1 GPUs)",
        ),
    ],
)
def test_more_than_there_is_is_refused(requested: ResourceRequest, message: str) -> None:
    """At once, with what there is: no run waits for it."""
    with pytest.raises(SpecError) as caught:
        check_requests({"describer": requested}, _nodes((8, 1), (8, 1)))

    assert message in str(caught.value)


def test_nothing_left_is_refused() -> None:
    """A role without a request would wait for a device that others have."""
    with pytest.raises(SpecError, match="leaves no GPU for the generator: ask for less, or give "):
        allocate(ROLES, {"describer": ResourceRequest(2, 1.0)}, _nodes((8, 2)))
