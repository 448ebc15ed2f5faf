"""Battles: which models meet over which question, which answer a judge prefers, and win rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import combinations
from math import comb
from statistics import fmean
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts.outcome import WINNERS, AnswerError, Winner

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

FIRST_SCORES: dict[Winner, float] = {"A": 1.0, "Tie(A)": 0.5, "Tie(B)": 0.5, "B": 0.0}
"""What a verdict is worth to the answer that was shown first."""


@dataclass(frozen=True)
class JudgedBattle:
    """One verdict of a judge.

    question: id of the question; its battles are one cluster.
    first, second: the models that answered, in the order in which the judge saw them.
    winner: the verdict.
    errors: of the first answer and of the second, as people saw them.
    """

    question: str
    first: str
    second: str
    winner: Winner
    errors: tuple[tuple[AnswerError, ...], tuple[AnswerError, ...]] = ((), ())


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


_DIGITS = 2


def mean_of_rounded_means(scores: Mapping[str, Sequence[float]]) -> tuple[float, dict[str, float]]:
    """The overall score, and the mean of each criterion, all with two digits.

    scores: criterion -> its scores, in [0, 10], at least one each. Criteria need not have equally
    many.
    The overall score is the mean of the rounded means, which is not the rounded mean of all scores.
    Source: OpenING's script summarize_GPT_scores.py.
    Raises ValueError where there is no score, or none of a criterion.
    """
    means = {name: round(fmean(values), _DIGITS) for name, values in scores.items()}
    return round(fmean(means.values()), _DIGITS), means


TiePolicy = Literal["fdt", "without_ties", "ties_as_zero", "ties_as_half"]
"""fdt (force dividing tie): a tie counts for the model that it leans to. Source: OpenING, 5.1."""

TIE_POLICIES: tuple[TiePolicy, ...] = get_args(TiePolicy)

ForfeitPolicy = Literal["charged_and_credited", "charged"]
"""A battle without an answer: lost by the model that gave none and won by its opponent; lost by the
one but not won by the other. OpenING's printed panels of IntJudge and of people use one each."""


@dataclass(frozen=True)
class Forfeit:
    """A battle that nobody could judge, since a model gave no answer.

    question: id of the question.
    model: gave no answer.
    opponent: gave one.
    """

    question: str
    model: str
    opponent: str


@dataclass(frozen=True)
class BattleRecord:
    """The battles of one model; fractions where a battle was judged in both orders.

    wins, losses: decided.
    ties_for, ties_against: ties that lean to it, and to its opponents.
    """

    wins: float = 0
    ties_for: float = 0
    ties_against: float = 0
    losses: float = 0

    @property
    def battles(self) -> float:
        """All of them."""
        return self.wins + self.ties_for + self.ties_against + self.losses

    def win_rate(self, policy: TiePolicy) -> float | None:
        """Share of its battles that it won, in [0, 1]; None where no battle counts.

        Source: OpenING, section 5.1 and Table 2.
        """
        ties = self.ties_for + self.ties_against
        won = {
            "fdt": self.wins + self.ties_for,
            "without_ties": self.wins,
            "ties_as_zero": self.wins,
            "ties_as_half": self.wins + ties / 2,
        }[policy]
        counted = self.battles - ties if policy == "without_ties" else self.battles
        return won / counted if counted else None


def battle_records(
    table: BattleTable,
    forfeits: Sequence[Forfeit] = (),
    policy: ForfeitPolicy = "charged_and_credited",
) -> dict[str, BattleRecord]:
    """The record of each model, models in alphabetical order.

    A battle that was judged in both orders counts once, half for each verdict.
    """
    models = {name: i for i, name in enumerate(table.models)}
    for forfeit in forfeits:
        for name in (forfeit.model, forfeit.opponent):
            models.setdefault(name, len(models))
    counts = np.zeros((len(models), 4))
    np.add.at(counts, (table.first, table.grades), table.weights)
    np.add.at(counts, (table.second, 3 - table.grades), table.weights)
    for forfeit in forfeits:
        counts[models[forfeit.model], 3] += 1
        counts[models[forfeit.opponent], 0] += policy == "charged_and_credited"
    records = {name: BattleRecord(*counts[i].tolist()) for name, i in models.items()}
    return dict(sorted(records.items()))


@dataclass(frozen=True)
class Pairing:
    """Two models that answer the same question; `first` is shown to the judge first."""

    question: str
    first: str
    second: str


def roulette(
    models: Sequence[str], tasks: Mapping[str, Sequence[str]], rounds: int = 2, seed: int = 0
) -> list[Pairing]:
    """The battles of a panel: `rounds` for each question, no pair twice for the same question.

    models: two or more different names.
    tasks: task -> ids of its questions, in order.
    rounds: at least 1 and at most the number of pairs.
    Each task puts the models on a ring, in an order that follows from seed and task alone, so that
    every process draws the same. Round r joins the models that stand r apart; strides below half
    of the ring have no pair in common. Further rounds take the pairs that are left, by digest.
    Source: OpenING, section 4.1, whose code repeats pairs and doubles the battles in each round.
    Raises ValueError for other arguments.
    """
    pairs = comb(len(models), 2)
    if len(set(models)) < len(models) or len(models) < 2:
        raise ValueError(f"expected two or more different models, got {list(models)}")
    if not 1 <= rounds <= pairs:
        raise ValueError(
            f"expected 1 to {pairs} rounds: {len(models)} models make {pairs} pairs; got {rounds}"
        )
    battles = []
    size = len(models)
    strides = range(1, max((size - 1) // 2, 1) + 1)[:rounds]
    for task, questions in tasks.items():
        ring = sorted(models, key=lambda name: _digest(seed, task, name))
        offset = _digest(seed, task, "offset") % size
        for i, question in enumerate(questions):
            place = offset + i
            made = [(ring[place % size], ring[(place + stride) % size]) for stride in strides]
            if rounds > len(made):
                met = {frozenset(pair) for pair in made}
                rest = [
                    pair for pair in combinations(sorted(ring), 2) if frozenset(pair) not in met
                ]
                rest.sort(key=lambda pair: _digest(seed, question, *pair))
                made += rest[: rounds - len(made)]
            for left, right in made:
                swapped = _digest(seed, question, *sorted((left, right))) % 2
                first, second = sorted((left, right), reverse=bool(swapped))
                battles.append(Pairing(question, first, second))
    return battles


def _digest(*parts: object) -> int:
    return int.from_bytes(sha256("\0".join(map(str, parts)).encode()).digest()[:8])
