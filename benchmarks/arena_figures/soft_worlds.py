"""Simulated battles under a judge that gives probabilities: soft scores beside verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import log

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from benchmarks.arena_figures.worlds import DESIGNS, Array, Design
from pytest_cepbench.chains.answers.answer_plan import SURE, ScoreName

SCORES: tuple[ScoreName, ...] = ("verdict", "soft")

_MANY = 400_000
"""Battles from which a world's constants are taken."""


@dataclass(frozen=True)
class SoftWorld:
    """Battles that people would give to one side each, and a local judge that errs.

    The judge sees a lead of each answer: logit(accuracy) for the better one, and a logistic error
    of the battle, the same in both orders, since such a judge has no noise of a call. In an order
    the first answer's lead is larger by the order effect. Probabilities of the four verdicts are
    those of an ordered logit in the lead, as in `metrics.pair_models`.

    accuracy: share of decided verdicts that agree with people, of a judge without order effect.
    order_effect: logits by which the judge favours the first answer.
    ties: share of verdicts that are ties.
    confidence: factor of the lead's logits in the probabilities; 1 is calibrated.
    design: which orders are asked.
    score: how a battle is scored.
    """

    accuracy: float
    order_effect: float
    ties: float
    confidence: float
    design: Design
    score: ScoreName

    def __str__(self) -> str:
        return (
            f"{self.design}, {self.score} scores, accuracy {self.accuracy:g}, order effect "
            f"{self.order_effect:g}, ties {self.ties:g}, confidence {self.confidence:g}"
        )

    @cached_property
    def sees(self) -> float:
        """Share of a drop of people's win rate that the judged win rate shows."""
        generator = np.random.default_rng(1)
        wins, losses = (
            self.draw(generator, (1, _MANY), share, equal=False).mean() for share in (1.0, 0.0)
        )
        return float(wins - losses)

    @property
    def spread(self) -> float:
        """Standard deviation of the scores of equal models."""
        scores = self.draw(np.random.default_rng(2), (1, _MANY), 0.5, equal=True)
        return float(scores.std())

    @property
    def calls(self) -> float:
        """Calls a battle, between equal models."""
        if self.design != "adaptive":
            return 2.0 if self.design == "both" else 1.0
        generator = np.random.default_rng(3)
        lead = self._leads(generator, (1, _MANY), 0.5, equal=True) + self.order_effect
        return 1.0 + float(self._doubtful(self._probabilities(lead)).mean())

    def draw(
        self, generator: np.random.Generator, shape: tuple[int, int], wins: float, *, equal: bool
    ) -> Array:
        """(runs, n) scores of the candidate; wins, equal: as of `JudgeWorld.draw`."""
        lead = self._leads(generator, shape, wins, equal=equal)
        candidate_first = generator.random(shape) < 0.5
        score, doubtful = self._judged(lead, candidate_first)
        if self.design == "balanced":
            return score
        other, _ = self._judged(lead, ~candidate_first)
        mean = (score + other) / 2
        return mean if self.design == "both" else np.where(doubtful, mean, score)

    def _leads(
        self, generator: np.random.Generator, shape: tuple[int, int], wins: float, *, equal: bool
    ) -> Array:
        """The candidate's leads, in logits."""
        better = generator.random(shape) < wins
        if equal:
            better ^= generator.random(shape) < 0.5
        strength = log(self.accuracy / (1 - self.accuracy))
        return np.where(better, strength, -strength) + generator.logistic(size=shape)

    def _judged(
        self, lead: Array, candidate_first: npt.NDArray[np.bool_]
    ) -> tuple[Array, npt.NDArray[np.bool_]]:
        """The candidate's scores in one order, and where the second order is worth a call."""
        probabilities = self._probabilities(
            np.where(candidate_first, lead, -lead) + self.order_effect
        )
        worth = np.array([1.0, 0.5, 0.5, 0.0])
        soft = self.score == "soft"
        first = probabilities @ worth if soft else worth[probabilities.argmax(-1)]
        score = np.where(candidate_first, first, 1 - first)
        return score, self._doubtful(probabilities)

    def _doubtful(self, probabilities: Array) -> npt.NDArray[np.bool_]:
        winner = probabilities.argmax(-1)
        doubtful: npt.NDArray[np.bool_] = (
            (probabilities.max(-1) < SURE) | (winner == 1) | (winner == 2)
        )
        return doubtful

    def _probabilities(self, lead: Array) -> Array:
        """(..., 4) probabilities by the first answer's lead, in the order of `WINNERS`."""
        scaled, bound = self.confidence * lead, self.confidence * self._tie_bound
        a, b = expit(scaled - bound), expit(-scaled - bound)
        first = expit(scaled)
        return np.stack([a, first - a, 1 - b - first, b], axis=-1)

    @cached_property
    def _tie_bound(self) -> float:
        """Bound of the ordered logit at which the wanted share of verdicts are ties."""
        generator = np.random.default_rng(4)
        leads = self._leads(generator, (1, _MANY), 0.5, equal=True) + self.order_effect
        largest = float(np.quantile(np.abs(leads), self.ties))
        # Where the lead is so large, the tie is as likely as the first answer.
        return largest - float(logit(expit(self.confidence * largest) / 2)) / self.confidence


def soft_worlds(
    accuracies: Sequence[float], effects: Sequence[float], confidences: Sequence[float]
) -> Iterator[SoftWorld]:
    """Judges in each design, by verdicts and softly; 30 % of the verdicts are ties."""
    for accuracy, effect, confidence in product(accuracies, effects, confidences):
        for design, score in product(DESIGNS, SCORES):
            yield SoftWorld(accuracy, effect, 0.3, confidence, design, score)
