"""How many actors a role has, and how much of the cluster each of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, isclose

from pytest_cepbench.chains.ray.cluster import Node
from pytest_cepbench.errors import SpecError

_OPTION = "--cep-ray-pool"

_MOST = 16  # actors of a role that nobody asked for, where there are no accelerators

_FINEST = 1000  # parts of a CPU or GPU


@dataclass(frozen=True)
class ResourceRequest:
    """What the user said of a role's pool; None leaves it to us."""

    actors: int | None = None
    gpus: float | None = None
    cpus: float | None = None


@dataclass(frozen=True)
class Allocation:
    """A role's pool: so many actors, each with so many GPUs and CPUs, as Ray counts them.

    threads: CPU threads of each model; None leaves the library's choice. seated: whether its actors
    sit with those of other roles, one of each on a device.
    """

    actors: int
    gpus: float
    cpus: float
    threads: int | None
    seated: bool = False

    def __str__(self) -> str:
        parts = [
            f"{count:g} {what}" for count, what in ((self.gpus, "GPU"), (self.cpus, "CPU")) if count
        ]
        return f"{self.actors} x {' + '.join(parts) or 'nothing'}"


def check_wishes(wishes: Mapping[str, ResourceRequest], nodes: Sequence[Node]) -> None:
    """Raise SpecError for a pool that the cluster can never hold, so that nobody waits for it."""
    for role, wish in wishes.items():
        actors, gpus, cpus = wish.actors or 1, wish.gpus or 0.0, wish.cpus or 0.0
        whole = f"{_OPTION} {role}: {actors} actors of {gpus:g} GPUs and {cpus:g} CPUs"
        _check(whole, actors * gpus, actors * cpus, nodes)
        if not any(node.gpus >= gpus and node.cpus >= cpus for node in nodes):
            msg = f"{whole}: no node has so much for one actor; {_what_is_there(nodes)}"
            raise SpecError(msg)


def share_out(
    roles: Sequence[str], wishes: Mapping[str, ResourceRequest], nodes: Sequence[Node]
) -> dict[str, Allocation]:
    """The share of each role; roles: of every model that plays, several may have the same.

    Where nothing is said of a role it has an actor on each accelerator, and of that what is left for one
    role; without accelerators likewise of the cores. Raises SpecError where wishes leave nothing, or
    ask for more than there is.
    """
    named = {role: wishes.get(role, ResourceRequest()) for role in roles}
    left = _without(nodes, [named[role] for role in roles])
    open_gpus = [role for role in roles if named[role].gpus is None]
    open_cpus = [role for role in roles if named[role].cpus is None]
    devices = sum(int(node.gpus) for node in left)
    cores, seats = _seats(left)
    count = devices or seats
    if devices:
        cores = min(node.cpus / node.gpus for node in left if node.gpus >= 1)
    shares = {}
    for role, wish in named.items():
        actors = wish.actors or max(1, count)
        thinner = min(1.0, count / actors)  # more of them than devices: each has less of one
        gpus = _part(thinner, open_gpus) if wish.gpus is None and devices else wish.gpus or 0.0
        cpus = _part(cores * thinner, open_cpus) if wish.cpus is None else wish.cpus
        if wish.gpus is None and not devices and any(node.gpus for node in nodes):
            msg = f"{_OPTION} leaves no GPU for the {role}: ask for less, or give {role}:gpus=0"
            raise SpecError(msg)
        threads = None if gpus else _threads(wish, cores * thinner)
        shares[role] = Allocation(actors, gpus, cpus, threads, seated=wish == ResourceRequest())
    together = ", ".join(f"{role} {share}" for role, share in shares.items())
    _check(
        f"{_OPTION}: the pools together ({together})",
        sum(shares[role].actors * shares[role].gpus for role in roles),
        sum(shares[role].actors * shares[role].cpus for role in roles),
        nodes,
    )
    return shares


def _without(nodes: Sequence[Node], wishes: Sequence[ResourceRequest]) -> list[Node]:
    """What the nodes have left when every actor with a wish has its place."""
    left = list(nodes)
    for wish in wishes:
        gpus, cpus = wish.gpus or 0.0, wish.cpus or 0.0
        if not (gpus or cpus) or not left:
            continue
        for _ in range(wish.actors or 1):
            most = max(left, key=lambda node: (node.gpus, node.cpus) if gpus else (node.cpus,))
            fewer = replace(most, gpus=max(0.0, most.gpus - gpus), cpus=max(0.0, most.cpus - cpus))
            left[left.index(most)] = fewer
    return left


def _seats(nodes: Sequence[Node]) -> tuple[float, int]:
    """Cores of a seat, and how many of those the nodes have: as many as make no crowd."""
    most = max((int(node.cpus) for node in nodes), default=0)
    for cores in range(1, most + 1):
        count = sum(int(node.cpus // cores) for node in nodes)
        if 1 <= count <= _MOST:
            return float(cores), count
    if most:  # many nodes of a core each
        return 1.0, _MOST
    parts = [node.cpus for node in nodes if node.cpus]
    return min(parts, default=0.0), min(_MOST, len(parts))


def _part(there: float, roles: Sequence[str]) -> float:
    return min(1.0, floor(there / len(roles) * _FINEST) / _FINEST)


def _threads(wish: ResourceRequest, cores: float) -> int:
    """As many as its cores, or those of its seat: more make all of them slower."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    if said.isdecimal() and int(said):
        return int(said)
    return max(1, int(wish.cpus if wish.cpus is not None else cores))


def _check(what: str, gpus: float, cpus: float, nodes: Sequence[Node]) -> None:
    for asked, there, unit in (
        (gpus, sum(node.gpus for node in nodes), "GPUs"),
        (cpus, sum(node.cpus for node in nodes), "CPUs"),
    ):
        if asked > there and not isclose(asked, there):
            msg = f"{what}: that is {asked:g} {unit}, the cluster has {there:g}; {_what_is_there(nodes)}"
            raise SpecError(msg)


def _what_is_there(nodes: Sequence[Node]) -> str:
    shown = ", ".join(map(str, nodes[:8])) + (", ..." if len(nodes) > 8 else "")
    return f"there are {shown}: ask for less, or add nodes"
