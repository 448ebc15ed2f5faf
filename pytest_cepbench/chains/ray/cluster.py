"""The cluster that a run is connected to: asked what it has, left again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pytest_cepbench.chains.ray.logging_setup import put_back, silenced_ray


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, as Ray sees it."""

    id: str
    name: str
    cpus: float
    gpus: float

    def __str__(self) -> str:
        return f"{self.name} ({self.cpus:g} CPUs, {self.gpus:g} GPUs)"


@dataclass
class Cluster:
    """A connection to a cluster, closed once.

    address: where it is. own: started for this run. borrowed: was connected before, and stays so.
    undo: puts this process back as it was before it was connected, the last one first.
    """

    address: str
    own: bool = False
    borrowed: bool = False
    undo: list[Callable[[], Any]] = field(default_factory=list, repr=False)
    _seen: set[str] = field(default_factory=set, repr=False)

    def nodes(self) -> list[Node]:
        """Those that are alive, by name."""
        import ray

        found = [
            Node(
                one["NodeID"],
                one["NodeManagerAddress"],
                one["Resources"].get("CPU", 0.0),
                one["Resources"].get("GPU", 0.0),
            )
            for one in ray.nodes()  # type: ignore[no-untyped-call]
            if one["Alive"]
        ]
        self._seen.update(node.id for node in found)
        return sorted(found, key=lambda node: (node.name, node.id))

    def has_lost_nodes(self) -> bool:
        """Whether one that was seen is not there any more."""
        return len(self.nodes()) < len(self._seen)

    def is_alive(self, node_id: str) -> bool:
        """Whether a node is."""
        return any(node.id == node_id for node in self.nodes())

    def close(self) -> None:
        """Leave the cluster; one that was started for this run ends."""
        if not self.borrowed:
            import ray

            with silenced_ray():
                ray.shutdown()
        put_back(self.undo)

    def __str__(self) -> str:
        nodes = self.nodes()
        shown = ", ".join(map(str, nodes[:8])) + (", ..." if len(nodes) > 8 else "")
        many = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        what = "started for this run" if self.own else f"at {self.address}"
        return f"Ray cluster {what}, {many}: {shown}"
