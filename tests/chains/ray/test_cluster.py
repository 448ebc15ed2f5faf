"""Clusters, as far as none is needed: addresses, nodes, and this process unchanged."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pytest_cepbench.chains.ray import cluster as module
from pytest_cepbench.chains.ray.cluster import Allocation, Cluster, Node, allocate, reserve
from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.devices import usable_cores


@pytest.fixture
def set_nodes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what Ray says of nodes: names, a minus before those that died."""
    ray = pytest.importorskip("ray")

    def put(*names: str) -> None:
        rows: list[dict[str, Any]] = [
            {
                "NodeID": name.lstrip("-"),
                "NodeManagerAddress": name.lstrip("-"),
                "Alive": not name.startswith("-"),
                "Resources": {"CPU": 4.0, "GPU": 1.0} if name.endswith("g") else {"CPU": 2.0},
            }
            for name in names
        ]
        monkeypatch.setattr(ray, "nodes", lambda: rows)

    return put


def test_a_cluster_has_the_nodes_that_are_alive(set_nodes: Callable[..., None]) -> None:
    """By name, with their resources; what was seen and is gone is a loss."""
    cluster = Cluster("h:1")
    set_nodes("b", "ag", "-c")
    assert cluster.nodes() == [Node("ag", "ag", 4.0, 1.0), Node("b", "b", 2.0, 0.0)]
    assert str(cluster) == "Ray cluster at h:1, 2 nodes: ag (4 CPUs, 1 GPUs), b (2 CPUs, 0 GPUs)"
    assert cluster.lost_nodes() == []

    set_nodes("b", "-ag")

    assert cluster.lost_nodes() == [Node("ag", "ag", 4.0, 1.0)]
    assert str(Cluster("h:1", own=True)) == (
        "Ray cluster started for this run, 1 node: b (2 CPUs, 0 GPUs)"
    )


@pytest.fixture
def started(
    set_nodes: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, Any]]:
    """The options with which Ray was asked to connect."""
    ray = pytest.importorskip("ray")
    calls: list[dict[str, Any]] = []

    def init(**options: Any) -> None:
        calls.append(options)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as Ray does, with a handler of its own
        if options["address"] == "auto":
            raise ConnectionError("no such cluster")

    set_nodes("b")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: calls.append({"address": "left"}))
    monkeypatch.setattr(
        ray, "get_runtime_context", lambda: type("Context", (), {"gcs_address": "h:1"})
    )
    return calls


@pytest.mark.parametrize(
    ("address", "variable", "expected"),
    [
        (None, "", None),
        ("local", "", None),
        (None, "v:6379", "v:6379"),
        ("h:6379", "v:6379", "h:6379"),
    ],
)
def test_a_cluster_is_started_unless_there_is_an_address(
    started: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    address: str | None,
    variable: str,
    expected: str | None,
) -> None:
    """That of the option, else of the variable; a started one has this process's cores."""
    monkeypatch.setattr(socket, "create_connection", lambda *_: socket.socket())
    monkeypatch.setenv("RAY_ADDRESS", variable)
    handler = signal.getsignal(signal.SIGTERM)

    cluster = module.connect(address)

    (options,) = started
    assert (cluster.own, cluster.address) == (expected is None, "h:1")
    assert options["address"] == (expected or "local")
    assert options.get("num_cpus") == (None if expected else usable_cores())
    cluster.close()
    assert started[1:] == [{"address": "left"}]
    assert signal.getsignal(signal.SIGTERM) == handler


def test_a_cluster_that_cannot_be_joined_leaves_no_trace(started: list[dict[str, Any]]) -> None:
    """What Ray raises is shown with a remedy, and the process is as it was."""
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(
        SpecError,
        match=r"^--cep-ray-address 'auto': Ray cannot connect \(ConnectionError: no such cluster\)",
    ):
        module.connect("auto")
    assert started[-1] == {"address": "left"}
    assert signal.getsignal(signal.SIGTERM) == handler


