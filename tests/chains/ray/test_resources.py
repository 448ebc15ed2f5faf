"""How a cluster is divided: an actor of each role on each device, unless the user says more."""

from __future__ import annotations

import pytest

from pytest_cepbench.chains.ray.cluster import Node
from pytest_cepbench.chains.ray.resources import (
    Place,
    ResourceRequest,
    allocate,
    check_requests,
    reserve,
)
from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.spec import parse_spec

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


def test_actors_have_the_cores_of_the_poorest_device() -> None:
    """A node has its cores divided among its devices, and those among the roles."""
    pools = allocate(ROLES, {}, _nodes((2, 2), (8, 2), (9, 0)))

    assert {(pool.actors, pool.gpus, pool.cpus) for pool in pools.values()} == {(4, 0.333, 0.333)}


def test_without_accelerators_cores_are_divided() -> None:
    """One for each core; where there are many, several cores to a place, and so many threads."""
    few = allocate(ROLES, {}, _nodes((1, 0), (1, 0)))
    many = allocate(ROLES, {}, _nodes((64, 0)))

    assert (few["encoder"].actors, few["encoder"].cpus, few["encoder"].threads) == (2, 0.333, 1)
    assert (many["encoder"].actors, many["encoder"].cpus, many["encoder"].threads) == (16, 1.0, 4)


def test_a_request_leaves_the_rest_to_the_others() -> None:
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


def test_a_cluster_of_single_cores_has_sixteen_places() -> None:
    """No role has more actors where nothing is asked for; each has its part of a core."""
    pools = allocate(["encoder"], {}, _nodes(*[(1, 0)] * 17))
    assert (pools["encoder"].actors, pools["encoder"].cpus) == (16, 1.0)

    pools = allocate(["encoder"], {}, _nodes(*[(1, 0)] * 16))
    assert pools["encoder"].actors == 16

    pools = allocate(["encoder"], {}, _nodes((33, 0), (2, 0)))
    assert (pools["encoder"].actors, pools["encoder"].threads) == (11, 3)


def test_parts_of_a_core_are_places() -> None:
    """The smallest of them is what an actor has; a node without cores has none."""
    pools = allocate(["encoder"], {}, _nodes((0.5, 0), (0.25, 0), (0, 0)))
    assert (pools["encoder"].actors, pools["encoder"].cpus) == (2, 0.25)
    assert pools["encoder"].threads == 1

    for nothing in (_nodes((0, 0)), []):
        pools = allocate(["encoder"], {}, nothing)
        assert (pools["encoder"].actors, pools["encoder"].cpus) == (1, 0.0)


def test_more_actors_than_devices_have_less_of_each() -> None:
    """Of the device, and of its cores."""
    pools = allocate(["encoder"], {"encoder": ResourceRequest(actors=4)}, _nodes((6, 2)))
    assert (pools["encoder"].gpus, pools["encoder"].cpus) == (0.5, 1.0)
    assert str(pools["encoder"]) == "4 x 0.5 GPU + 1 CPU"

    pools = allocate(["encoder"], {"encoder": ResourceRequest(actors=4)}, _nodes((2, 0)))
    assert (pools["encoder"].gpus, pools["encoder"].cpus) == (0.0, 0.5)
    assert not pools["encoder"].shared

    pools = allocate(["encoder"], {"encoder": ResourceRequest(1, 0.0, 0.0)}, _nodes((2, 0)))
    assert str(pools["encoder"]) == "1 x nothing"


def test_threads_are_those_of_the_actor_s_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the user says how many; on an accelerator the library decides."""
    requested = {"encoder": ResourceRequest(actors=1, cpus=3.5)}
    assert allocate(["encoder"], requested, _nodes((8, 0)))["encoder"].threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert allocate(["encoder"], requested, _nodes((8, 0)))["encoder"].threads == 7
    monkeypatch.setenv("OMP_NUM_THREADS", "0")
    assert allocate(["encoder"], requested, _nodes((8, 0)))["encoder"].threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert allocate(["encoder"], requested, _nodes((8, 0)))["encoder"].threads == 3


def test_requests_are_taken_from_the_fullest_nodes() -> None:
    """Devices for those that ask for some, cores for the others; the rest is divided."""
    requested = {
        "describer": ResourceRequest(1, 2.0, 4.0),
        "generator": ResourceRequest(1, 0.0, 2.0),
    }
    pools = allocate(ROLES, requested, _nodes((16, 2), (8, 2)))

    assert (pools["encoder"].actors, pools["encoder"].gpus, pools["encoder"].cpus) == (2, 1.0, 1.0)


def test_pools_that_are_too_large_together_are_refused() -> None:
    """With each of them; a rounding error is not too much."""
    requested = {"encoder": ResourceRequest(3, 0.0, 1.0), "describer": ResourceRequest(2, 0.0, 1.0)}
    with pytest.raises(SpecError, match=r"the pools together \(encoder 3 x 1 CPU, describer 2 x 1"):
        allocate(["encoder", "describer"], requested, _nodes((4, 0)))

    thirds = {"encoder": ResourceRequest(3, 0.0, 0.1)}
    assert allocate(["encoder"], thirds, _nodes((0.3, 0), (0, 0)))["encoder"].actors == 3
    check_requests({"encoder": ResourceRequest()}, _nodes((1, 0)))
    check_requests(requested, _nodes((4, 0)))


def test_places_are_reserved_one_of_each_model_in_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models without a request share a group; others have their own, or none without resources."""
    placement = pytest.importorskip("ray.util.placement_group")
    monkeypatch.setattr(placement, "placement_group", tuple)
    places: list[Place] = [
        ("describer", parse_spec("a")),
        ("encoder", parse_spec("b")),
        ("encoder", parse_spec("c")),
        ("generator", parse_spec("d")),
        ("detector", parse_spec("e")),
    ]
    requests = {"generator": ResourceRequest(2, 0.5, 2.0), "detector": ResourceRequest(2, 0.0, 0.0)}
    pools = allocate([role for role, _ in places], requests, _nodes((8, 3)))

    groups = reserve(places, pools)

    shared = groups["describer", parse_spec("a")]
    assert [bundle["GPU"] for bundle in shared] == [0.999] * 2
    assert shared is groups["encoder", parse_spec("b")] is groups["encoder", parse_spec("c")]
    assert groups["generator", parse_spec("d")] == ({"GPU": 0.5, "CPU": 2.0},) * 2
    assert groups["detector", parse_spec("e")] is None
    alone = reserve(places[:1], allocate(["describer"], {}, _nodes((8, 3))))
    assert [len(own) for own in alone.values()] == [3]
