"""The metric of judges under test: how often their verdicts are the stored ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.chains.answers.battles import OrderedVerdict, PairOutcome
from pytest_cepbench.datasets.judged_battles import VERDICT
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.suites.answer_data import AnswerData
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.measures.answer_base import JUDGE, CaseOpponents, by_part
from pytest_cepbench.suites.measures.base import (
    CaseScores,
    Measured,
    MetricTable,
    Parts,
    Pool,
    by_category,
    everyone,
)

Reading = Literal["forced", "three"]
"""How verdicts are compared: a tie is for the side that it leans to, or an outcome of its own."""


class AgreementTable(MetricTable, frozen=True, kw_only=True):
    """agreement: how often a judge's verdicts are the stored ones.

    ties: "forced" counts a tie for the side that it leans to, "three" as an outcome of its own.
    """

    ties: Reading = "forced"


@dataclass(frozen=True)
class AgreementMeasure:
    """The share of the orders asked in which the judge agrees with the stored verdict of a battle.

    A verdict that it does not give agrees with none. The readings are OpenING's, table 4: ties
    forced ("FDT") and three outcomes.
    """

    name: str
    ties: Reading
    pool: Pool
    parts: Parts
    label: str = "agreement with stored verdicts"
    higher_is_better: bool = True
    own_parts: tuple[str, ...] = ()
    per_sample: bool = True
    span: float | None = 1.0
    judged: bool = True
    scored: bool = False
    win_rate: str = ""

    @property
    def identity(self) -> str:
        """The definition."""
        return f"agreement/1 ties {self.ties}"

    def read(self, _: Case, samples: Sequence[Sample], data: AnswerData, __: CaseOpponents) -> None:
        """The verdicts."""
        data.gold_battles(samples)

    def measure(self, case: Case, data: AnswerData, _: CaseOpponents) -> Measured:
        """A share per battle. Raises MeasurementError for data without stored verdicts."""
        parts = by_category(case, data)
        samples = everyone(parts)
        fought = data.gold_battles(samples)
        scores = {s.id: self._share(s, fought[s.id]) for s in samples}
        outcomes = [_outcome(s, fought[s.id]) for s in samples]
        given = [v for outcome in fought.values() for v in outcome.verdicts]
        failed = sum(len(outcome.failures) for outcome in fought.values())
        notes = [_order_note(given)] if given else []
        if failed:
            notes.append(f"{failed} of {len(given)} verdicts were not given: each counts as wrong")
        verdicts = len(given) - failed
        return Measured(
            by_part(parts, scores), samples, outcomes, notes=tuple(notes), verdicts=verdicts
        )

    def _share(self, sample: Sample, outcome: PairOutcome) -> float:
        stored = sample.metadata.get(VERDICT)
        if stored not in WINNERS:
            raise MeasurementError(
                f"{sample.id} has no stored verdict, which {self.name!r} is agreement with: use "
                'the loader "judged-battles"'
            )
        if not outcome.verdicts:
            raise MeasurementError(
                f"{sample.id}: both of its answers are the same, so no judge can choose"
            )
        right = self._reading(stored)
        agreed = [self._reading(_unmirrored(verdict)) == right for verdict in outcome.verdicts]
        return sum(agreed) / len(agreed)

    def _reading(self, winner: Winner | None) -> str | None:
        if winner is None:
            return None
        if self.ties == "three" and winner in ("Tie(A)", "Tie(B)"):
            return "tie"
        return "first" if winner in ("A", "Tie(A)") else "second"


def _unmirrored(verdict: OrderedVerdict) -> Winner | None:
    """The verdict as if the sample's own answer had been shown first; None where there is none."""
    if isinstance(verdict.winner, Failure):
        return None
    if verdict.candidate_first:
        return verdict.winner
    return WINNERS[len(WINNERS) - 1 - WINNERS.index(verdict.winner)]


def _outcome(sample: Sample, outcome: PairOutcome) -> CaseScores:
    """Failed where no order gave a verdict: a server that answers nothing is no worse judge."""
    failures = outcome.failures
    failed = bool(outcome.verdicts) and len(failures) == len(outcome.verdicts)
    return CaseScores(sample.id, failures[0] if failed else None, JUDGE if failed else None)


def _order_note(verdicts: Sequence[OrderedVerdict]) -> str:
    given = [verdict.winner for verdict in verdicts if not isinstance(verdict.winner, Failure)]
    first = sum(winner in ("A", "Tie(A)") for winner in given)
    share = first / len(given) if given else 0.0
    return f"{len(given)} verdicts, {share:.0%} of them for the answer that was shown first"
