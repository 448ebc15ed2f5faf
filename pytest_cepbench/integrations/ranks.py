"""The ranks of a distributed training: the first one acts, all of them know the result.

Works in every training in which torch.distributed is initialized, whoever did it: transformers,
Lightning, accelerate or the training itself. Elsewhere there is one rank.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from pytest_cepbench.errors import TrainingGateError

T = TypeVar("T")

_PATIENCE = timedelta(days=7)  # a gate may take longer than the training's collectives may


@dataclass(frozen=True)
class Ranks:
    """The ranks of this training.

    rank: of this process; 0 acts.
    group: process group for objects on the CPU; None where there is one rank.
    """

    rank: int = 0
    group: Any = None

    def on_first(self, act: Callable[[], T]) -> T:
        """Act on rank 0 and return the result on every rank, which all of them must call.

        act: its result is pickled. What it raises is raised on rank 0; the others raise a
        TrainingGateError with the same text.
        """
        if self.group is None:
            return act()
        import torch.distributed as dist

        box: list[Any] = [None, None]
        failure: BaseException | None = None
        if self.rank == 0:
            try:
                box[0] = act()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - raised below
                failure, box[1] = error, str(error)
        dist.broadcast_object_list(box, src=0, group=self.group)
        if failure is not None:
            raise failure
        if box[1] is not None:
            raise TrainingGateError(f"on rank 0: {box[1]}")
        result: T = box[0]
        return result

    def wait_for_all(self) -> None:
        """Wait until every rank is here."""
        if self.group is not None:
            import torch.distributed as dist

            dist.barrier(group=self.group)


def current_ranks() -> Ranks:
    """The ranks of this training; every one of them must call it, since it makes a group.

    The group has a limit of time of its own: while one rank gates, the others wait for longer than
    the training's own collectives may (`ddp_timeout`).
    """
    if "torch" not in sys.modules:
        return Ranks()
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return Ranks(0)
    group = (
        dist.new_group(backend="gloo", timeout=_PATIENCE)
        if dist.is_gloo_available()
        else dist.group.WORLD
    )
    return Ranks(dist.get_rank(), group)
