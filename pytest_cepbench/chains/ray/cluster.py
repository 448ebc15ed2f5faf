"""The cluster: found or started, asked what it has, left again."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_cepbench import __version__
from pytest_cepbench.errors import MissingDependencyError, SpecError
from pytest_cepbench.models.host import usable_cores

_PROBE = 3.0  # seconds for a port to answer

_GREETING = 60.0  # seconds for a node to start a process and say which versions it has

# Ray is told of these before it starts; what the user has set stands.
_SETTINGS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # warns on stderr otherwise, an error under -W error
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_gcs_server_request_timeout_seconds": "5",
}

_OPTION = "--cep-ray-address"


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, as Ray sees it."""

    id: str
    name: str
    cpus: float
    gpus: float

    def __str__(self) -> str:
        return f"{self.name} ({self.cpus:g} CPUs, {self.gpus:g} GPUs)"


@dataclass
class Cluster:
    """A connection to a cluster, closed once.

    address: where it is. own: started for this run. borrowed: was connected before, and stays so.
    """

    address: str
    own: bool = False
    borrowed: bool = False
    _restore: list[Any] = field(default_factory=list, repr=False)
    _seen: set[str] = field(default_factory=set, repr=False)

    def nodes(self) -> list[Node]:
        """Those that are alive, by name."""
        import ray

        found = [
            Node(
                one["NodeID"],
                one["NodeManagerAddress"],
                one["Resources"].get("CPU", 0.0),
                one["Resources"].get("GPU", 0.0),
            )
            for one in ray.nodes()  # type: ignore[no-untyped-call]
            if one["Alive"]
        ]
        self._seen.update(node.id for node in found)
        return sorted(found, key=lambda node: (node.name, node.id))

    def has_lost_nodes(self) -> bool:
        """Whether one that was seen is not there any more."""
        return len(self.nodes()) < len(self._seen)

    def is_alive(self, node_id: str) -> bool:
        """Whether a node is."""
        return any(node.id == node_id for node in self.nodes())

    def close(self) -> None:
        """Leave the cluster; one that was started for this run ends."""
        if not self.borrowed:
            import ray

            with _calm():
                ray.shutdown()
        for undo in reversed(self._restore):
            undo()
        self._restore.clear()

    def __str__(self) -> str:
        nodes = self.nodes()
        shown = ", ".join(map(str, nodes[:8])) + (", ..." if len(nodes) > 8 else "")
        many = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        what = "started for this run" if self.own else f"at {self.address}"
        return f"Ray cluster {what}, {many}: {shown}"


def connect(address: str | None) -> Cluster:
    """Connect to the cluster of an address, `RAY_ADDRESS` where it is None, else start one here.

    A connection that the process has already is used. Raises MissingDependencyError without Ray,
    SpecError for an address that does not answer, and where versions differ.
    """
    restore = _set(_SETTINGS)
    try:
        ray = _import()
        if ray.is_initialized():
            cluster = Cluster(ray.get_runtime_context().gcs_address, borrowed=True)
        else:
            cluster = _connect(ray, address or os.environ.get("RAY_ADDRESS") or None, restore)
    except BaseException:
        for undo in reversed(restore):
            undo()
        raise
    cluster._restore = restore  # noqa: SLF001 - made here
    try:
        _check_versions(cluster)
    except BaseException:
        cluster.close()
        raise
    return cluster


def _import() -> Any:
    try:
        with _calm():
            import ray
    except ImportError as error:
        msg = (
            f"--cep-engine=ray needs ray, which cannot be imported ({error}): "
            'pip install "pytest-cepbench[ray]"'
        )
        raise MissingDependencyError(msg) from error
    return ray


def _connect(ray: Any, address: str | None, restore: list[Any]) -> Cluster:
    own = address in (None, "local")
    if not own:
        assert address is not None
        _probe(address)
    options: dict[str, Any] = (
        {"address": "local", "num_cpus": usable_cores(), "include_dashboard": False}
        | {"_metrics_export_port": None}
        if own
        else {"address": address}
    )
    restore.append(_keep_signals())
    try:
        with _calm():
            ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        # Ray raises what it comes across, gRPC's errors among it: all of it means no cluster.
        with suppress(Exception), _calm():
            ray.shutdown()
        raise SpecError(_explained(address, error)) from error
    _hush(ray)
    return Cluster(ray.get_runtime_context().gcs_address, own=own)


def _probe(address: str) -> None:
    """Raise SpecError where nobody listens: Ray itself would try for minutes."""
    if address == "auto":
        return
    if address.startswith("ray://"):
        msg = (
            f"{_OPTION} {address!r}: Ray Client is not supported; run pytest on a node of the cluster "
            "and give the head's HOST:PORT, 6379 as a rule, or auto"
        )
        raise SpecError(msg)
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 1 << 16):
        msg = f"{_OPTION} {address!r}: HOST:PORT of the cluster's head is expected, or auto"
        raise SpecError(msg)
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PROBE) as line:
            speaks = "RAY_USE_TLS" in os.environ or _speaks_grpc(line)
    except OSError as error:
        why = error.strerror or str(error)
        msg = (
            f"{_OPTION} {address!r} does not answer ({why}): start the cluster there (ray start --head "
            f"--port={port}), or leave the option out to start one for this run"
        )
        raise SpecError(msg) from error
    if not speaks:
        msg = f"{_OPTION} {address!r}: what answers there is no Ray cluster; its port is 6379 as a rule"
        raise SpecError(msg)


