"""Places for actors, reserved for all of a run before the first of them is taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_cepbench.chains.ray.resources import Allocation
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import ModelSpec

Place = tuple[RoleName, ModelSpec]
"""A role and the spec of who plays it."""


def reserve(places: Sequence[Place], shares: Mapping[str, Allocation]) -> dict[Place, list[Any]]:
    """The seats of every model's actors: placement groups of Ray, which nobody else gets.

    Those without wishes share seats, one of each model on a seat: Ray itself would put as many of
    one role on a device as fit there. When a node dies, its actors' successors wait for these same
    seats, and do not take those that another role's actors are yet to come to.
    """
    seated = [place for place in places if shares[place[0]].seated]
    found: dict[Place, list[Any]] = {}
    if seated:
        each = [shares[role] for role, _ in seated]
        together = [_seat(_sum(s.gpus for s in each), _sum(s.cpus for s in each))] * each[0].actors
        common = _groups(together)
        found |= dict.fromkeys(seated, common)
    for place in places:
        share = shares[place[0]]
        if not share.seated:
            found[place] = _groups([_seat(share.gpus, share.cpus)] * share.actors)
    return found


def _groups(bundles: Sequence[dict[str, float]]) -> list[Any]:
    from ray.util.placement_group import placement_group

    return [placement_group([bundle]) if bundle else None for bundle in bundles]


def _seat(gpus: float, cpus: float) -> dict[str, float]:
    return {name: part for name, part in (("GPU", gpus), ("CPU", cpus)) if part}


def _sum(parts: Iterable[float]) -> float:
    """As Ray counts: in ten-thousandths, so that thirds do not come to more than one."""
    return round(sum(parts), 4)
