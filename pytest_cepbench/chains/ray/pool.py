"""The actors of one model: batches are dealt to them, and those of a dead one to the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Condition
from typing import Any

from pytest_cepbench.chains.ray.failures import PoisonBatches, format_actor_error, is_process_death
from pytest_cepbench.chains.ray.messages import ActorFault, ActorReply, ActorRequest, exception_of
from pytest_cepbench.chains.ray.supervisor import SupervisedActor, Supervisor
from pytest_cepbench.errors import ActorLostError, MeasurementError, ModelError, StoppedError

PREFETCH = 2
"""Batches that an actor has at most: one that it works on, one that is on its way there."""

_MOST_LOSSES = 8  # of a batch, with whole nodes counted: somebody is taking the cluster down

_LOOK = 0.1  # seconds


@dataclass(eq=False)
class ActorPool:
    """The actors of one model; any thread may ask. staff: who they are."""

    staff: Supervisor
    _suspects: PoisonBatches = field(init=False)
    _alone: int = 0  # batches that wait for an actor of their own
    _turn: Condition = field(default_factory=Condition)

    def __post_init__(self) -> None:
        self._suspects = PoisonBatches(self.staff.name)

    def start(self, stopped: Callable[[], bool]) -> None:
        """Have the actors made, where there are none, and wait for the first that is ready.

        Raises what loading raises, ModelError where an actor's model is another one or where no
        actor can be placed, StoppedError.
        """
        with self._turn:
            self.staff.start()
        self._give_back(self._take(stopped))

    def ask(self, asked: ActorRequest, stopped: Callable[[], bool]) -> ActorReply:
        """What the model makes of a batch; made again by another actor where one died over it.

        Raises the model's exceptions, MeasurementError for a batch that kills its actors, and what
        `start` raises.
        """
        lost = 0
        while True:
            # Who was there when an actor died is asked for alone, so that none suffers for another.
            suspected = self._suspects.check(asked)
            member = self._take(stopped, places=PREFETCH if suspected else 1)
            try:
                answer = self._wait(member.handle.answer.remote(asked), stopped)
            except ActorLostError as error:
                lost += 1
                self._lose(member, error.__cause__, asked)
                if lost >= _MOST_LOSSES:
                    msg = f"infrastructure: {lost} actors of the {self.staff.name} died over one batch"
                    raise MeasurementError(msg) from error
                continue
            finally:
                self._give_back(member, PREFETCH if suspected else 1)
            if isinstance(answer, ActorFault):
                raise exception_of(answer)
            assert isinstance(answer, ActorReply)
            self.staff.spent.seconds += answer.seconds
            return answer

    def close(self) -> None:
        """Let all actors end."""
        import ray

        with self._turn:
            members = self.staff.dismiss()
            self._turn.notify_all()
        for member in members:
            ray.kill(member.handle)

    def _take(self, stopped: Callable[[], bool], places: int = 1) -> SupervisedActor:
        """The actor that has least to do, as soon as one has so many places for batches."""
        with self._turn:
            first = places == PREFETCH
            self._alone += first
            try:
                return self._wait_for_one(stopped, places)
            finally:
                self._alone -= first

    def _wait_for_one(self, stopped: Callable[[], bool], places: int) -> SupervisedActor:
        staff = self.staff
        while True:
            staff.look()
            if staff.fault is not None:
                self._turn.notify_all()
                raise staff.fault
            if staff.closed or stopped():
                msg = "the run stops"
                raise StoppedError(msg)
            free = [one for one in staff.live if one.busy + places <= PREFETCH]
            if free and (places == PREFETCH or not self._alone):
                chosen = min(free, key=lambda member: member.busy)
                chosen.busy += places
                # To the end, so that those with equally little to do take turns.
                staff.live.remove(chosen)
                staff.live.append(chosen)
                return chosen
            staff.check_patience()
            self._turn.wait(_LOOK)

    def _give_back(self, member: SupervisedActor, places: int = 1) -> None:
        with self._turn:
            member.busy -= places
            self._turn.notify_all()

    def _wait(self, ref: Any, stopped: Callable[[], bool]) -> Any:
        import ray

        while True:
            try:
                return ray.get(ref, timeout=_LOOK)
            except ray.exceptions.GetTimeoutError:
                if self.staff.closed or stopped():
                    msg = "the run stops"
                    raise StoppedError(msg) from None
            except ray.exceptions.RayTaskError as error:
                msg = f"{self.staff.name}: {format_actor_error(error)}"
                raise ModelError(msg) from error
            except ray.exceptions.RayError as error:
                raise ActorLostError from error

    def _lose(
        self, member: SupervisedActor, error: BaseException | None, asked: ActorRequest
    ) -> None:
        """An actor is gone, or the node that held its answer."""
        by_node = self.staff.is_lost_with_node(member, error)
        with self._turn:
            self.staff.lose(member, error, by_node=by_node)
            if not by_node and is_process_death(error):
                self._suspects.add(asked)
        if member.loss is not None:
            self.staff.losses.count(member.loss)
