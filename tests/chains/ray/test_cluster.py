"""Clusters, as far as none is needed: addresses, versions, nodes, and this process unchanged."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench import __version__
from pytest_cepbench.chains.ray import cluster as module
from pytest_cepbench.chains.ray.cluster import (
    Cluster,
    Node,
    explain_connection_error,
    list_nodes,
    node_preparation,
    other_versions,
    probe_address,
    silenced_ray,
    version_task,
)
from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.devices import usable_cores

PYTHON = sys.version.split()[0]
MAJOR, MINOR = sys.version_info[:2]
FIRST, SECOND = "a" * 56, "b" * 56  # ids of nodes, as Ray has them


@contextmanager
def _answering(reply: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A port where one connection is answered, and what was sent there."""
    received: list[bytes] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                received.append(connection.recv(64))
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1], received
        thread.join()


def test_a_server_of_http_2_may_be_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is greeted as gRPC's clients do, and greets with a frame of settings: no error."""
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with _answering(b"\0\0\0\4\0\0\0\0\0") as (port, received):
        probe_address(f"127.0.0.1:{port}")
    assert [greeting[:14] for greeting in received] == [b"PRI * HTTP/2.0"]


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 Bad Request\r\n", b"\0\0\0\5\0\0\0\0\0", b""])
def test_another_server_is_no_cluster(monkeypatch: pytest.MonkeyPatch, reply: bytes) -> None:
    """Whatever else it answers, or nothing."""
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with (
        _answering(reply) as (port, _),
        pytest.raises(SpecError, match=r"what answers there is no Ray cluster; its port is 6379"),
    ):
        probe_address(f"127.0.0.1:{port}")


def test_a_silent_server_is_a_cluster_only_where_it_is_encrypted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With TLS nothing is asked of it: what it says cannot be read."""
    monkeypatch.setattr(module, "_PROBE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.delenv("RAY_USE_TLS", raising=False)
        with pytest.raises(SpecError, match="what answers there is no Ray cluster"):
            probe_address(address)
        monkeypatch.setenv("RAY_USE_TLS", "1")
        probe_address(address)


@pytest.mark.parametrize("address", ["host", "host:", ":6379", "host:0", "host:65536", "host:x"])
def test_malformed_addresses_are_refused(address: str) -> None:
    """HOST:PORT, with a port that exists."""
    with pytest.raises(SpecError, match="HOST:PORT of the cluster's head is expected"):
        probe_address(address)


def test_the_last_port_is_one() -> None:
    """Nothing answers there, which is another message."""
    with pytest.raises(SpecError, match="does not answer"):
        probe_address("127.0.0.1:65535")
    probe_address("auto")


@pytest.mark.parametrize(
    ("address", "text", "message"),
    [
        (
            "h:1",
            "Version mismatch: the cluster was started with: Ray: 2.1 Python: 3.9 This process x",
            "--cep-ray-address 'h:1': the cluster was started with Ray: 2.1 Python: 3.9, this ",
        ),
        ("auto", "whatever", "--cep-ray-address 'auto': no cluster runs on this machine: "),
        ("h:1", "no raylet here", "--cep-ray-address 'h:1': this machine is no node of that "),
        ("h:1", "node_ip_address", "--cep-ray-address 'h:1': this machine is no node of that "),
        (None, "no raylet here", "--cep-engine=ray: this machine is no node of that cluster: "),
        (None, "a\n  b", "--cep-engine=ray: Ray could not connect (ValueError: a b)"),
    ],
)
def test_errors_of_connecting_are_one_line(
    address: str | None, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was given, what is wrong, and what to do."""
    monkeypatch.setitem(sys.modules, "ray", type("ray", (), {"__version__": "9"}))

    explained = explain_connection_error(address, ValueError(text))

    assert explained.startswith(message)
    assert "\n" not in explained


@pytest.mark.parametrize(
    ("version", "python"),
    [
        ("0.0.0", PYTHON),
        (__version__, f"{MAJOR}.{MINOR + 1}.0"),
        (__version__, f"{MAJOR + 1}.{MINOR}.0"),
        ("not importable: no module", PYTHON),
    ],
)
def test_other_versions_are_refused(version: str, python: str) -> None:
    """Of pytest-cepbench, and of Python's minor: pickles of one are not read by the other."""
    assert other_versions("node1", (version, python), (__version__, PYTHON)) == (
        f"node node1 has pytest-cepbench {version} on Python {python}, this process {__version__} "
        f"on Python {PYTHON}: install the same everywhere"
    )


def test_the_same_versions_do() -> None:
    """The patch of Python does not matter."""
    there = __version__, f"{MAJOR}.{MINOR}.99"
    assert other_versions("node1", there, (__version__, PYTHON)) == ""


