"""Battles: two answers to one question, and which of them a judge prefers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts.outcome import WINNERS, Winner

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class JudgedBattle:
    """One verdict of a judge.

    question: id of the question; its battles are one cluster.
    first, second: the models that answered, in the order in which the judge saw them.
    winner: the verdict.
    """

    question: str
    first: str
    second: str
    winner: Winner


class BattleTable:
    """The verdicts of one judge as columns.

    models: their names, sorted.
    first, second: (n,) indices of `models`.
    grades: (n,) indices of `WINNERS`, from 0 (A) to 3 (B).
    questions: (n,) one number for each question.
    """

    def __init__(self, battles: Sequence[JudgedBattle]) -> None:
        """Raises ValueError for no battles, a model against itself, or one battle judged twice."""
        if not battles:
            raise ValueError("expected at least one battle")
        _check(battles)
        names = sorted({name for battle in battles for name in (battle.first, battle.second)})
        index = {name: i for i, name in enumerate(names)}
        grades = {winner: i for i, winner in enumerate(WINNERS)}
        numbers = {question: i for i, question in enumerate({b.question: None for b in battles})}
        self.models: tuple[str, ...] = tuple(names)
        self.first: IntArray = np.array([index[battle.first] for battle in battles])
        self.second: IntArray = np.array([index[battle.second] for battle in battles])
        self.grades: IntArray = np.array([grades[battle.winner] for battle in battles])
        self.questions: IntArray = np.array([numbers[battle.question] for battle in battles])

    def __len__(self) -> int:
        """How many verdicts."""
        return len(self.grades)

    @cached_property
    def weights(self) -> FloatArray:
        """(n,) 1 for a battle judged in one order, 1/2 for each verdict of one judged in both."""
        low, high = np.minimum(self.first, self.second), np.maximum(self.first, self.second)
        keys = (self.questions * len(self.models) + low) * len(self.models) + high
        _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
        weights: FloatArray = 1 / counts[inverse]
        return weights


def _check(battles: Iterable[JudgedBattle]) -> None:
    seen: Counter[tuple[str, str, str]] = Counter()
    for battle in battles:
        if battle.first == battle.second:
            raise ValueError(
                f"question {battle.question!r}: {battle.first!r} cannot battle against itself"
            )
        seen[battle.question, battle.first, battle.second] += 1
    repeated = [key for key, count in seen.items() if count > 1]
    if repeated:
        question, first, second = repeated[0]
        more = f", and {len(repeated) - 1} more" if len(repeated) > 1 else ""
        raise ValueError(
            f"question {question!r}: {first!r} against {second!r} was judged "
            f"{seen[repeated[0]]} times in this order{more}; keep one verdict of each"
        )
