"""Who works in a pool: actors are hired, welcomed when they are ready, replaced when they are lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_cepbench.chains.ray.actor_factory import hire
from pytest_cepbench.chains.ray.cluster import Cluster
from pytest_cepbench.chains.ray.failures import format_actor_error, why
from pytest_cepbench.chains.ray.messages import ActorFault, ActorReady, ActorSetup, exception_of
from pytest_cepbench.chains.ray.node_loss import NodeLoss, NodeLosses
from pytest_cepbench.chains.ray.resources import Allocation
from pytest_cepbench.chains.ray.version_check import difference
from pytest_cepbench.errors import CepError, DeviceMemoryError, ModelError
from pytest_cepbench.models.protocols import BoundRole

PATIENCE = 300.0
"""Seconds to wait while no actor of a model lives and none can be placed."""

_SQUEEZE = 2.0  # seconds without any actor, after which one is made where there is no seat for it

_STANDING = -1

_STARTS = 2  # actors in a row that may die before they are ready, after the first ones were


@dataclass(eq=False)
class SupervisedActor:
    """An actor. placed, ready: what it answers when it runs, and when its model is loaded."""

    handle: Any
    placed: Any
    ready: Any
    seat: int
    first: bool
    node_id: str = ""
    node: str = ""
    busy: int = 0
    loss: NodeLoss | None = None

    @property
    def place(self) -> str:
        """Where it is, as the end of a phrase; empty while nobody knows."""
        return f" on node {self.node}" if self.node else ""


@dataclass
class ActorUsage:
    """What the actors of a pool did: models loaded, seconds in their code."""

    loads: int = 0
    seconds: float = 0.0


@dataclass(eq=False)
class Supervisor:
    """The actors of one model, and those that are yet to come; for one thread at a time.

    bound: the model as it was bound first, which every actor has to agree with. order: what they
    are told. seats: where Ray is to place them, one after the other; None anywhere. live: those
    that are ready. fault: why none of them can play. counts: whether the model says how long texts
    are.
    """

    cluster: Cluster
    bound: BoundRole
    order: ActorSetup
    share: Allocation
    losses: NodeLosses
    seats: list[Any] | None = None
    live: list[SupervisedActor] = field(default_factory=list)
    fault: Exception | None = None
    spent: ActorUsage = field(default_factory=ActorUsage)
    counts: bool = False
    closed: bool = False
    _pending: list[SupervisedActor] = field(default_factory=list)
    _failed_starts: int = 0
    _empty_since: float = 0.0

    @property
    def name(self) -> str:
        """Of the model, for people."""
        return f"{self.bound.role} {self.bound.spec}"

    def start(self) -> None:
        """Have the actors made, where there are none."""
        if not (self.live or self._pending or self.fault):
            self._empty_since = time.monotonic()
            self._pending = [self._hire(seat, first=True) for seat in range(self.share.actors)]

    def look(self) -> None:
        """See who has been placed, who is ready, who died before it was."""
        import ray

        for member in list(self._pending):
            try:
                if not member.node_id and _is_there(member.placed):
                    member.node_id, member.node = ray.get(member.placed)
                if not _is_there(member.ready):
                    continue
                self._welcome(member, ray.get(member.ready))
            except ray.exceptions.RayTaskError as error:
                self._refuse(
                    member, ModelError(f"{self.name}{member.place}: {format_actor_error(error)}")
                )
            except ray.exceptions.RayError as error:
                self._lose_start(member, error)

    def check_patience(self) -> None:
        """Raise ModelError where nobody lives, nobody loads, and nobody has come for long."""
        if self.live or any(member.node_id for member in self._pending):
            self._empty_since = time.monotonic()
            return
        empty = time.monotonic() - self._empty_since
        if not self.share.gpus and empty > _SQUEEZE and self.cluster.has_lost_nodes():
            # Its seat went with a node: better crowd another node's cores than stop.
            if not any(member.seat == _STANDING for member in self._pending):
                self._pending.append(self._hire(_STANDING, first=False))
            if empty < PATIENCE:
                return
        if not self._pending:
            msg = f"infrastructure: no actor of the {self.name} is left, and none can be started"
            raise ModelError(msg)
        if empty > PATIENCE:
            msg = (
                f"infrastructure: no actor of the {self.name} could be placed within "
                f"{PATIENCE:.0f} s (each asks for {self.share.gpus:g} GPUs and {self.share.cpus:g} "
                f"CPUs): is the cluster in use by others, or have nodes left? {self.cluster}"
            )
            raise ModelError(msg)

    def lose(self, member: SupervisedActor, error: BaseException | None, *, by_node: bool) -> None:
        """One that was ready is gone, whoever noticed it first; another one is hired."""
        import ray

        if member not in self.live:
            return
        self.live.remove(member)
        member.loss = self.losses.add(self.bound.role, member.node, why(error, by_node=by_node))
        ray.kill(member.handle)  # where it is only out of reach, it is not to work on
        if not self.closed and self._failed_starts < _STARTS:
            self._pending.append(self._hire(member.seat, first=False))
        self._empty_since = time.monotonic()

    def is_lost_with_node(self, member: SupervisedActor, error: BaseException | None) -> bool:
        """Whether it was its node that died."""
        if "node has died" in str(error):
            return True
        return bool(member.node_id) and not self.cluster.is_alive(member.node_id)

    def dismiss(self) -> list[SupervisedActor]:
        """Hire nobody any more. Returns those who are to end."""
        self.closed = True
        members = [*self._pending, *self.live]
        self._pending, self.live = [], []
        return members

    def _hire(self, seat: int, *, first: bool) -> SupervisedActor:
        standing = seat == _STANDING
        share = replace(self.share, cpus=0.0) if standing else self.share
        place = self.seats[seat] if self.seats and not standing else None
        handle = hire(self.order, share, place)
        return SupervisedActor(handle, handle.where.remote(), handle.load.remote(), seat, first)

    def _welcome(self, member: SupervisedActor, said: ActorReady | ActorFault) -> None:
        if isinstance(said, ActorFault):
            error = exception_of(said)
            if isinstance(error, CepError):
                error = type(error)(f"node {member.node}: {error}")
            self._refuse(member, error)
            return
        other = difference(self.name, self.bound, said)
        if other:
            self._refuse(member, ModelError(other))
            return
        self._pending.remove(member)
        self.live.append(member)
        self._failed_starts = 0
        self.counts = said.counts
        self.spent.loads += 1
        self.spent.seconds += said.seconds
        self.order = replace(self.order, digests={**self.order.digests, **said.digests})

    def _refuse(self, member: SupervisedActor, error: Exception) -> None:
        """An actor that cannot play: at first that ends the pool, later it is done without."""
        import ray

        self._pending.remove(member)
        ray.kill(member.handle)
        no_room = isinstance(error, DeviceMemoryError | MemoryError)
        if no_room and (self.live or self._pending):
            self.losses.remark(f"an actor of the {self.name} is done without: {error}")
        elif no_room:  # there may be room another time: the next that asks starts anew
            raise error
        elif member.first:
            self.fault = error
        else:
            self.losses.remark(f"no new actor of the {self.name}{member.place}: {error}")

    def _lose_start(self, member: SupervisedActor, error: Exception) -> None:
        """An actor died before it was ready."""
        self._pending.remove(member)
        by_node = self.is_lost_with_node(member, error)
        member.loss = self.losses.add(self.bound.role, member.node, why(error, by_node=by_node))
        self._failed_starts += not by_node
        if not self.closed and self._failed_starts < _STARTS * self.share.actors:
            self._pending.append(self._hire(member.seat, first=False))


def _is_there(ref: Any) -> bool:
    import ray

    return bool(ray.wait([ref], timeout=0)[0])
