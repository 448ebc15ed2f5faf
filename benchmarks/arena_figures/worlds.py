"""Simulated battles under judges with known errors: scores of samples as the arena gives them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

Design = Literal["both", "balanced", "adaptive"]

DESIGNS: tuple[Design, ...] = ("both", "balanced", "adaptive")


class BattleWorld(Protocol):
    """Battles whose scores can be drawn."""

    @property
    def sees(self) -> float:
        """Share of a drop of people's win rate that the judged win rate shows."""
        ...

    def draw(
        self, generator: np.random.Generator, shape: tuple[int, int], wins: float, *, equal: bool
    ) -> Array:
        """(runs, n) scores of the candidate."""
        ...


@dataclass(frozen=True)
class JudgeWorld:
    """Battles that people would give to one side each, and a judge who errs.

    accuracy: share of decided verdicts that agree with people, of a judge without order effect.
    order_effect: logits by which the judge favours the first answer.
    ties: share of verdicts that are ties, whatever people say.
    design: which orders are asked.
    """

    accuracy: float
    order_effect: float
    ties: float
    design: Design

    def __str__(self) -> str:
        return (
            f"{self.design}, accuracy {self.accuracy:g}, order effect {self.order_effect:g}, "
            f"ties {self.ties:g}"
        )

    @property
    def sees(self) -> float:
        """Share of a drop of people's win rate that the judged win rate shows."""
        strength = log(self.accuracy / (1 - self.accuracy))
        right = [1 / (1 + exp(-strength - side * self.order_effect)) for side in (1, -1)]
        shown = (1 - self.ties) * (sum(right) - 1)
        # Half of the mean after a first tie is the second verdict.
        return shown * (1 + self.ties / 2) if self.design == "adaptive" else shown

    def draw(
        self, generator: np.random.Generator, shape: tuple[int, int], wins: float, *, equal: bool
    ) -> Array:
        """(runs, n) scores of the candidate.

        wins: share of the battles that people would give to it.
        equal: whether the answers of each sample are exchanged with probability one half, so that
        candidate and accepted model are the same but for chance.
        """
        better = generator.random(shape) < wins
        if equal:
            better ^= generator.random(shape) < 0.5
        candidate_first = generator.random(shape) < 0.5
        score, tied = self._verdict(generator, better, candidate_first)
        if self.design == "balanced":
            return score
        other, _ = self._verdict(generator, better, ~candidate_first)
        mean = (score + other) / 2
        return mean if self.design == "both" else np.where(tied, mean, score)

    def _verdict(
        self,
        generator: np.random.Generator,
        better: npt.NDArray[np.bool_],
        candidate_first: npt.NDArray[np.bool_],
    ) -> tuple[Array, npt.NDArray[np.bool_]]:
        """The candidate's scores in one order, and which of them are ties."""
        strength = log(self.accuracy / (1 - self.accuracy))
        logits = np.where(better, strength, -strength)
        logits += np.where(candidate_first, self.order_effect, -self.order_effect)
        won = generator.random(better.shape) < 1 / (1 + np.exp(-logits))
        tied = generator.random(better.shape) < self.ties
        return np.where(tied, 0.5, won.astype(np.float64)), tied


def worlds(*, quick: bool) -> Iterator[JudgeWorld]:
    """Judges from .62 to .95, order effects from 0 to .9 logits, ties from 0 to 60 %."""
    for accuracy in (0.62, 0.95) if quick else (0.62, 0.71, 0.82, 0.95):
        for effect in (0.0, 0.9) if quick else (0.0, 0.45, 0.9):
            for ties in (0.0, 0.6) if quick else (0.0, 0.3, 0.6):
                for design in DESIGNS:
                    yield JudgeWorld(accuracy, effect, ties, design)