def test_a_node_reports_its_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the driver's folder, with its paths behind the node's own, where these exist."""
    before, driver = list(sys.path), tmp_path / "driver"
    (driver / "there").mkdir(parents=True)
    monkeypatch.chdir(driver)
    monkeypatch.setattr(sys, "path", [before[-1], str(driver / "there"), str(driver / "gone")])
    prepare = node_preparation()
    monkeypatch.setattr(sys, "path", list(before))
    monkeypatch.chdir(tmp_path)

    prepare()
    assert version_task()() == (__version__, PYTHON)
    assert Path.cwd() == driver
    assert sys.path == [*before, str(driver), str(driver / "there")]

    monkeypatch.chdir(tmp_path)
    driver.rename(tmp_path / "renamed")
    prepare()
    assert Path.cwd() == tmp_path  # the node has no such folder


def test_a_node_without_the_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reply is a version that differs from every other."""
    monkeypatch.setitem(sys.modules, "pytest_cepbench", None)
    monkeypatch.setattr(sys, "path", list(sys.path))

    version, python = version_task()()

    assert version.startswith("not importable: ")
    assert python == PYTHON


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
    """Ray's variables are set while connected, a user's own stand, and versions are checked."""
    ray = pytest.importorskip("ray")
    set_nodes("b")
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_gcs_server_request_timeout_seconds", "7")
    before = dict(os.environ)
    checked: list[list[Node]] = []
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", lambda: pytest.fail("the connection was there before"))
    monkeypatch.setattr(
        ray, "get_runtime_context", lambda: type("Context", (), {"gcs_address": "h:1"})
    )
    monkeypatch.setattr(module, "_check_nodes", checked.append)

    cluster = module.connect("other:1")

    assert (cluster.address, cluster.borrowed, cluster.own) == ("h:1", True, False)
    assert checked == [[Node("b", "b", 2.0, 0.0)]]
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert os.environ["RAY_gcs_server_request_timeout_seconds"] == "7"  # noqa: SIM112 - Ray's name
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # as Ray does
    cluster.close()
    assert dict(os.environ) == before

    def refuse(_: object) -> None:
        raise SpecError("other versions")

    monkeypatch.setattr(module, "_check_nodes", refuse)
    with pytest.raises(SpecError, match="other versions"):
        module.connect(None)
    assert dict(os.environ) == before


@pytest.fixture
def started(
    set_nodes: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, Any]]:
    """The options with which Ray was asked to connect; its nodes have this process's versions."""
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
    monkeypatch.setattr(module, "_silence_raylet_logs", lambda: None)
    monkeypatch.setattr(module, "_check_nodes", lambda _: None)
    return calls


@pytest.mark.parametrize("address", [None, "local", "variable", "h:6379"])
def test_a_cluster_is_started_unless_there_is_an_address(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    """That of the option, else of the variable; a started one has this process's cores."""
    monkeypatch.setattr(module, "probe_address", lambda _: None)
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
    """Whatever Ray raises is an error with a remedy, and the process is as it was."""
    handler, environment = signal.getsignal(signal.SIGTERM), dict(os.environ)
    with pytest.raises(SpecError, match=r"'auto': no cluster runs on this machine"):
        module.connect("auto")
    assert started[-1] == {"address": "left"}
    assert signal.getsignal(signal.SIGTERM) == handler
    assert dict(os.environ) == environment


def test_every_node_is_asked_for_its_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """On that node and no other; one that starts no process is named."""
    ray = pytest.importorskip("ray")
    replies: dict[str, Any] = {FIRST: (__version__, PYTHON), SECOND: (__version__, PYTHON)}

    class Task:
        """A task of Ray's."""

        def options(self, *, num_cpus: float, scheduling_strategy: Any) -> Task:
            """As Ray's; the node has to have no core left."""
            assert num_cpus == 0
            assert not scheduling_strategy.soft
            self.node_id = scheduling_strategy.node_id
            return self

        def remote(self) -> str:
            """The node."""
            return str(self.node_id)

    def get(node_id: str, timeout: float) -> Any:
        assert timeout > 1
        if isinstance(replies[node_id], Exception):
            raise replies[node_id]
        return replies[node_id]

    monkeypatch.setattr(ray, "remote", lambda _: Task())
    monkeypatch.setattr(ray, "get", get)
    nodes = [Node(FIRST, "node1", 1, 0), Node(SECOND, "node2", 1, 0)]
    module._check_nodes(nodes)
    replies[SECOND] = ("0.0.0", PYTHON)
    with pytest.raises(SpecError, match=r"^node node2 has pytest-cepbench 0\.0\.0 on"):
        module._check_nodes(nodes)
    replies[FIRST] = ray.exceptions.GetTimeoutError("no\n reply")
    with pytest.raises(SpecError, match=r"^node node1 starts no process: no reply"):
        module._check_nodes(nodes)


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
