"""The Ray cluster of a run: found or started, its nodes checked, left again without a trace."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_cepbench._version import __version__
from pytest_cepbench.errors import MissingDependencyError, SpecError, error_line
from pytest_cepbench.escapes import mask_secrets
from pytest_cepbench.models.devices import usable_cores

_ADDRESS_OPTION = "--cep-ray-address"

_PROBE_SECONDS = 3.0  # for a port to answer

_VERSION_SECONDS = 60.0  # for a node to start a process and report its versions

_MOST_SHOWN = 8  # nodes in a message

# Set before Ray starts; a value that the user has set stands.
_RAY_VARIABLES = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # warns on stderr otherwise, an error under -W error
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_gcs_server_request_timeout_seconds": "5",
}


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, as Ray sees it.

    id: Ray's.
    name: its address, for people.
    cpus, gpus: its resources.
    """

    id: str
    name: str
    cpus: float
    gpus: float

    def __str__(self) -> str:
        return f"{self.name} ({self.cpus:g} CPUs, {self.gpus:g} GPUs)"


def list_nodes(nodes: Sequence[Node]) -> str:
    """The nodes in a line, the first eight by name and size."""
    shown = ", ".join(map(str, nodes[:_MOST_SHOWN]))
    return shown + (", ..." if len(nodes) > _MOST_SHOWN else "")


@dataclass
class Cluster:
    """A connection to a cluster, closed once.

    address: of its head.
    own: whether it was started for this run.
    borrowed: whether this process was connected before, and stays so.
    undo: puts this process back as it was before it was connected.
    """

    address: str
    own: bool = False
    borrowed: bool = False
    undo: ExitStack = field(default_factory=ExitStack, repr=False)
    _seen: dict[str, Node] = field(default_factory=dict, repr=False)

    def nodes(self) -> list[Node]:
        """The nodes that are alive, by name."""
        import ray

        alive = [
            Node(
                node["NodeID"],
                node["NodeManagerAddress"],
                node["Resources"].get("CPU", 0.0),
                node["Resources"].get("GPU", 0.0),
            )
            for node in ray.nodes()  # type: ignore[no-untyped-call]
            if node["Alive"]
        ]
        self._seen |= {node.id: node for node in alive}
        return sorted(alive, key=lambda node: (node.name, node.id))

    def lost_nodes(self) -> list[Node]:
        """Those that were alive before and are not any more."""
        alive = {node.id for node in self.nodes()}
        return [node for node in self._seen.values() if node.id not in alive]

    def close(self) -> None:
        """Leave the cluster; end it where it was started for this run."""
        if not self.borrowed:
            import ray

            with silenced_ray():
                ray.shutdown()
        self.undo.close()

    def __str__(self) -> str:
        nodes = self.nodes()
        count = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        origin = "started for this run" if self.own else f"at {self.address}"
        return f"Ray cluster {origin}, {count}: {list_nodes(nodes)}"


# -- connecting ----------------------------------------------------------------------------------


def connect(address: str | None) -> Cluster:
    """Connect to the cluster of an address, `RAY_ADDRESS` where it is None, else start one here.

    A connection that the process has already is used. Raises MissingDependencyError without Ray,
    SpecError for an address that does not answer, and where versions differ.
    """
    with ExitStack() as undo:  # of what fails below
        _set_variables(undo)
        ray = _import_ray()
        if ray.is_initialized():
            cluster = Cluster(ray.get_runtime_context().gcs_address, borrowed=True)
        else:
            cluster = _connect(ray, address or os.environ.get("RAY_ADDRESS") or None, undo)
        cluster.undo = undo.pop_all()
    try:
        _check_nodes(cluster.nodes())
    except BaseException:
        cluster.close()
        raise
    return cluster


def _import_ray() -> Any:
    try:
        with silenced_ray():
            import ray
    except ImportError as error:
        raise MissingDependencyError(
            f"--cep-engine=ray needs ray, which cannot be imported ({error}): "
            'pip install "pytest-cepbench[ray]"'
        ) from error
    return ray


