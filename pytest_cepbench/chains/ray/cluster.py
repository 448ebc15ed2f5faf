"""The Ray cluster of a run: found or started, divided among models, left without a trace.

Ray itself compares the versions of Ray and Python when a node or this process joins a cluster.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import MissingDependencyError, SpecError, error_line
from pytest_cepbench.models.devices import usable_cores

_MOST_PLACES = 16  # where there are no accelerators

_CONNECT_SECONDS = 3.0  # for a port to answer

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
    return ", ".join([*map(str, nodes[:8]), *["..."] * (len(nodes) > 8)])


@dataclass
class Cluster:
    """A connection to a cluster.

    address: of its head.
    own: whether it was started for this run.
    joined: whether it was joined for this run: the process had no connection before.
    """

    address: str
    own: bool = False
    joined: bool = False
    _seen: dict[str, Node] = field(default_factory=dict, repr=False)

    def nodes(self) -> list[Node]:
        """The nodes that are alive, by name."""
        import ray

        alive = []
        for node in ray.nodes():  # type: ignore[no-untyped-call]
            if node["Alive"]:
                size = (node["Resources"].get(unit, 0.0) for unit in ("CPU", "GPU"))
                alive.append(Node(node["NodeID"], node["NodeManagerAddress"], *size))
        self._seen |= {node.id: node for node in alive}
        return sorted(alive, key=lambda node: (node.name, node.id))

    def lost_nodes(self) -> list[Node]:
        """Those that were alive before and are not any more."""
        alive = {node.id for node in self.nodes()}
        return [node for node in self._seen.values() if node.id not in alive]

    def close(self) -> None:
        """Leave the cluster, unless the process was there before; end one started for this run."""
        if self.joined:
            import ray

            self.joined = False
            with suppress(Exception), _undisturbed():
                ray.shutdown()

    def __str__(self) -> str:
        nodes = self.nodes()
        count = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        origin = "started for this run" if self.own else f"at {self.address}"
        return f"Ray cluster {origin}, {count}: {list_nodes(nodes)}"


def connect(address: str | None) -> Cluster:
    """Connect to the cluster of an address, `RAY_ADDRESS` where it is None, else start one here.

    A connection that the process has already is used. Raises MissingDependencyError without Ray,
    SpecError where Ray cannot connect.
    """
    for name, value in _RAY_VARIABLES.items():
        os.environ.setdefault(name, value)
    try:
        with _undisturbed():
            import ray
    except ImportError as error:
        raise MissingDependencyError(
            f"--cep-engine=ray needs ray, which cannot be imported ({error}): "
            'pip install "pytest-cepbench[ray]"'
        ) from error
    address = address or os.environ.get("RAY_ADDRESS") or None
    joined = not ray.is_initialized()
    own = joined and address in (None, "local")
    if joined:
        options: dict[str, Any] = {"address": address}
        if own:
            options = {"address": "local", "num_cpus": usable_cores(), "include_dashboard": False}
        try:
            host, colon, port = (address or "").rpartition(":")
            if host.startswith("ray:"):
                raise ValueError("Ray Client is not supported")  # noqa: TRY301 - told as below
            if colon and port.isdecimal():  # Ray 2.60 tries a silent port for ten minutes
                socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
            with _undisturbed():
                ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            # Ray raises what it comes across, gRPC's errors among it: all of it means no cluster.
            with suppress(Exception), _undisturbed():
                ray.shutdown()
            option = f"--cep-ray-address {address!r}" if address else "--cep-engine=ray"
            raise SpecError(
                f"{option}: Ray cannot connect ({type(error).__name__}: {error_line(error)}). Run "
                "pytest on a node of the cluster, with its versions of Ray and Python, and give "
                "the head's HOST:PORT, 6379 as a rule, or auto; or leave the option out to start a "
                "cluster for this run"
            ) from error
    cluster = Cluster(ray.get_runtime_context().gcs_address, own, joined)
    cluster.nodes()  # those that leave are known by it
    return cluster


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep Ray's warnings, log lines and handler of SIGTERM from the run.

    Under `-W error` warnings would end it, and pytest's handler has to.
    """
    logger, handler = logging.getLogger("ray"), signal.getsignal(signal.SIGTERM)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def same_imports() -> dict[str, Any]:
    """Ray's environment of processes that find the modules of this one, where a node has them."""
    paths = dict.fromkeys(str(Path(path).absolute()) for path in sys.path)
    return {"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}}


# -- how it is divided among the models of a run ---------------------------------------------------


@dataclass(frozen=True)
class Allocation:
    """The resources of a role's pool.

    actors: how many processes.
    gpus, cpus: of each actor, as Ray counts them.
    threads: CPU threads of each model; None leaves the library's choice.
    shared: whether its actors share their places with those of other roles, one of each to a place.
    """

    actors: int
    gpus: float
    cpus: float
    threads: int | None
    shared: bool = False

    def __str__(self) -> str:
        parts = [
            f"{count:g} {what}" for count, what in ((self.gpus, "GPU"), (self.cpus, "CPU")) if count
        ]
        return f"{self.actors} x {' + '.join(parts) or 'nothing'}"


def allocate(
    roles: Sequence[str], requests: Mapping[str, Mapping[str, float]], nodes: Sequence[Node]
) -> dict[str, Allocation]:
    """The resources of each role's pool.

    roles: of every model of the run; several may have the same.
    requests: by role, what the user asked for: how many actors, and gpus of each. A role without
        one has an actor on each accelerator that they leave, with an equal part of it; without
        accelerators likewise of the cores.
    Raises SpecError for more accelerators than there are, or than a node has for one actor, and
    where none is left.
    """
    asked = {role: requests.get(role, {}) for role in roles}
    devices = sum(node.gpus for node in nodes)
    taken = sum(request.get("actors", 1) * request.get("gpus", 0) for request in asked.values())
    left = int(devices - taken)
    sharing = sum("gpus" not in asked[role] for role in roles)
    if taken > devices or (sharing and devices and not left):
        raise SpecError(
            f"--cep-ray-pool: the pools ask for {taken:g} GPUs, and the cluster has {devices:g} "
            f"for all roles ({list_nodes(nodes)}): ask for less, or give gpus=0"
        )
    largest = max((node.gpus for node in nodes), default=0.0)
    for role, request in asked.items():
        if request.get("gpus", 0) > largest:
            raise SpecError(
                f"--cep-ray-pool: an actor of the {role} pool asks for {request['gpus']:g} GPUs, "
                f"and no node has more than {largest:g} ({list_nodes(nodes)}): ask for less"
            )
    # Cores of a place: those beside a device, else as many as make for at most so many places.
    cores = max([1.0, *(node.cpus * len(nodes) // _MOST_PLACES for node in nodes)])
    places = left or min(_MOST_PLACES, sum(int(node.cpus // cores) for node in nodes)) or 1
    if devices:
        cores = min(node.cpus / node.gpus for node in nodes if node.gpus)
    pools = {}
    for role, request in asked.items():
        actors = int(request.get("actors", places))
        thinner = min(1.0, places / actors)  # more of them than places: each has less of one
        share = thinner / sharing if devices and sharing else 0.0
        gpus = request.get("gpus", int(1000 * share) / 1000)
        cpus = min(1.0, int(1000 * cores * thinner / len(roles)) / 1000)
        # As many threads as cores: more make all of them slower.
        threads = None if gpus else max(1, int(cores * thinner))
        pools[role] = Allocation(actors, gpus, cpus, threads, not request)
    return pools


def reserve(pools: Sequence[Allocation]) -> Any:
    """A placement group of Ray's, with a bundle for an actor of each pool; None for no resources.

    Pools that share places share it: Ray would put as many of one role on a device as fit there.
    """
    from ray.util.placement_group import placement_group

    # As Ray counts: in ten-thousandths, so that thirds do not come to more than one.
    parts = {"GPU": sum(pool.gpus for pool in pools), "CPU": sum(pool.cpus for pool in pools)}
    bundle = {name: round(part, 4) for name, part in parts.items() if part}
    return placement_group([bundle] * pools[0].actors, "SPREAD") if bundle else None


def is_reserved(group: Any) -> bool:
    """Whether all places of a placement group are there; not while one waits for a lost node."""
    from ray.util.placement_group import placement_group_table

    return group is None or bool(placement_group_table(group)["state"] == "CREATED")
