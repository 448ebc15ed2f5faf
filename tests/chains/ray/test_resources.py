"""How a cluster is divided: an actor of each role on each device, unless the user says otherwise."""

from __future__ import annotations

import pytest

from pytest_cepbench.chains.ray.cluster import Node
from pytest_cepbench.chains.ray.resources import ResourceRequest, check_wishes, share_out
from pytest_cepbench.errors import SpecError

ROLES = ["describer", "generator", "encoder"]


def _nodes(*sizes: tuple[float, float]) -> list[Node]:
    return [Node(f"id{n}", f"node{n}", cpus, gpus) for n, (cpus, gpus) in enumerate(sizes)]


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_every_accelerator_has_one_of_each_role() -> None:
    """Thirds of it, and no more cores than there are for its device."""
    shares = share_out(ROLES, {}, _nodes((32, 4), (32, 4)))

    assert {share.actors for share in shares.values()} == {8}
    assert {share.gpus for share in shares.values()} == {0.333}
    assert {share.threads for share in shares.values()} == {None}
    assert all(share.seated for share in shares.values())


def test_two_encoders_count_twice() -> None:
    """Roles are those of models: a suite's further encoders take their part."""
    shares = share_out([*ROLES, "encoder"], {}, _nodes((8, 1)))

    assert shares["encoder"].gpus == 0.25


def test_without_accelerators_cores_are_seats() -> None:
    """One for each core; where there are many, several cores to a seat, and so many threads."""
    few = share_out(ROLES, {}, _nodes((1, 0), (1, 0)))
    many = share_out(ROLES, {}, _nodes((64, 0)))

    assert (few["encoder"].actors, few["encoder"].cpus, few["encoder"].threads) == (2, 0.333, 1)
    assert (many["encoder"].actors, many["encoder"].cpus, many["encoder"].threads) == (16, 1.0, 4)


def test_a_wish_leaves_the_rest_to_the_others() -> None:
    """What one role asks for is gone; the others share the devices that are left."""
    shares = share_out(ROLES, {"describer": ResourceRequest(2, 1.0, 2.0)}, _nodes((16, 4)))

    assert (shares["describer"].actors, shares["describer"].gpus) == (2, 1.0)
    assert (shares["generator"].actors, shares["generator"].gpus) == (2, 0.5)
    assert not shares["describer"].seated


def test_an_encoder_on_the_cores_leaves_devices_whole() -> None:
    """`gpus=0` puts a role on the processor, beside the devices."""
    shares = share_out(ROLES, {"encoder": ResourceRequest(gpus=0.0)}, _nodes((16, 2)))

    assert (shares["encoder"].gpus, shares["generator"].gpus) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("wish", "message"),
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
def test_more_than_there_is_is_refused(wish: ResourceRequest, message: str) -> None:
    """At once, with what there is: nobody is to wait for it."""
    with pytest.raises(SpecError) as caught:
        check_wishes({"describer": wish}, _nodes((8, 1), (8, 1)))

    assert message in str(caught.value)


def test_nothing_left_is_refused() -> None:
    """A role without a wish would wait for a device that others have."""
    with pytest.raises(SpecError, match="leaves no GPU for the generator: ask for less, or give "):
        share_out(ROLES, {"describer": ResourceRequest(2, 1.0)}, _nodes((8, 2)))
