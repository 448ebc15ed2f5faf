"""Sizes of answers: what more words, images or steps win with a judge, whoever answers.

The covariates enter the ordered logit beside the levels of the models and the order effect. Source:
style control in the arenas of chat models (Li et al., 2024), with relative differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_cepbench.metrics.arena.battles import BattleTable, FloatArray, JudgedBattle
from pytest_cepbench.metrics.arena.pair_models import fit_ratings


@dataclass(frozen=True)
class AnswerSize:
    """How large an answer is: its words, as white space parts them, its images and its steps."""

    words: int
    images: int
    steps: int


MEASURES = ("words", "images", "steps")
"""What is counted, in the order in which it enters the model."""

AnswerSizes = Mapping[tuple[str, str], AnswerSize]
"""Question and model -> the size of its answer."""


@dataclass(frozen=True)
class Coefficient:
    """What one standard deviation of the relative difference in size wins.

    logit: in favour of the larger answer.
    error: its standard error, clustered by question.
    """

    logit: float
    error: float


@dataclass(frozen=True)
class SizeEffect:
    """What the size of answers wins, in one measure.

    measure: one of `MEASURES`.
    spread: standard deviation of (first - second) / (first + second) over the battles, in [0, 1].
    judge, people: None where it is the levels of the models or a measure before it in other
        words, where no two answers differ, and where the verdicts tell nothing of the models.
    """

    measure: str
    spread: float
    judge: Coefficient | None
    people: Coefficient | None


@dataclass(frozen=True)
class SizeEffects:
    """What the size of answers wins with a judge and with people.

    battles: those with both answers at hand.
    effects: one for each measure.
    """

    battles: int
    effects: tuple[SizeEffect, ...]


def size_effects(
    judge: Sequence[JudgedBattle], people: Sequence[JudgedBattle], sizes: AnswerSizes
) -> SizeEffects:
    """What size wins over the battles whose answers are at hand.

    judge, people: their verdicts on the same battles.
    sizes: of the answers at hand.
    """
    own, theirs = ([b for b in battles if _is_sized(b, sizes)] for battles in (judge, people))
    spreads = np.sqrt((_differences(theirs, sizes) ** 2).mean(axis=0)) if theirs else np.zeros(3)
    by_judge, by_people = (_coefficients(battles, sizes, spreads) for battles in (own, theirs))
    return SizeEffects(
        battles=len(theirs),
        effects=tuple(
            SizeEffect(name, float(spread), by_judge.get(name), by_people.get(name))
            for name, spread in zip(MEASURES, spreads, strict=True)
        ),
    )


def _is_sized(battle: JudgedBattle, sizes: AnswerSizes) -> bool:
    return all((battle.question, model) in sizes for model in (battle.first, battle.second))


def _differences(battles: Sequence[JudgedBattle], sizes: AnswerSizes) -> FloatArray:
    """(n, 3) relative differences in [-1, 1], above 0 where the first answer is larger."""

    def counts(battle: JudgedBattle, model: str) -> list[int]:
        size = sizes[battle.question, model]
        return [size.words, size.images, size.steps]

    first = np.array([counts(battle, battle.first) for battle in battles], float)
    second = np.array([counts(battle, battle.second) for battle in battles], float)
    differences: FloatArray = (first - second) / np.maximum(first + second, 1)
    return differences


def _coefficients(
    battles: Sequence[JudgedBattle], sizes: AnswerSizes, spreads: FloatArray
) -> dict[str, Coefficient]:
    """The coefficients that verdicts can tell, by measure; each enters where those before allow."""
    if not battles:
        return {}
    table = BattleTable(battles)
    scaled = _differences(battles, sizes) / np.where(spreads > 0, spreads, 1)
    entered: list[int] = []
    fitted: dict[str, Coefficient] = {}
    for column in np.flatnonzero(spreads > 0).tolist():
        try:
            ratings = fit_ratings(table, covariates=scaled[:, [*entered, column]])
        except ValueError:  # another model's level, or another measure, explains the same
            continue
        entered.append(column)
        fitted = {
            MEASURES[i]: Coefficient(float(logit), float(error))
            for i, logit, error in zip(
                entered, ratings.coefficients, ratings.coefficient_errors, strict=True
            )
        }
    return fitted