def test_a_silent_port_is_told_within_seconds(started: list[dict[str, Any]]) -> None:
    """Ray itself would try for minutes; a port that answers is left to Ray."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(SpecError, match=r"Ray cannot connect \(ConnectionRefusedError: "):
            module.connect(address)
        listener.listen()
        module.connect(address).close()
    assert [call["address"] for call in started] == ["left", address, "left"]


# -- resources ------------------------------------------------------------------------------------

ROLES = ["describer", "generator", "encoder"]


def _nodes(*sizes: tuple[float, float]) -> list[Node]:
    return [Node(f"id{n}", f"node{n}", cpus, gpus) for n, (cpus, gpus) in enumerate(sizes)]


ALL = tuple(ROLES)
ONE = ("encoder",)


@pytest.mark.parametrize(
    ("roles", "requests", "nodes", "expected"),
    [
        # Every accelerator has one of each role, with no more cores than there are for it.
        (ALL, {}, [(32, 4)] * 2, dict.fromkeys(ALL, "8 x 0.333 GPU + 1 CPU, shared")),
        # Roles are those of models: a suite's further encoders take their part.
        ((*ALL, "encoder"), {}, [(8, 1)], {"encoder": "1 x 0.25 GPU + 1 CPU, shared"}),
        # A node has its cores divided among its devices, and those among the roles.
        (
            ALL,
            {},
            [(2, 2), (8, 2), (9, 0)],
            dict.fromkeys(ALL, "4 x 0.333 GPU + 0.333 CPU, shared"),
        ),
        # Without accelerators one for each core; where there are many, several cores to a place.
        (ALL, {}, [(1, 0)] * 2, {"encoder": "2 x 0.333 CPU, 1 threads, shared"}),
        (ALL, {}, [(64, 0)], {"encoder": "16 x 1 CPU, 4 threads, shared"}),
        # Sixteen at most, each with its part of a core.
        (ONE, {}, [(1, 0)] * 17, {"encoder": "16 x 1 CPU, 1 threads, shared"}),
        (ONE, {}, [(1, 0)] * 16, {"encoder": "16 x 1 CPU, 1 threads, shared"}),
        (ONE, {}, [(33, 0), (2, 0)], {"encoder": "8 x 1 CPU, 4 threads, shared"}),
        # What one role asks for is gone; the others share the devices that are left.
        (
            ALL,
            {"describer": {"actors": 2, "gpus": 1.0}},
            [(16, 4)],
            {"describer": "2 x 1 GPU + 1 CPU", "generator": "2 x 0.5 GPU + 1 CPU, shared"},
        ),
        # `gpus=0` puts a role on the processor, beside the devices.
        (
            ALL,
            {"encoder": {"gpus": 0.0}},
            [(16, 2)],
            {"encoder": "2 x 1 CPU, 8 threads", "generator": "2 x 0.5 GPU + 1 CPU, shared"},
        ),
        # More actors than devices have less of each, and of its cores.
        (ONE, {"encoder": {"actors": 4}}, [(6, 2)], {"encoder": "4 x 0.5 GPU + 1 CPU"}),
        (ONE, {"encoder": {"actors": 4}}, [(2, 0)], {"encoder": "4 x 0.5 CPU, 1 threads"}),
    ],
)
def test_a_cluster_is_divided_among_roles(
    roles: Sequence[str],
    requests: dict[str, dict[str, float]],
    nodes: list[tuple[float, float]],
    expected: dict[str, str],
) -> None:
    """Resources and threads of each actor, and whether roles share their places."""
    pools = allocate(roles, requests, _nodes(*nodes))

    def show(pool: Allocation) -> str:
        threads = "" if pool.threads is None else f", {pool.threads} threads"
        return f"{pool}{threads}{', shared' * pool.shared}"

    assert {role: show(pools[role]) for role in expected} == expected


@pytest.mark.parametrize(
    ("actors", "gpus", "sizes", "words"),
    [
        (4, 1.0, [(8, 1)] * 2, "ask for 4 GPUs, and the cluster has 2 for all"),
        (2, 1.0, [(8, 2)], "ask for 2 GPUs, and the cluster has 2 for all"),
        # The cluster has enough, but an actor has one node.
        (1, 2.0, [(8, 1)] * 3, "describer pool asks for 2 GPUs, and no node has more"),
    ],
)
def test_more_than_there_is_is_refused(
    actors: int, gpus: float, sizes: list[tuple[float, float]], words: str
) -> None:
    """At once, with what there is, and where nothing is left for the others: no run waits."""
    with pytest.raises(SpecError, match=words):
        allocate(ROLES, {"describer": {"actors": actors, "gpus": gpus}}, _nodes(*sizes))


def test_places_are_reserved_one_of_each_model_in_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models without a request share a group; others have their own, or none without resources."""
    placement = pytest.importorskip("ray.util.placement_group")
    monkeypatch.setattr(placement, "placement_group", lambda bundles, _: tuple(bundles))
    requests = {"generator": {"actors": 2, "gpus": 0.5}}
    pools = allocate([*ROLES, "encoder", "detector"], requests, _nodes((8, 3)))

    shared = reserve([pools["describer"], pools["encoder"], pools["encoder"]])
    assert [bundle["GPU"] for bundle in shared] == [0.75] * 2
    assert reserve([pools["generator"]]) == ({"GPU": 0.5, "CPU": 0.533},) * 2
    assert reserve([replace(pools["generator"], gpus=0.0, cpus=0.0)]) is None
