"""Actors that were lost on the way: told as infrastructure, since they say nothing of a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock


@dataclass
class NodeLoss:
    """An actor that is gone. why: as far as Ray tells. batches: of it that others made."""

    role: str
    node: str
    why: str
    batches: int = 0


@dataclass
class NodeLosses:
    """All of a run; any thread may add to them. remarks: what else happened to the cluster."""

    all: list[NodeLoss] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def add(self, role: str, node: str, why: str) -> NodeLoss:
        """An actor is gone."""
        with self._lock:
            self.all.append(NodeLoss(role, node, why))
            return self.all[-1]

    def count(self, loss: NodeLoss) -> None:
        """A batch was lost with it, and goes to another."""
        with self._lock:
            loss.batches += 1

    def remark(self, sentence: str) -> None:
        """Something that people have to know, once."""
        with self._lock:
            if sentence not in self.remarks:
                self.remarks.append(sentence)

    def lines(self) -> list[str]:
        """A sentence for what was lost on each node in each way."""
        with self._lock:
            kinds = dict.fromkeys((loss.node, loss.why) for loss in self.all)
            return [self._line(*kind) for kind in kinds] + list(self.remarks)

    def _line(self, node: str, why: str) -> str:
        lost = [loss for loss in self.all if (loss.node, loss.why) == (node, why)]
        roles = Counter(loss.role for loss in lost)
        who = ", ".join(f"{count} {role}" for role, count in roles.items())
        batches = sum(loss.batches for loss in lost)
        actors = "actor" if len(lost) == 1 else "actors"
        fate = (
            f"{batches} batches on their way were asked for again"
            if batches > 1
            else "a batch on its way was asked for again"
            if batches
            else "no batch was lost"
        )
        if not node:
            return f"{len(lost)} {actors} ({who}) lost before they were ready: {why}; {fate}"
        return f"node {node} lost {len(lost)} {actors} ({who}): {why}; {fate}"
