"""Finding a cluster, or starting one here."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pytest_cepbench.chains.ray.cluster import Cluster
from pytest_cepbench.chains.ray.logging_setup import (
    keep_signals,
    prepare,
    put_back,
    silence_ray,
    silenced_ray,
)
from pytest_cepbench.chains.ray.version_check import check_nodes
from pytest_cepbench.errors import MissingDependencyError, SpecError
from pytest_cepbench.models.system_limits import usable_cores

_PROBE = 3.0  # seconds for a port to answer

_OPTION = "--cep-ray-address"


def connect(address: str | None) -> Cluster:
    """Connect to the cluster of an address, `RAY_ADDRESS` where it is None, else start one here.

    A connection that the process has already is used. Raises MissingDependencyError without Ray,
    SpecError for an address that does not answer, and where versions differ.
    """
    undo = prepare()
    try:
        ray = _import()
        if ray.is_initialized():
            cluster = Cluster(ray.get_runtime_context().gcs_address, borrowed=True)
        else:
            cluster = _connect(ray, address or os.environ.get("RAY_ADDRESS") or None, undo)
    except BaseException:
        put_back(undo)
        raise
    cluster.undo = undo
    try:
        check_nodes(cluster.nodes())
    except BaseException:
        cluster.close()
        raise
    return cluster


def _import() -> Any:
    try:
        with silenced_ray():
            import ray
    except ImportError as error:
        msg = (
            f"--cep-engine=ray needs ray, which cannot be imported ({error}): "
            'pip install "pytest-cepbench[ray]"'
        )
        raise MissingDependencyError(msg) from error
    return ray


def _connect(ray: Any, address: str | None, undo: list[Callable[[], Any]]) -> Cluster:
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
    undo.append(keep_signals())
    try:
        with silenced_ray():
            ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        # Ray raises what it comes across, gRPC's errors among it: all of it means no cluster.
        with suppress(Exception), silenced_ray():
            ray.shutdown()
        raise SpecError(_explained(address, error)) from error
    silence_ray()
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
