"""What a run lost on the cluster: actors, for the report; and batches that kill, to be given up."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock

from pytest_cepbench.chains.batching import MOST_CRASHES
from pytest_cepbench.chains.ray.messages import ActorRequest
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.escapes import mask_secrets


@dataclass
class LostActor:
    """An actor that is gone.

    role: of its model.
    node: its name; empty where the actor had no place yet.
    reason: as far as Ray tells.
    batches: that it had, and that went to other actors.
    """

    role: str
    node: str
    reason: str
    batches: int = 0


@dataclass
class LossLog:
    """The actors that a run lost, for the report; any thread may add to it.

    actors: that are gone. remarks: what else happened to the cluster, each once.
    """

    actors: list[LostActor] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def add(self, role: str, node: str, reason: str) -> LostActor:
        """Note an actor that is gone."""
        with self._lock:
            self.actors.append(LostActor(role, node, reason))
            return self.actors[-1]

    def add_batch(self, lost: LostActor) -> None:
        """Note a batch that was lost with an actor, and goes to another."""
        with self._lock:
            lost.batches += 1

    def remark(self, sentence: str) -> None:
        """Note something that users have to know, once."""
        with self._lock:
            if sentence not in self.remarks:
                self.remarks.append(sentence)

    def lines(self) -> list[str]:
        """A sentence for what was lost on each node for each reason."""
        with self._lock:
            kinds = dict.fromkeys((lost.node, lost.reason) for lost in self.actors)
            return [self._line(*kind) for kind in kinds] + list(self.remarks)

    def _line(self, node: str, reason: str) -> str:
        actors = [lost for lost in self.actors if (lost.node, lost.reason) == (node, reason)]
        roles = Counter(lost.role for lost in actors)
        by_role = ", ".join(f"{count} {role}" for role, count in roles.items())
        batches = sum(lost.batches for lost in actors)
        noun = "actor" if len(actors) == 1 else "actors"
        outcome = f"{batches} batches on their way were asked for again"
        if batches < 2:
            outcome = "a batch on its way was asked for again" if batches else "no batch was lost"
        lost = f"{len(actors)} {noun} ({by_role})"
        start = f"node {node} lost {lost}" if node else f"{lost} lost before they were ready"
        return f"{start}: {reason}; {outcome}"


@dataclass
class PoisonBatches:
    """Batches that an actor had when its process died. name: of the model, for people."""

    name: str
    _deaths: Counter[str] = field(default_factory=Counter)

    def add(self, request: ActorRequest) -> None:
        """Note that a process died while it had the batch."""
        self._deaths[_digest_of(request)] += 1

    def check(self, request: ActorRequest) -> bool:
        """Whether a process died while it had the batch.

        Raises MeasurementError for a batch over which MOST_CRASHES of them died.
        """
        if not self._deaths:
            return False
        deaths = self._deaths[_digest_of(request)]
        if deaths >= MOST_CRASHES:
            raise MeasurementError(
                f"infrastructure: {deaths} actors of the {self.name} died while they worked on the "
                f"same batch of {len(request.inputs)}: give them more memory, or smaller batches "
                "(batch_size=)"
            )
        return deaths > 0


def _digest_of(request: ActorRequest) -> str:
    """Names a batch by its content; only needed where actors have died."""
    return sha256(pickle.dumps(request)).hexdigest()


def is_process_death(error: BaseException | None) -> bool:
    """Whether an actor's process ended, by itself or by Ray; false where its node did."""
    import ray

    return isinstance(error, ray.exceptions.ActorDiedError | ray.exceptions.OutOfMemoryError)


def loss_reason(error: BaseException | None, *, by_node: bool) -> str:
    """Why an actor is lost, as far as Ray tells. by_node: whether its node is lost too."""
    if by_node:
        return "the node left the cluster"
    if "memory" in type(error).__name__.lower() or "OUT_OF_MEMORY" in str(error):
        return "Ray ended the process, since memory ran out"
    if is_process_death(error):
        return "its process died, as it does when memory runs out"
    return "it could not be reached any more"


def format_actor_error(error: BaseException) -> str:
    """What Ray says of an exception in an actor: the last line of its traceback."""
    lines = [line for line in mask_secrets(str(error)).splitlines() if line.strip()]
    return " ".join(lines[-1].split())[:300] if lines else type(error).__name__
