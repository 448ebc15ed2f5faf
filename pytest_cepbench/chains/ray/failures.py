"""Why actors died, and the batches over which they did: one that kills again and again is given up."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256

from pytest_cepbench.chains.ray.messages import ActorRequest
from pytest_cepbench.errors import MeasurementError

MOST_DEATHS = 2
"""Processes that may die over a batch before it is given up; as with shards and workers."""


@dataclass
class PoisonBatches:
    """Batches that an actor's process had when it died. name: of the model, for people."""

    name: str
    _deaths: Counter[str] = field(default_factory=Counter)

    def add(self, asked: ActorRequest) -> None:
        """A process died while it had the batch."""
        self._deaths[_name_of(asked)] += 1

    def check(self, asked: ActorRequest) -> bool:
        """Whether a process died while it had the batch.

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


def is_process_death(error: BaseException | None) -> bool:
    """Whether an actor's process ended, by itself or by Ray; false where its node did."""
    import ray

    kinds = (ray.exceptions.ActorDiedError, ray.exceptions.OutOfMemoryError)
    return isinstance(error, kinds)


def why(error: BaseException | None, *, by_node: bool) -> str:
    """Why an actor is lost, as far as Ray tells. by_node: with its node."""
    if by_node:
        return "the node left the cluster"
    text = str(error)
    if "memory" in type(error).__name__.lower() or "OUT_OF_MEMORY" in text:
        return "Ray ended the process, since memory ran out"
    if is_process_death(error):
        return "its process died, as it does when memory runs out"
    return "it could not be reached any more"


def format_actor_error(error: BaseException) -> str:
    """What Ray says of an exception in an actor, without the traceback."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[-1].split())[:300] if lines else type(error).__name__


def _name_of(asked: ActorRequest) -> str:
    """Names a batch by what is asked; only needed where actors have died."""
    return sha256(pickle.dumps(asked)).hexdigest()
