"""The actors of one model: started, checked when ready, replaced when lost.

Ray places the actors in the placement groups of `resources`. Its own restarts are off:

- With `max_task_retries` Ray repeats a batch without saying so. A batch that kills its process
  would kill one after the other, and those of other batches with it, before it could be given up;
  and a lost node could not be told from such a batch.
- With `max_restarts` a new process takes calls before its weights are compared with the run's. It
  waits for resources like those that it had, where a run without accelerators rather shares the
  cores of another node; and the report could not name what was lost, and where.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_cepbench.artifacts import canonical_json
from pytest_cepbench.chains.ray.actor import create_actor
from pytest_cepbench.chains.ray.cluster import Cluster, check_versions
from pytest_cepbench.chains.ray.losses import LossLog, LostActor, format_actor_error, loss_reason
from pytest_cepbench.chains.ray.messages import ActorFault, ActorReady, ActorSetup, exception_of
from pytest_cepbench.chains.ray.resources import Allocation
from pytest_cepbench.errors import CepError, DeviceMemoryError, ModelError, SpecError
from pytest_cepbench.models.protocols import BoundRole

PATIENCE = 300.0
"""Seconds to wait while no actor of a model lives and none can be placed."""

_SPARE_SECONDS = 2.0  # without any actor, after which one is started where no place is reserved

_NO_PLACE = -1  # place of an actor that runs on another node's cores beside the actors there

_MOST_FAILED_STARTS = 2  # actors in a row that may die before they are ready, once some were ready

_OTHER_WEIGHTS = (
    "the weights or configurations differ: copy them, or share the folder, and let no trainer "
    "write there meanwhile"
)


@dataclass(eq=False)
class SupervisedActor:
    """An actor.

    handle: Ray's.
    where, loading: what it replies when it has a place, and when its model is loaded.
    place: index of its placement group.
    initial: whether it is one of those that the pool began with.
    node_id, node: id and name of its node; empty until it has a place.
    busy: batches that it has.
    loss: as noted in the log when it is gone.
    """

    handle: Any
    where: Any
    loading: Any
    place: int
    initial: bool
    node_id: str = ""
    node: str = ""
    busy: int = 0
    loss: LostActor | None = None

    @property
    def on_node(self) -> str:
        """Its node, as the end of a phrase; empty until it has a place."""
        return f" on node {self.node}" if self.node else ""


@dataclass(eq=False)
class Supervisor:
    """The actors of one model, and those that are being started; for one thread at a time.

    bound: the model as it was bound first, which every actor has to agree with.
    setup: sent to every actor.
    allocation: the resources of the pool.
    losses: where lost actors are noted.
    groups: Ray's placement groups, one for each actor; None lets Ray place them.
    live: actors that are ready.
    fault: why the pool cannot work, once that is known.
    loads: models loaded, by all actors so far.
    seconds: in the models' code, likewise.
    counts: whether the model says how long texts are.
    closed: whether no actor is started any more.
    """

    cluster: Cluster
    bound: BoundRole
    setup: ActorSetup
    allocation: Allocation
    losses: LossLog
    groups: list[Any] | None = None
    live: list[SupervisedActor] = field(default_factory=list)
    fault: Exception | None = None
    loads: int = 0
    seconds: float = 0.0
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
        """Start the actors, where there are none."""
        if not (self.live or self._pending or self.fault):
            self._empty_since = time.monotonic()
            places = range(self.allocation.actors)
            self._pending = [self._start_actor(place, initial=True) for place in places]

    def update(self) -> None:
        """Look which actors have a place by now, are ready, or died before they were."""
        import ray

        for actor in list(self._pending):
            try:
                if not actor.node_id and _has_result(actor.where):
                    actor.node_id, actor.node = ray.get(actor.where)
                if not _has_result(actor.loading):
                    continue
                self._add_loaded(actor, ray.get(actor.loading))
            except ray.exceptions.RayTaskError as error:
                msg = f"{self.name}{actor.on_node}: {format_actor_error(error)}"
                self._reject(actor, ModelError(msg))
            except ray.exceptions.RayError as error:
                self._lose_start(actor, error)

    def check_patience(self) -> None:
        """Raise ModelError where no actor lives or loads, and none has had a place for long."""
        if self.live or any(actor.node_id for actor in self._pending):
            self._empty_since = time.monotonic()
            return
        empty = time.monotonic() - self._empty_since
        if not self.allocation.gpus and empty > _SPARE_SECONDS and self.cluster.has_lost_nodes():
            # Its place went with a node: better crowd another node's cores than stop.
            if not any(actor.place == _NO_PLACE for actor in self._pending):
                self._pending.append(self._start_actor(_NO_PLACE, initial=False))
        elif not self._pending:
            raise ModelError(
                f"infrastructure: no actor of the {self.name} is left, and none can be started"
            )
        if empty > PATIENCE:
            raise ModelError(
                f"infrastructure: no actor of the {self.name} could be placed within "
                f"{PATIENCE:.0f} s (each asks for {self.allocation.gpus:g} GPUs and "
                f"{self.allocation.cpus:g} CPUs): is the cluster in use by others, or have nodes "
                f"left? {self.cluster}"
            )

    def replace_lost(
        self, actor: SupervisedActor, error: BaseException | None, *, by_node: bool
    ) -> None:
        """Note that an actor that was ready is gone, once, and start another one.

        error: of Ray. by_node: whether its node is lost too.
        """
        import ray

        if actor not in self.live:
            return
        self.live.remove(actor)
        ray.kill(actor.handle)  # where it is only out of reach, it is not to work on
        self._start_again(actor, error, by_node=by_node, most=_MOST_FAILED_STARTS)
        self._empty_since = time.monotonic()

    def is_lost_with_node(self, actor: SupervisedActor, error: BaseException | None) -> bool:
        """Whether the actor's node died, rather than its process."""
        if "node has died" in str(error):
            return True
        return bool(actor.node_id) and not self.cluster.is_alive(actor.node_id)

    def close(self) -> list[SupervisedActor]:
        """Start no actor any more. Returns those that are to be ended."""
        self.closed = True
        actors = [*self._pending, *self.live]
        self._pending, self.live = [], []
        return actors

    def _start_actor(self, place: int, *, initial: bool) -> SupervisedActor:
        placed = place != _NO_PLACE
        allocation = self.allocation if placed else replace(self.allocation, cpus=0.0)
        group = self.groups[place] if self.groups and placed else None
        handle = create_actor(self.setup, allocation, group)
        return SupervisedActor(handle, handle.where.remote(), handle.load.remote(), place, initial)

    def _add_loaded(self, actor: SupervisedActor, reply: ActorReady | ActorFault) -> None:
        if isinstance(reply, ActorFault):
            error = exception_of(reply)
            if isinstance(error, CepError):
                error = type(error)(f"node {actor.node}: {error}")
            self._reject(actor, error)
            return
        mismatch = first_mismatch(self.name, self.bound, reply)
        if mismatch:
            self._reject(actor, ModelError(mismatch))
            return
        self._pending.remove(actor)
        self.live.append(actor)
        self._failed_starts = 0
        self.counts = reply.counts
        self.loads += 1
        self.seconds += reply.seconds
        self.setup = replace(self.setup, digests={**self.setup.digests, **reply.digests})

    def _reject(self, actor: SupervisedActor, error: Exception) -> None:
        """End an actor that cannot work: an initial one ends the pool, a later one only itself."""
        import ray

        self._pending.remove(actor)
        ray.kill(actor.handle)
        no_memory = isinstance(error, DeviceMemoryError | MemoryError)
        if no_memory and (self.live or self._pending):
            self.losses.remark(f"the {self.name} has an actor less: {error}")
        elif no_memory:  # there may be room another time: the next that asks starts anew
            raise error
        elif actor.initial:
            self.fault = error
        else:
            self.losses.remark(f"no new actor of the {self.name}{actor.on_node}: {error}")

    def _lose_start(self, actor: SupervisedActor, error: Exception) -> None:
        """Note that an actor died before it was ready, and start another one."""
        self._pending.remove(actor)
        by_node = self.is_lost_with_node(actor, error)
        self._failed_starts += not by_node
        most = _MOST_FAILED_STARTS * self.allocation.actors
        self._start_again(actor, error, by_node=by_node, most=most)

    def _start_again(
        self, actor: SupervisedActor, error: BaseException | None, *, by_node: bool, most: int
    ) -> None:
        """Note the loss, and start another actor in its place unless so many starts failed."""
        reason = loss_reason(error, by_node=by_node)
        actor.loss = self.losses.add(self.bound.role, actor.node, reason)
        if not self.closed and self._failed_starts < most:
            self._pending.append(self._start_actor(actor.place, initial=False))


def first_mismatch(name: str, bound: BoundRole, ready: ActorReady) -> str:
    """The first thing in which an actor's model differs from the run's; empty where it is the same.

    name: of the model, for people. bound: the model as it was bound first.
    """
    try:
        check_versions(ready.node, *ready.version.split())
    except SpecError as error:
        return str(error)
    for part, remedy in (
        ("fingerprint", _OTHER_WEIGHTS),
        ("adapter", "install the same packages on all nodes"),
        ("params", "give device= and dtype= in the spec, or only nodes of one kind"),
    ):
        expected, actual = (_short(getattr(role, part)) for role in (bound, ready.bound))
        if expected != actual:
            return f"{name}: {part} {actual} on node {ready.node}, {expected} elsewhere: {remedy}"
    return ""


def _short(value: Any) -> str:
    return value[:16] if isinstance(value, str) else canonical_json(dict(value))


def _has_result(ref: Any) -> bool:
    import ray

    return bool(ray.wait([ref], timeout=0)[0])
