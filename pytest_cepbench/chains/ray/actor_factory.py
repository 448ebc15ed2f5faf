"""Making an actor: a process of the cluster that imports this package and plays what it is told."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_cepbench.chains.ray.messages import ActorFault, ActorReady, ActorSetup
from pytest_cepbench.chains.ray.resources import Allocation


def hire(order: ActorSetup, share: Allocation, place: Any) -> Any:
    """The handle of a new actor, which may wait for its place.

    place: a placement group of one bundle; None lets Ray spread the actors. Its methods: `where()`
    gives the id and name of its node, `load()` a `Ready` or a `Fault`, `answer(asked)` an `Answer`
    or a `Fault`.
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    strategy: Any = "SPREAD" if place is None else PlacementGroupSchedulingStrategy(place)
    kind: Any = ray.remote(_actor_class(offered_paths(), str(Path.cwd())))
    return kind.options(
        num_cpus=share.cpus,
        num_gpus=share.gpus,
        max_restarts=0,
        max_task_retries=0,
        scheduling_strategy=strategy,
    ).remote(asdict(order))


def bind_there(order: ActorSetup, node_id: str) -> ActorReady | ActorFault:
    """Bind on a node, in a process that binds others as well; none of them loads weights."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    kind = _actor_class(offered_paths(), str(Path.cwd()))

    def bind(told: Any) -> Any:
        import os

        if told["gpus"] and not os.environ.get("CUDA_VISIBLE_DEVICES"):
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # hidden, since a task asks for no GPU
        return kind(told).bind()

    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    task: Any = ray.remote(bind)
    there = task.options(num_cpus=0, scheduling_strategy=strategy)
    found: ActorReady | ActorFault = ray.get(there.remote(asdict(order)))
    return found


def offered_paths() -> list[str]:
    """Where this process imports from: offered to actors, behind their own."""
    return list(
        dict.fromkeys([str(Path.cwd()), *(str(Path(path).absolute()) for path in sys.path)])
    )


def _actor_class(paths: list[str], folder: str) -> type:
    """A class of its own, which Ray sends as it is: only there it finds out where to import from."""

    class Actor:
        def __init__(self, told: Any) -> None:
            import os
            import sys

            import ray

            if os.path.isdir(folder):  # noqa: PTH112 - what is sent imports little
                os.chdir(folder)
            sys.path.extend(p for p in paths if p not in sys.path and os.path.exists(p))  # noqa: PTH110
            from pytest_cepbench.chains.ray.actor import ChainActor
            from pytest_cepbench.chains.ray.messages import ActorSetup

            self.id = ray.get_runtime_context().get_node_id()
            self.name = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            self.player = ChainActor(ActorSetup(**told), self.name)

        def where(self) -> Any:
            return self.id, self.name

        def bind(self) -> Any:
            return self.player.bind()

        def load(self) -> Any:
            return self.player.load()

        def answer(self, asked: Any) -> Any:
            return self.player.answer(asked)

    return Actor
