"""Clusters, as far as none is needed: addresses, nodes, and this process unchanged."""

from __future__ import annotations

import logging
import os
import signal
import socket
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from pytest_cepbench.chains.ray import cluster as module
from pytest_cepbench.chains.ray.cluster import Cluster, Node, list_nodes, silenced_ray
from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.devices import usable_cores


def test_many_nodes_are_cut() -> None:
    """A message stays one line."""
    nodes = [Node(str(n), f"n{n}", 2, 1) for n in range(9)]

    assert list_nodes(nodes[:2]) == "n0 (2 CPUs, 1 GPUs), n1 (2 CPUs, 1 GPUs)"
    assert list_nodes(nodes[:8]).endswith("n7 (2 CPUs, 1 GPUs)")
    assert list_nodes(nodes).endswith("n7 (2 CPUs, 1 GPUs), ...")


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


def test_a_process_is_put_back_as_it_was(
    set_nodes: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's variables are set while connected, and a user's own stand."""
    ray = pytest.importorskip("ray")
    set_nodes("b")
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_gcs_server_request_timeout_seconds", "7")
    before = dict(os.environ)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", lambda: pytest.fail("the connection was there before"))
    monkeypatch.setattr(
        ray, "get_runtime_context", lambda: type("Context", (), {"gcs_address": "h:1"})
    )

    cluster = module.connect("other:1")

    assert (cluster.address, cluster.borrowed, cluster.own) == ("h:1", True, False)
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert os.environ["RAY_gcs_server_request_timeout_seconds"] == "7"  # noqa: SIM112 - Ray's name
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # as Ray does
    cluster.close()
    assert dict(os.environ) == before


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


@pytest.mark.parametrize("address", [None, "local", "variable", "h:6379"])
def test_a_cluster_is_started_unless_there_is_an_address(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    """That of the option, else of the variable; a started one has this process's cores."""
    monkeypatch.setattr(module, "_check_answers", lambda _: None)
    if address == "variable":
        monkeypatch.setenv("RAY_ADDRESS", "v:6379")
        address = None
        expected: str | None = "v:6379"
    else:
        expected = "h:6379" if address == "h:6379" else None
    handler, environment = signal.getsignal(signal.SIGTERM), dict(os.environ)

    cluster = module.connect(address)

    (options,) = started
    assert (cluster.own, cluster.borrowed, cluster.address) == (expected is None, False, "h:1")
    assert options["address"] == (expected or "local")
    assert options.get("num_cpus") == (None if expected else usable_cores())
    cluster.close()
    assert started[1:] == [{"address": "left"}]
    assert signal.getsignal(signal.SIGTERM) == handler
    assert dict(os.environ) == environment


def test_a_cluster_that_cannot_be_joined_leaves_no_trace(started: list[dict[str, Any]]) -> None:
    """What Ray raises is shown with a remedy, and the process is as it was."""
    handler, environment = signal.getsignal(signal.SIGTERM), dict(os.environ)
    with pytest.raises(
        SpecError,
        match=r"^--cep-ray-address 'auto': Ray cannot connect \(ConnectionError: no such cluster\)",
    ):
        module.connect("auto")
    assert started[-1] == {"address": "left"}
    assert signal.getsignal(signal.SIGTERM) == handler
    assert dict(os.environ) == environment


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


def test_ray_is_silent_for_a_while() -> None:
    """Neither its warnings nor its log lines; afterwards it logs as before."""
    logger = logging.getLogger("ray")
    level = logger.level
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with silenced_ray():
            warnings.warn("from Ray", stacklevel=1)
            assert logger.level == logging.ERROR
        warnings.warn("from others", stacklevel=1)

    assert [str(warning.message) for warning in caught] == ["from others"]
    assert logger.level == level
