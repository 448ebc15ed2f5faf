"""The interface of metrics of interleaved answers, and what they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pytest_cepbench.chains.answers.answering import SampleAnswer
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.suites.answer_data import AnswerData, Opponents
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.measures.base import CaseMeasure, CaseScores, Measured

JUDGE = "judge"

Against = Literal["accepted", "gold"]
"""What answers battle: the accepted ones, or the reference answers."""


@dataclass(frozen=True)
class CaseOpponents:
    """The accepted answers that a case's answers battle; None where nothing was accepted.

    accepted: of the last baseline. anchor: of the anchor, where it is another one.
    """

    accepted: Opponents | None = None
    anchor: Opponents | None = None


class AnswerMeasure(CaseMeasure, Protocol):
    """One metric of interleaved answers, with its settings."""

    @property
    def judged(self) -> bool:
        """Whether battles are fought for it, so that it needs a judge."""

    @property
    def scored(self) -> bool:
        """Whether the judge scores single answers for it."""

    @property
    def win_rate(self) -> str:
        """The metric whose accepted answers are battled for it; empty where none are."""

    def read(
        self,
        case: Case,
        samples: Sequence[Sample],
        data: AnswerData,
        opponents: CaseOpponents,
    ) -> None:
        """Have everything made that the case needs of these samples and the store does not hold."""

    def measure(self, case: Case, data: AnswerData, opponents: CaseOpponents) -> Measured:
        """The scores of a case."""


def outcome_of_answer(own: SampleAnswer) -> CaseScores:
    """Whether a sample was answered, and who failed where not."""
    return CaseScores(own.sample.id, own.failure, own.blamed)


def by_part(
    parts: Mapping[str, Sequence[Sample]], scores: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Scores of samples by the part of the case that pools them."""
    return {name: {s.id: scores[s.id] for s in samples} for name, samples in parts.items()}