def _speaks_grpc(line: socket.socket) -> bool:
    """Whether the other end greets as HTTP/2 servers do: with a frame of settings."""
    line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    try:
        head = line.recv(9)
    except TimeoutError:
        return False
    return head[3:4] == b"\4"


def _explained(address: str | None, error: Exception) -> str:
    """What Ray raised while it connected, in a line that says what to do."""
    words = " ".join(str(error).split())
    place = f"{_OPTION} {address!r}" if address else "--cep-engine=ray"
    if "Version mismatch" in words:
        mine = f"ray {sys.modules['ray'].__version__} and Python {sys.version.split()[0]}"
        theirs = words.partition("started with: ")[2].partition("This process")[0].strip()
        return (
            f"{place}: the cluster was started with {theirs}, this process has {mine}: install the "
            "same versions here and on all nodes"
        )
    if address == "auto":
        return f"{place}: no cluster runs on this machine: start one with ray start --head, or give HOST:PORT"
    if "raylet" in words or "node_ip_address" in words:
        return (
            f"{place}: this machine is no node of that cluster: run pytest on one of its nodes, the "
            "head for instance"
        )
    return f"{place}: Ray could not connect ({type(error).__name__}: {words[:200]})"


def greeting(paths: list[str], folder: str) -> Any:
    """A function that says which versions a node has; sent as it is, for it must run without us."""

    def greet() -> tuple[str, str]:
        import os as there
        import platform
        import sys as its
        from pathlib import Path as Its

        if Its(folder).is_dir():
            there.chdir(folder)
        its.path.extend(path for path in paths if path not in its.path and Its(path).exists())
        try:
            from pytest_cepbench import __version__ as found
        except ImportError as error:
            found = f"not importable: {error}"
        return found, platform.python_version()

    return greet


def offered_paths() -> list[str]:
    """Where this process imports from: offered to actors, behind their own."""
    return list(
        dict.fromkeys([str(Path.cwd()), *(str(Path(path).absolute()) for path in sys.path)])
    )


def _check_versions(cluster: Cluster) -> None:
    """Raise SpecError naming the first node whose pytest-cepbench or Python is another one."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = cluster.nodes()
    task = ray.remote(greeting(offered_paths(), str(Path.cwd())))
    with _calm():
        asked = [
            task.options(
                num_cpus=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            ).remote()
            for node in nodes
        ]
        for node, ref in zip(nodes, asked, strict=True):
            try:
                version, python = ray.get(ref, timeout=_GREETING)
            except ray.exceptions.RayError as error:
                msg = f"node {node.name} starts no process: {' '.join(str(error).split())[:200]}"
                raise SpecError(msg) from error
            check_versions(node.name, version, python)


def check_versions(node: str, version: str, python: str) -> None:
    """Raise SpecError where a node has another pytest-cepbench, or another minor of Python."""
    here = ".".join(map(str, sys.version_info[:2]))
    if version != __version__ or python.rpartition(".")[0] != here:
        msg = (
            f"node {node} has pytest-cepbench {version} on Python {python}, this process {__version__} "
            f"on Python {sys.version.split()[0]}: install the same on all nodes, and here"
        )
        raise SpecError(msg)


# -- quiet -------------------------------------------------------------------------------------------


@contextmanager
def _calm() -> Iterator[None]:
    """Keep Ray's warnings and log lines to itself: under `-W error` they would end the run."""
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _hush(ray: Any) -> None:
    """Have the logs of raylets that die not printed among the test's own lines; we tell of deaths."""
    worker = sys.modules.get("ray._private.worker")
    with suppress(Exception):  # nothing of this is promised by Ray; without it there are more lines
        worker.print_worker_logs = lambda *_, **__: None  # type: ignore[union-attr]
    del ray


def _set(variables: Mapping[str, str]) -> list[Any]:
    """Set variables that are not, and return what undoes it."""
    undo: list[Any] = []
    for name, value in variables.items():
        if name not in os.environ:
            os.environ[name] = value
            undo.append(lambda name=name: os.environ.pop(name, None))
    if "RAY_AUTH_MODE" not in os.environ:  # Ray sets it for clusters with a token
        undo.append(lambda: os.environ.pop("RAY_AUTH_MODE", None))
    return undo


def _keep_signals() -> Any:
    """What puts back the handler of SIGTERM, which Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    handler = signal.getsignal(signal.SIGTERM)
    return lambda: signal.signal(signal.SIGTERM, handler)
