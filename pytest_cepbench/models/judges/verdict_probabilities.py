"""Probabilities of the four verdicts, for judges that give them instead of words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_cepbench.artifacts.outcome import WINNERS, Winner

PROBABILITIES = "probabilities"
"""In the provenance of a verdict: its probabilities, as `VerdictProbabilities.to_text` writes."""


@dataclass(frozen=True)
class VerdictProbabilities:
    """How likely a judge holds each verdict.

    values: (4,) in [0, 1], in the order of `WINNERS`; they sum to 1.
    Raises ValueError for others.
    """

    values: tuple[float, float, float, float]

    def __post_init__(self) -> None:
        within = all(0 <= value <= 1 for value in self.values)
        if len(self.values) != len(WINNERS) or not within or abs(sum(self.values) - 1) > 1e-3:
            raise ValueError(f"four probabilities that sum to 1 are expected, got {self.values}")

    @classmethod
    def from_likelihoods(cls, logarithms: Sequence[float]) -> VerdictProbabilities:
        """Softmax of four log-likelihoods, in the order of `WINNERS`."""
        highest = max(logarithms)
        weights = [math.exp(value - highest) for value in logarithms]
        total = sum(weights)
        a, tie_a, tie_b, b = (weight / total for weight in weights)
        return cls((a, tie_a, tie_b, b))

    @property
    def winner(self) -> Winner:
        """The likeliest verdict."""
        return max(zip(self.values, WINNERS, strict=True), key=lambda pair: pair[0])[1]

    @property
    def soft_score(self) -> float:
        """The first answer's expected score, in [0, 1]: p(A) + (p(Tie A) + p(Tie B)) / 2."""
        a, tie_a, tie_b, _ = self.values
        return a + (tie_a + tie_b) / 2

    @property
    def highest(self) -> float:
        """The probability of the likeliest verdict."""
        return max(self.values)

    def expect(self, scores: Mapping[Winner, float]) -> float:
        """The mean of the verdicts' scores."""
        return sum(
            value * scores[winner] for value, winner in zip(self.values, WINNERS, strict=True)
        )

    def allow(self, winner: Winner) -> bool:
        """Whether a verdict is the likeliest, but for the digits that `to_text` leaves out."""
        return self.values[WINNERS.index(winner)] > self.highest - 2e-6

    def to_text(self) -> str:
        """Four numbers with six digits, separated by spaces."""
        return " ".join(f"{value:.6f}" for value in self.values)

    @classmethod
    def from_provenance(cls, provenance: Mapping[str, str]) -> VerdictProbabilities | None:
        """The probabilities beside a stored verdict; None where there are none that make sense."""
        try:
            a, tie_a, tie_b, b = map(float, provenance.get(PROBABILITIES, "").split())
            return cls((a, tie_a, tie_b, b))
        except ValueError:
            return None
