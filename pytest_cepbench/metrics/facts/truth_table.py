"""The 2 x 2 table of facts that are read right and drawn right, and the role that loses them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]

Role = Literal["describer", "generator"]


@dataclass(frozen=True)
class TruthTable:
    """Of facts that were checked in a text and in the picture beside it, how many hold where.

    both: the text says them and the picture shows them.
    read: the text alone says them: "read right, drawn wrong".
    drawn: the picture alone shows them: "drawn right, read wrong".
    neither: nor the one nor the other.
    Counts; of soft answers expected counts, as if the two were independent given the answers.
    """

    both: float
    read: float
    drawn: float
    neither: float

    @property
    def total(self) -> float:
        """All facts that were answered on both sides."""
        return self.both + self.read + self.drawn + self.neither

    @property
    def discordant(self) -> float:
        """Share on the off-diagonal, in [0, 1]: text and picture do not agree; 0 of no facts."""
        return (self.read + self.drawn) / self.total if self.total else 0.0


def truth_table(texts: FloatArray, pictures: FloatArray) -> TruthTable:
    """The table of facts in a text and in the picture beside it.

    texts, pictures: equal shapes, answers in [0, 1] on the same facts; a fact without an answer
    (NaN) on either side is left out.
    Source: the agreement of understanding and generation on the same atomic facts, XTC-Bench
    (2026). Exchanging the two sides exchanges `read` and `drawn`.
    Raises ValueError for shapes that differ.
    """
    read, drawn = _pair(texts, pictures)
    return TruthTable(
        both=float((read * drawn).sum()),
        read=float((read * (1 - drawn)).sum()),
        drawn=float(((1 - read) * drawn).sum()),
        neither=float(((1 - read) * (1 - drawn)).sum()),
    )


@dataclass(frozen=True)
class RoleLoss:
    """What the steps of one role do to facts.

    steps: how many steps of a chain are its own.
    right: facts that were right before such a step, over all steps.
    lost: how many of them are wrong after it.
    wrong: facts that were wrong before such a step.
    regained: how many of them are right after it.
    claims: facts that its artifacts claim, true or not; None, as all below, where checkers cannot
    list them.
    untrue: how many of them are not true of the start.
    invented: how many of these the artifact before did not claim.
    changed: how many of the lost facts an invented one of the same kind stands for ("red became
    blue"). Invented ones that are left over were added, or stand for others that were not true.
    """

    role: Role
    steps: int
    right: float
    lost: float
    wrong: float
    regained: float
    claims: float | None = None
    untrue: float | None = None
    invented: float | None = None
    changed: float | None = None

    @property
    def share(self) -> float | None:
        """Share of right facts that a step loses, in [0, 1]; None where none was right before."""
        return self.lost / self.right if self.right else None


def attribute_losses(answers: Iterable[FloatArray], roles: Sequence[Role]) -> tuple[RoleLoss, ...]:
    """How many of the facts that are right before a step are wrong after it, by role.

    answers: of each sample (n_facts, n_steps) in [0, 1], as in `FactAnswers`; before the first
    step all facts are right. A fact without an answer (NaN) before or after a step is left out of
    it.
    roles: (n_steps,) whose step each is.
    Returns one of each role that has a step, in the order in which they come.
    Raises ValueError where a table has another number of steps.
    """
    tables = [np.asarray(table, dtype=np.float64) for table in answers]
    counts = {role: np.zeros(4) for role in dict.fromkeys(roles)}
    for table in tables:
        if table.ndim != 2 or table.shape[1] != len(roles):
            raise ValueError(f"expected answers after {len(roles)} steps, got {table.shape}")
        before = np.ones(len(table))
        for after, role in zip(table.T, roles, strict=True):
            held, holds = _pair(before, after)
            counts[role] += (
                held.sum(),
                (held * (1 - holds)).sum(),
                (1 - held).sum(),
                ((1 - held) * holds).sum(),
            )
            before = after
    return tuple(
        RoleLoss(role, list(roles).count(role), *map(float, own)) for role, own in counts.items()
    )


def _pair(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both, as flat arrays, without the places at which either has no answer."""
    left, right = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if left.shape != right.shape:
        raise ValueError(f"expected answers on the same facts, got {left.shape} and {right.shape}")
    answered = ~(np.isnan(left) | np.isnan(right))
    return left[answered], right[answered]
