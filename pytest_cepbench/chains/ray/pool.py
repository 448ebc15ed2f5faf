"""The actors of one model: batches are dealt to them, and those of a dead one to the others."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from threading import Condition
from typing import Any

from pytest_cepbench.artifacts import canonical_json
from pytest_cepbench.chains.ray.cluster import Cluster, check_versions
from pytest_cepbench.chains.ray.hiring import hire
from pytest_cepbench.chains.ray.losses import Loss, Losses
from pytest_cepbench.chains.ray.shares import Share
from pytest_cepbench.chains.ray.wire import Answer, Asked, Fault, Order, Ready, exception_of
from pytest_cepbench.errors import (
    CepError,
    DeviceMemoryError,
    MeasurementError,
    ModelError,
    SpecError,
)
from pytest_cepbench.models.roles import BoundRole

MOST_DEATHS = 2
"""Processes that may die over a batch before it is given up; as with shards and workers."""

_MOST_LOSSES = 8  # of a batch, with whole nodes counted: somebody is taking the cluster down

PREFETCH = 2
"""Batches that an actor has at most: one that it works on, one that is on its way there."""

PATIENCE = 300.0
"""Seconds to wait while no actor of a model lives and none can be placed."""

_LOOK = 0.1  # seconds

_SQUEEZE = 2.0  # seconds without any actor, after which one is made where there is no seat for it

_STANDING = -1

_STARTS = 2  # actors in a row that may die before they are ready, after the first ones were


class StoppedError(CepError):
    """The run is to stop: nobody waits for the rest."""


class _LostError(Exception):
    """An actor died over a batch."""


@dataclass(eq=False)
class _Member:
    """An actor. placed, ready: what it answers when it runs, and when its model is loaded."""

    handle: Any
    placed: Any
    ready: Any
    seat: int
    first: bool
    node_id: str = ""
    node: str = ""
    busy: int = 0
    loss: Loss | None = None


@dataclass
class Spent:
    """What the actors of a pool did: models loaded, seconds in their code."""

    loads: int = 0
    seconds: float = 0.0


@dataclass(eq=False)
class Pool:
    """The actors of one model; any thread may ask.

    bound: the model as it was bound first, which every actor has to agree with. order: what they
    are told. seats: where Ray is to place them, one after the other; None anywhere.
    """

    cluster: Cluster
    bound: BoundRole
    order: Order
    share: Share
    losses: Losses
    seats: list[Any] | None = None
    spent: Spent = field(default_factory=Spent)
    counts: bool = False
    _pending: list[_Member] = field(default_factory=list)
    _live: list[_Member] = field(default_factory=list)
    _fault: Exception | None = None
    _deaths: Counter[str] = field(default_factory=Counter)
    _alone: int = 0  # batches that wait for an actor of their own
    _failed_starts: int = 0
    _empty_since: float = 0.0
    _closed: bool = False
    _turn: Condition = field(default_factory=Condition)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.bound.role} {self.bound.spec}"

    def start(self, stopped: Callable[[], bool]) -> None:
        """Have the actors made, where there are none, and wait for the first that is ready.

        Raises what loading raises, ModelError where an actor's model is another one or where no
        actor can be placed, StoppedError.
        """
        with self._turn:
            if not (self._live or self._pending or self._fault):
                self._empty_since = time.monotonic()
                self._pending = [self._hire(seat, first=True) for seat in range(self.share.actors)]
        self._give_back(self._take(stopped))

    def ask(self, asked: Asked, stopped: Callable[[], bool]) -> Answer:
        """What the model makes of a batch; made again by another actor where one died over it.

        Raises the model's exceptions, MeasurementError for a batch that kills its actors, and what
        `start` raises.
        """
        lost = 0
        while True:
            # Who was there when an actor died is asked for alone, so that none suffers for another.
            suspected = self._check_deaths(asked)
            member = self._take(stopped, places=PREFETCH if suspected else 1)
            try:
                answer = self._wait(member.handle.answer.remote(asked), stopped)
            except _LostError as error:
                lost += 1
                self._lose(member, error.__cause__, asked)
                if lost >= _MOST_LOSSES:
                    msg = f"infrastructure: {lost} actors of the {self.name} died over one batch"
                    raise MeasurementError(msg) from error
                continue
            finally:
                self._give_back(member, PREFETCH if suspected else 1)
            if isinstance(answer, Fault):
                raise exception_of(answer)
            assert isinstance(answer, Answer)
            self.spent.seconds += answer.seconds
            return answer

    def close(self) -> None:
        """Let all actors end."""
        import ray

        with self._turn:
            self._closed = True
            members = [*self._pending, *self._live]
            self._pending, self._live = [], []
            self._turn.notify_all()
        for member in members:
            ray.kill(member.handle)

    # -- who is there ----------------------------------------------------------------------------

    def _hire(self, seat: int, *, first: bool) -> _Member:
        standing = seat == _STANDING
        share = replace(self.share, cpus=0.0) if standing else self.share
        place = self.seats[seat] if self.seats and not standing else None
        handle = hire(self.order, share, place)
        return _Member(handle, handle.where.remote(), handle.load.remote(), seat, first)

    def _take(self, stopped: Callable[[], bool], places: int = 1) -> _Member:
        """The actor that has least to do, as soon as one has so many places for batches."""
        with self._turn:
            first = places == PREFETCH
            self._alone += first
            try:
                return self._wait_for_one(stopped, places)
            finally:
                self._alone -= first

    def _wait_for_one(self, stopped: Callable[[], bool], places: int) -> _Member:
        while True:
            self._look()
            if self._fault is not None:
                raise self._fault
            if self._closed or stopped():
                msg = "the run stops"
                raise StoppedError(msg)
            free = [one for one in self._live if one.busy + places <= PREFETCH]
            if free and (places == PREFETCH or not self._alone):
                chosen = min(free, key=lambda member: member.busy)
                chosen.busy += places
                # To the end, so that those with equally little to do take turns.
                self._live.remove(chosen)
                self._live.append(chosen)
                return chosen
            self._check_patience()
            self._turn.wait(_LOOK)

    def _give_back(self, member: _Member, places: int = 1) -> None:
        with self._turn:
            member.busy -= places
            self._turn.notify_all()

    def _look(self) -> None:
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
                self._refuse(member, ModelError(f"{self.name}{_at(member)}: {_words(error)}"))
            except ray.exceptions.RayError as error:
                self._lose_start(member, error)

    def _welcome(self, member: _Member, said: Ready | Fault) -> None:
        if isinstance(said, Fault):
            error = exception_of(said)
            if isinstance(error, CepError):
                error = type(error)(f"node {member.node}: {error}")
            self._refuse(member, error)
            return
        difference = self._difference(said)
        if difference:
            self._refuse(member, ModelError(difference))
            return
        self._pending.remove(member)
        self._live.append(member)
        self._failed_starts = 0
        self.counts = said.counts
        self.spent.loads += 1
        self.spent.seconds += said.seconds
        self.order = replace(self.order, digests={**self.order.digests, **said.digests})

    def _difference(self, said: Ready) -> str:
        """What an actor's model has other than the first one's; empty where it is the same."""
        try:
            check_versions(said.node, *said.version.split())
        except SpecError as error:
            return str(error)
        for what, hint in (
            ("fingerprint", "the weights or configurations differ: copy them, or share the folder"),
            ("adapter", "install the same packages on all nodes"),
            ("params", "give device= and dtype= in the spec, or only nodes of one kind"),
        ):
            mine, its = (_short(getattr(bound, what)) for bound in (self.bound, said.bound))
            if mine != its:
                return f"{self.name}: {what} {its} on node {said.node}, {mine} elsewhere: {hint}"
        return ""

    def _refuse(self, member: _Member, error: Exception) -> None:
        """An actor that cannot play: at first that ends the pool, later it is done without."""
        import ray

        self._pending.remove(member)
        ray.kill(member.handle)
        no_room = isinstance(error, DeviceMemoryError | MemoryError)
        if no_room and (self._live or self._pending):
            self.losses.remark(f"an actor of the {self.name} is done without: {error}")
        elif no_room:  # there may be room another time: the next that asks starts anew
            raise error
        elif member.first:
            self._fault = error
            self._turn.notify_all()
        else:
            self.losses.remark(f"no new actor of the {self.name}{_at(member)}: {error}")

    def _check_patience(self) -> None:
        """Raise ModelError where nobody lives, nobody loads, and nobody has come for long."""
        if self._live or any(member.node_id for member in self._pending):
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

    # -- deaths ----------------------------------------------------------------------------------

    def _wait(self, ref: Any, stopped: Callable[[], bool]) -> Any:
        import ray

        while True:
            try:
                return ray.get(ref, timeout=_LOOK)
            except ray.exceptions.GetTimeoutError:
                if self._closed or stopped():
                    msg = "the run stops"
                    raise StoppedError(msg) from None
            except ray.exceptions.RayTaskError as error:
                msg = f"{self.name}: {_words(error)}"
                raise ModelError(msg) from error
            except ray.exceptions.RayError as error:
                raise _LostError from error

    def _lose(self, member: _Member, error: BaseException | None, asked: Asked) -> None:
        """An actor is gone, or the node that held its answer."""
        import ray

        by_node = self._lost_with_node(member, error)
        with self._turn:
            if member in self._live:
                self._live.remove(member)
                member.loss = self.losses.add(self.bound.role, member.node, _why(error, by_node))
                ray.kill(member.handle)  # where it is only out of reach, it is not to work on
                if not self._closed and self._failed_starts < _STARTS:
                    self._pending.append(self._hire(member.seat, first=False))
                self._empty_since = time.monotonic()
            if not by_node and _is_process_death(error):
                self._deaths[_name_of(asked)] += 1
        if member.loss is not None:
            self.losses.count(member.loss)

    def _lose_start(self, member: _Member, error: Exception) -> None:
        """An actor died before it was ready."""
        self._pending.remove(member)
        by_node = self._lost_with_node(member, error)
        member.loss = self.losses.add(self.bound.role, member.node, _why(error, by_node))
        self._failed_starts += not by_node
        if not self._closed and self._failed_starts < _STARTS * self.share.actors:
            self._pending.append(self._hire(member.seat, first=False))

    def _lost_with_node(self, member: _Member, error: BaseException | None) -> bool:
        if "node has died" in str(error):
            return True
        return bool(member.node_id) and not self.cluster.is_alive(member.node_id)

    def _check_deaths(self, asked: Asked) -> bool:
        """Whether an actor's process died while it had the batch.

        Raises MeasurementError for one that has killed enough of them.
        """
        if not self._deaths:
            return False
        deaths = self._deaths[_name_of(asked)]
        if deaths >= MOST_DEATHS:
            msg = (
                f"infrastructure: {deaths} actors of the {self.name} died while they worked on the same "
                f"batch of {len(asked.inputs)}: give them more memory, or smaller batches (batch_size=)"
            )
            raise MeasurementError(msg)
        return deaths > 0


def _is_there(ref: Any) -> bool:
    import ray

    return bool(ray.wait([ref], timeout=0)[0])


def _is_process_death(error: BaseException | None) -> bool:
    import ray

    kinds = (ray.exceptions.ActorDiedError, ray.exceptions.OutOfMemoryError)
    return isinstance(error, kinds)


def _why(error: BaseException | None, by_node: bool) -> str:  # noqa: FBT001 - of one caller's kind
    if by_node:
        return "the node left the cluster"
    text = str(error)
    if "memory" in type(error).__name__.lower() or "OUT_OF_MEMORY" in text:
        return "Ray ended the process, since memory ran out"
    if _is_process_death(error):
        return "its process died, as it does when memory runs out"
    return "it could not be reached any more"


def _name_of(asked: Asked) -> str:
    """Names a batch by what is asked; only needed where actors have died."""
    return sha256(pickle.dumps(asked)).hexdigest()


def _short(value: Any) -> str:
    return value[:16] if isinstance(value, str) else canonical_json(dict(value))


def _at(member: _Member) -> str:
    return f" on node {member.node}" if member.node else ""


def _words(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[-1].split())[:300] if lines else type(error).__name__
