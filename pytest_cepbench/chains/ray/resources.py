"""Resources of the cluster: how many actors a role has, how much each of them, and where.

The places of a pool are reserved as a placement group of Ray's before the first is taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, isclose
from typing import Any

from pytest_cepbench.chains.ray.cluster import Node, list_nodes
from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import ModelSpec

_OPTION = "--cep-ray-pool"

_MOST_ACTORS = 16  # of a role without a request, where there are no accelerators

_PARTS = 1000  # of a CPU or GPU; finer requests are not made

Place = tuple[RoleName, ModelSpec]
"""A role, and the spec of its model."""


@dataclass(frozen=True)
class ResourceRequest:
    """What the user asked for a role's pool; None leaves it to `allocate`.

    actors: how many processes.
    gpus, cpus: of each actor; parts are allowed.
    """

    actors: int | None = None
    gpus: float | None = None
    cpus: float | None = None


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


def check_requests(requests: Mapping[str, ResourceRequest], nodes: Sequence[Node]) -> None:
    """Raise SpecError for a pool that the cluster can never hold, so that no run waits for it."""
    for role, request in requests.items():
        actors, gpus, cpus = request.actors or 1, request.gpus or 0.0, request.cpus or 0.0
        whole = f"{_OPTION} {role}: {actors} actors of {gpus:g} GPUs and {cpus:g} CPUs"
        _check(whole, actors * gpus, actors * cpus, nodes)
        if not any(node.gpus >= gpus and node.cpus >= cpus for node in nodes):
            raise SpecError(f"{whole}: no node has so much for one actor; {_available(nodes)}")


def allocate(
    roles: Sequence[str], requests: Mapping[str, ResourceRequest], nodes: Sequence[Node]
) -> dict[str, Allocation]:
    """Divide the cluster among roles.

    roles: of every model of the run; several may have the same.
    requests: by role. A role without one has an actor on each accelerator, with an equal part of
    what the requests leave of it; without accelerators likewise of the cores.
    Raises SpecError where requests leave nothing, or ask for more than there is.
    """
    named = {role: requests.get(role, ResourceRequest()) for role in roles}
    left = _subtract(nodes, [named[role] for role in roles])
    open_gpus = [role for role in roles if named[role].gpus is None]
    open_cpus = [role for role in roles if named[role].cpus is None]
    devices = sum(int(node.gpus) for node in left)
    cores, cpu_places = _cpu_places(left)
    count = devices or cpu_places
    if devices:
        cores = min(node.cpus / node.gpus for node in left if node.gpus >= 1)
    allocations = {}
    for role, request in named.items():
        actors = request.actors or max(1, count)
        thinner = min(1.0, count / actors)  # more of them than devices: each has less of one
        no_gpus_named = request.gpus is None
        gpus = _part(thinner, open_gpus) if no_gpus_named and devices else request.gpus or 0.0
        cpus = _part(cores * thinner, open_cpus) if request.cpus is None else request.cpus
        if no_gpus_named and not devices and any(node.gpus for node in nodes):
            raise SpecError(
                f"{_OPTION} leaves no GPU for the {role}: ask for less, or give {role}:gpus=0"
            )
        threads = None if gpus else _threads(request, cores * thinner)
        shared = request == ResourceRequest()
        allocations[role] = Allocation(actors, gpus, cpus, threads, shared)
    together = ", ".join(f"{role} {pool}" for role, pool in allocations.items())
    _check(
        f"{_OPTION}: the pools together ({together})",
        sum(allocations[role].actors * allocations[role].gpus for role in roles),
        sum(allocations[role].actors * allocations[role].cpus for role in roles),
        nodes,
    )
    return allocations


def _subtract(nodes: Sequence[Node], requests: Sequence[ResourceRequest]) -> list[Node]:
    """What the nodes have left when every actor with a request has its place."""
    left = list(nodes)
    for request in requests:
        gpus, cpus = request.gpus or 0.0, request.cpus or 0.0
        if not (gpus or cpus) or not left:
            continue
        for _ in range(request.actors or 1):
            node = max(left, key=lambda node: (node.gpus, node.cpus) if gpus else (node.cpus,))
            rest = replace(node, gpus=max(0.0, node.gpus - gpus), cpus=max(0.0, node.cpus - cpus))
            left[left.index(node)] = rest
    return left


def _cpu_places(nodes: Sequence[Node]) -> tuple[float, int]:
    """Cores of a place without accelerator, and how many such places the nodes have."""
    most = max((int(node.cpus) for node in nodes), default=0)
    for cores in range(1, most + 1):
        count = sum(int(node.cpus // cores) for node in nodes)
        if 1 <= count <= _MOST_ACTORS:
            return float(cores), count
    if most:  # many nodes of a core each
        return 1.0, _MOST_ACTORS
    parts = [node.cpus for node in nodes if node.cpus]
    return min(parts, default=0.0), min(_MOST_ACTORS, len(parts))


def _part(available: float, roles: Sequence[str]) -> float:
    return min(1.0, floor(available / len(roles) * _PARTS) / _PARTS)


def _threads(request: ResourceRequest, cores: float) -> int:
    """As many as its cores, or those of its place: more make all of them slower."""
    variable = os.environ.get("OMP_NUM_THREADS", "")
    if variable.isdecimal() and int(variable):
        return int(variable)
    return max(1, int(request.cpus if request.cpus is not None else cores))


def _check(what: str, gpus: float, cpus: float, nodes: Sequence[Node]) -> None:
    """Raise SpecError where the nodes together have less than that. what: opens the message."""
    for asked, there, unit in (
        (gpus, sum(node.gpus for node in nodes), "GPUs"),
        (cpus, sum(node.cpus for node in nodes), "CPUs"),
    ):
        if asked > there and not isclose(asked, there):
            raise SpecError(
                f"{what}: that is {asked:g} {unit}, the cluster has {there:g}; {_available(nodes)}"
            )


def _available(nodes: Sequence[Node]) -> str:
    return f"there are {list_nodes(nodes)}: ask for less, or add nodes"


# -- placement groups ----------------------------------------------------------------------------


def reserve(places: Sequence[Place], allocations: Mapping[str, Allocation]) -> dict[Place, Any]:
    """Reserve the places of every model's actors: placement groups of Ray's, for this run alone.

    A pool has one group, with a bundle for each actor. Models without a request share a group, one
    actor of each in a bundle: Ray itself would put as many of one role on a device as fit there.
    When a node dies, new actors wait for these same places, and do not take those of another role's
    actors. None stands for a pool of actors without resources.
    """
    sharing = [place for place in places if allocations[place[0]].shared]
    groups: dict[Place, Any] = {}
    if sharing:
        pools = [allocations[role] for role, _ in sharing]
        gpus, cpus = _sum(pool.gpus for pool in pools), _sum(pool.cpus for pool in pools)
        groups |= dict.fromkeys(sharing, _create_group(pools[0].actors, gpus, cpus))
    for place in places:
        pool = allocations[place[0]]
        if not pool.shared:
            groups[place] = _create_group(pool.actors, pool.gpus, pool.cpus)
    return groups


def _create_group(actors: int, gpus: float, cpus: float) -> Any:
    from ray.util.placement_group import placement_group

    bundle = {name: part for name, part in (("GPU", gpus), ("CPU", cpus)) if part}
    return placement_group([bundle] * actors) if bundle else None


def _sum(parts: Iterable[float]) -> float:
    """As Ray counts: in ten-thousandths, so that thirds do not come to more than one."""
    return round(sum(parts), 4)
