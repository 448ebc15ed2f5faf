"""Self-preference: how a judge treats models of its own family, beside how people treat them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from pytest_cepbench.metrics.arena.battles import FloatArray, JudgedBattle


@dataclass(frozen=True)
class SelfPreference:
    """What a judge adds to the win rate of its own family against all other models.

    family: the models of its family, sorted.
    battles: those of one of them against a model that is none.
    people, judge: the family's win rate in them, ties as half.
    excess: the judge's less that of people.
    error: standard error of the excess, clustered by question; None of a single question.
    """

    family: tuple[str, ...]
    battles: int
    people: float
    judge: float
    excess: float
    error: float | None


def self_preference(
    battles: Sequence[JudgedBattle],
    scores: Mapping[str, Sequence[float]],
    family: Collection[str],
) -> SelfPreference | None:
    """The preference of a judge for its own family; None where it never met another model.

    battles: those that people judged too.
    scores: "people" and "judge" -> the score of the first answer of each battle, in [0, 1].
    family: the models of the judge's family.
    """
    signs = np.array([(b.first in family) - (b.second in family) for b in battles], float)
    met = signs != 0
    if not met.any():
        return None

    def own(judge: str) -> FloatArray:
        """Scores of the family's answers."""
        values: FloatArray = 0.5 + signs[met] * (np.asarray(scores[judge], float)[met] - 0.5)
        return values

    people, judge = own("people"), own("judge")
    gained = judge - people
    questions = [battle.question for battle, shown in zip(battles, met, strict=True) if shown]
    names, places = np.unique(questions, return_inverse=True)
    sums = np.bincount(places, weights=gained - gained.mean())
    count = len(names)
    error = sqrt(count / (count - 1) * float(sums @ sums)) / len(gained) if count > 1 else None
    return SelfPreference(
        family=tuple(sorted(family)),
        battles=len(gained),
        people=float(people.mean()),
        judge=float(judge.mean()),
        excess=float(gained.mean()),
        error=error,
    )
