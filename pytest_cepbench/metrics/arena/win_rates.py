"""Win rates of models under OpenING's four tie policies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from pytest_cepbench.metrics.arena.battles import BattleTable, FloatArray

TiePolicy = Literal["fdt", "without_ties", "ties_as_zero", "ties_as_half"]
"""fdt (force dividing tie): a tie counts for the model that it leans to. Source: OpenING, 4.2."""

TIE_POLICIES: tuple[TiePolicy, ...] = get_args(TiePolicy)

ForfeitPolicy = Literal["charged_and_credited", "charged", "ignored"]
"""A battle without an answer: lost by the model that gave none and won by its opponent; lost by the
one but not won by the other; or as if it had never been arranged. OpenING's printed panels use one
each (IntJudge, people, GPT-4o)."""


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

        Source: OpenING, section 4.2 and Table 2.
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
    forfeits: Iterable[Forfeit] = (),
    policy: ForfeitPolicy = "charged_and_credited",
) -> dict[str, BattleRecord]:
    """The record of each model, models in alphabetical order.

    A battle that was judged in both orders counts once, half for each verdict.
    """
    models = {name: i for i, name in enumerate(table.models)}
    forfeits = [] if policy == "ignored" else list(forfeits)
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


def pairwise_win_rates(table: BattleTable, policy: TiePolicy) -> FloatArray:
    """Win rate of each model against each other one: (M, M) in [0, 1], NaN where none counts."""
    size = len(table.models)
    counts = np.zeros((size, size, 4))
    np.add.at(counts, (table.first, table.second, table.grades), table.weights)
    np.add.at(counts, (table.second, table.first, 3 - table.grades), table.weights)
    rates = [
        [BattleRecord(*counts[i, j].tolist()).win_rate(policy) for j in range(size)]
        for i in range(size)
    ]
    return np.array([[np.nan if rate is None else rate for rate in row] for row in rates])