def _connect(ray: Any, address: str | None, undo: ExitStack) -> Cluster:
    own = address in (None, "local")
    options: dict[str, Any] = {"address": address}
    if own:
        options = {"address": "local", "num_cpus": usable_cores(), "include_dashboard": False}
        options["_metrics_export_port"] = None
    elif address is not None:
        probe_address(address)
    if threading.current_thread() is threading.main_thread():  # Ray replaces the handler
        undo.callback(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    try:
        with silenced_ray():
            ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        # Ray raises what it comes across, gRPC's errors among it: all of it means no cluster.
        with suppress(Exception), silenced_ray():
            ray.shutdown()
        raise SpecError(explain_connection_error(address, error)) from error
    _silence_raylet_logs()
    return Cluster(ray.get_runtime_context().gcs_address, own=own)


def probe_address(address: str) -> None:
    """Raise SpecError where an address is malformed or silent: Ray would try for minutes."""
    if address == "auto":
        return
    if address.startswith("ray://"):
        raise SpecError(
            f"{_ADDRESS_OPTION} {address!r}: Ray Client is not supported; run pytest on a node of "
            "the cluster and give the head's HOST:PORT, 6379 as a rule, or auto"
        )
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise SpecError(
            f"{_ADDRESS_OPTION} {address!r}: HOST:PORT of the cluster's head is expected, or auto"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS) as connection:
            speaks = "RAY_USE_TLS" in os.environ or _speaks_grpc(connection)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError(
            f"{_ADDRESS_OPTION} {address!r} does not answer ({reason}): start the cluster there "
            f"(ray start --head --port={port}), or leave the option out to start one for this run"
        ) from error
    if not speaks:
        raise SpecError(
            f"{_ADDRESS_OPTION} {address!r}: what answers there is no Ray cluster; its port is "
            "6379 as a rule"
        )


def _speaks_grpc(connection: socket.socket) -> bool:
    """Whether the other end greets as HTTP/2 servers do: with a frame of settings."""
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    try:
        head = connection.recv(9)
    except TimeoutError:
        return False
    return head[3:4] == b"\4"


def explain_connection_error(address: str | None, error: Exception) -> str:
    """Say in one line what Ray raised while it connected, and what to do."""
    text = " ".join(mask_secrets(str(error)).split())
    option = f"{_ADDRESS_OPTION} {address!r}" if address else "--cep-engine=ray"
    if "Version mismatch" in text:
        mine = f"ray {sys.modules['ray'].__version__} and Python {sys.version.split()[0]}"
        theirs = text.partition("started with: ")[2].partition("This process")[0].strip()
        return (
            f"{option}: the cluster was started with {theirs}, this process has {mine}: install "
            "the same versions here and on all nodes"
        )
    if address == "auto":
        return (
            f"{option}: no cluster runs on this machine: start one with ray start --head, or give "
            "HOST:PORT"
        )
    if "raylet" in text or "node_ip_address" in text:
        return (
            f"{option}: this machine is no node of that cluster: run pytest on one of its nodes, "
            "the head for instance"
        )
    return f"{option}: Ray could not connect ({type(error).__name__}: {text[:200]})"


# -- nodes ---------------------------------------------------------------------------------------

VERSIONS = (__version__, sys.version.split()[0])
"""Of pytest-cepbench and Python in this process."""


def other_versions(node: str, there: tuple[str, str], here: tuple[str, str]) -> str:
    """Say that a node has another pytest-cepbench, or another minor version of Python.

    node: its name. there, here: as `VERSIONS`, on the node and in the driver. Empty if they agree.
    """
    if there[0] == here[0] and there[1].rpartition(".")[0] == here[1].rpartition(".")[0]:
        return ""
    return (
        f"node {node} has pytest-cepbench {there[0]} on Python {there[1]}, this process {here[0]} "
        f"on Python {here[1]}: install the same everywhere"
    )


def _check_nodes(nodes: Sequence[Node]) -> None:
    """Raise SpecError naming the first node whose pytest-cepbench or Python is another one."""
    import ray

    with silenced_ray():
        replies = [start_on_node(node.id, version_task()) for node in nodes]
        for node, reply in zip(nodes, replies, strict=True):
            try:
                versions = ray.get(reply, timeout=_VERSION_SECONDS)
            except ray.exceptions.RayError as error:
                raise SpecError(
                    f"node {node.name} starts no process: {error_line(error)}"
                ) from error
            if mismatch := other_versions(node.name, versions, VERSIONS):
                raise SpecError(mismatch)


def version_task() -> Callable[[], tuple[str, str]]:
    """A function that gives the `VERSIONS` of a node, which may lack our package."""

    def report_versions() -> tuple[str, str]:
        import platform

        try:
            from pytest_cepbench import __version__ as version
        except ImportError as error:
            version = f"not importable: {error}"
        return version, platform.python_version()

    return report_versions


def start_on_node(node_id: str, task: Callable[[], Any]) -> Any:
    """Run a function on a node, beside its actors; returns Ray's reference to its result.

    task: sent by value, so it is defined inside a function, and imports what it uses.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    prepare = node_preparation()

    def run() -> Any:
        prepare()
        return task()

    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return ray.remote(run).options(num_cpus=0, scheduling_strategy=there).remote()


def node_preparation() -> Callable[[], None]:
    """What a process on a node does first: go to this process's folder, and import as it does.

    Both only where the node has such folders; its own come first. Sent by value, so it uses nothing
    of this module.
    """
    folder = str(Path.cwd())
    paths = list(dict.fromkeys([folder, *(str(Path(path).absolute()) for path in sys.path)]))

    def prepare() -> None:
        import os as node_os
        import sys as node_sys

        if node_os.path.isdir(folder):  # noqa: PTH112 - what is sent imports little
            node_os.chdir(folder)
        known = node_sys.path
        known.extend(p for p in paths if p not in known and node_os.path.exists(p))  # noqa: PTH110

    return prepare


# -- this process --------------------------------------------------------------------------------


@contextmanager
def silenced_ray() -> Iterator[None]:
    """Keep Ray's warnings and log lines to itself: under `-W error` they would end the run."""
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)


def _silence_raylet_logs() -> None:
    """Keep the logs of raylets that die out of the tests' lines; the report names losses."""
    worker = sys.modules.get("ray._private.worker")
    with suppress(Exception):  # nothing of this is promised by Ray; without it there are more lines
        worker.print_worker_logs = lambda *_, **__: None  # type: ignore[union-attr]


def _set_variables(undo: ExitStack) -> None:
    """Set the environment variables that Ray needs."""
    for name, value in _RAY_VARIABLES.items():
        if name not in os.environ:
            os.environ[name] = value
            undo.callback(os.environ.pop, name, None)
    if "RAY_AUTH_MODE" not in os.environ:  # Ray sets it for clusters with a token
        undo.callback(os.environ.pop, "RAY_AUTH_MODE", None)
