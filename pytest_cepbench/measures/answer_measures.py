"""Metrics of a judge: its scores of answers by criteria, and its agreement with stored verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import (
    CRITERIA,
    HIGHEST_SCORE,
    OVERALL,
    WINNERS,
    CriteriaScores,
    Criterion,
    CriterionResult,
    Winner,
)
from pytest_cepbench.chains.answers.battles import PairOutcome
from pytest_cepbench.datasets.judged_battles import VERDICT
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.gate.measurement import Blindness
from pytest_cepbench.measures.answer_contents import (
    AnswerMeasure,
    CaseOpponents,
    outcome_of_answer,
)
from pytest_cepbench.measures.answer_data import AnswerData
from pytest_cepbench.measures.base import (
    JUDGE,
    AnswerContext,
    Battled,
    CaseScores,
    Measured,
    MetricTable,
    by_part,
    parts_of,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.metrics.battles import mean_of_rounded_means
from pytest_cepbench.metrics.constancy import FEWEST_ANSWERS

_ALIKE = 0.01
"""Scores in [0, 1] that are all nearer to each other are the same."""

_NOT_MEASURED = "how well this judge's scores agree with people's is not known here"


class CriteriaTable(MetricTable, frozen=True, kw_only=True):
    """criteria: the judge's score of each answer, in one criterion or overall.

    criterion: one of the seven, or "overall", the mean of all seven of an answer.
    """

    criterion: Literal["overall", Criterion] = "overall"


@dataclass(frozen=True, kw_only=True)
class CriteriaMeasure(AnswerMeasure):
    """The judge's scores, divided by 10.

    A missing answer scores 0: that is the model's failure. A score that the judge does not give is
    none: the sample is left out, and `judge_failures` counts it.
    """

    criterion: str
    scored: bool = True

    def read(
        self, case: Case, samples: Sequence[Sample], data: AnswerData, opponents: CaseOpponents
    ) -> dict[str, CriteriaScores]:
        """The answers' scores."""
        return data.scores(samples)

    def measure(self, case: Case, data: AnswerData, opponents: CaseOpponents) -> Measured:
        """A score per sample, in [0, 1]."""
        parts, samples = parts_of(case, data)
        answers, given = data.answers(samples), data.scores(samples)
        known = {name: own.value(self.criterion) for name, own in given.items()}
        values = [value / HIGHEST_SCORE for value in known.values() if value is not None]
        scores = {name: (known.get(name) or 0.0) / HIGHEST_SCORE for name in answers}
        blind = None
        if len(values) >= FEWEST_ANSWERS and max(values) - min(values) < _ALIKE:
            blind = Blindness(
                f"the judge cannot see a drop: all {len(values)} answers have the score "
                f"{values[0] * HIGHEST_SCORE:.3g} by it",
                1.0,
            )
        notes = [_NOT_MEASURED]
        if self.criterion == OVERALL and given:
            by_criterion: dict[str, list[float]] = {
                name: [value for own in given.values() if (value := own.value(name)) is not None]
                for name in CRITERIA
            }
            if all(by_criterion.values()):  # as OpenING's table has it, of the answers at hand
                overall, means = mean_of_rounded_means(by_criterion)
                shown = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
                notes.append(
                    f"OpenING's overall, the mean of the rounded means: {overall:.2f} ({shown})"
                )
        return Measured(
            by_part(parts, scores),
            samples,
            [
                CaseScores(name, given[name].failures[0], JUDGE)
                if name in known and known[name] is None
                else outcome_of_answer(own)
                for name, own in answers.items()
            ],
            notes=tuple(notes),
            blind=blind,
        )

    def explain(self, scores: CriteriaScores) -> str:
        """The judge's own words on an answer's score, or which scores make it up."""
        if self.criterion == OVERALL:
            shown = (f"{name} {_shown(result)}" for name, result in scores.by_criterion.items())
            return ", ".join(shown)
        result = scores.by_criterion[self.criterion]  # type: ignore[index] # one of the names
        return result.detail if isinstance(result, Failure) else result.justification


def _shown(result: CriterionResult) -> str:
    return "none" if isinstance(result, Failure) else f"{result.value:.3g}"


Reading = Literal["forced", "three"]
"""How verdicts are compared: a tie is for the side that it leans to, or an outcome of its own."""


class AgreementTable(MetricTable, frozen=True, kw_only=True):
    """agreement: how often a judge's verdicts are the stored ones.

    ties: "forced" counts a tie for the side that it leans to, "three" as an outcome of its own.
    """

    ties: Reading = "forced"


@dataclass(frozen=True, kw_only=True)
class AgreementMeasure(AnswerMeasure):
    """The share of the orders asked in which the judge agrees with the stored verdict of a battle.

    A verdict that it does not give agrees with none. The readings are OpenING's, table 4: ties
    forced ("FDT") and three outcomes.
    """

    ties: Reading
    judged: bool = True

    def read(
        self, case: Case, samples: Sequence[Sample], data: AnswerData, opponents: CaseOpponents
    ) -> dict[str, PairOutcome]:
        """The verdicts."""
        return data.battles(samples, None)

    def measure(self, case: Case, data: AnswerData, opponents: CaseOpponents) -> Measured:
        """A share per battle. Raises MeasurementError for data without stored verdicts."""
        parts, samples = parts_of(case, data)
        fought = data.battles(samples, None)
        scores: dict[str, float] = {}
        outcomes = []
        for sample in samples:
            stored, outcome = sample.metadata.get(VERDICT), fought[sample.id]
            if stored not in WINNERS:
                raise MeasurementError(
                    f"{sample.id} has no stored verdict, which {self.name!r} is agreement with: "
                    'use the loader "judged-battles"'
                )
            if not outcome.verdicts:
                raise MeasurementError(
                    f"{sample.id}: both of its answers are the same, so no judge can choose"
                )
            agreed = 0
            for verdict in outcome.verdicts:
                if not isinstance(verdict.winner, Failure):
                    place = WINNERS.index(verdict.winner)
                    # As if the sample's own answer had been shown first.
                    own = place if verdict.candidate_first else len(WINNERS) - 1 - place
                    agreed += self._reading(WINNERS[own]) == self._reading(stored)
            scores[sample.id] = agreed / len(outcome.verdicts)
            # A server that answers one order alone is no worse judge.
            silent = len(outcome.failures) == len(outcome.verdicts)
            failure = outcome.failures[0] if silent else None
            outcomes.append(CaseScores(sample.id, failure, JUDGE if silent else None))
        asked = [v.winner for outcome in fought.values() for v in outcome.verdicts]
        given = [winner for winner in asked if not isinstance(winner, Failure)]
        notes = []
        if asked:
            first = sum(winner in ("A", "Tie(A)") for winner in given)
            share = first / len(given) if given else 0.0
            notes.append(
                f"{len(given)} verdicts, {share:.0%} of them for the answer that was shown first"
            )
        if failed := len(asked) - len(given):
            notes.append(f"{failed} of {len(asked)} verdicts were not given: each counts as wrong")
        return Measured(
            by_part(parts, scores),
            samples,
            outcomes,
            notes=tuple(notes),
            battles=Battled(verdicts=len(given)),
        )

    def _reading(self, winner: Winner) -> str:
        if self.ties == "three" and winner in ("Tie(A)", "Tie(B)"):
            return "tie"
        return "first" if winner in ("A", "Tie(A)") else "second"


def make_criteria(
    kind: str, name: str, table: CriteriaTable, context: AnswerContext
) -> CriteriaMeasure:
    """The measure of a table; there is one kind."""
    criterion = table.criterion
    return CriteriaMeasure(
        **table.shared(name, parts="overall"),
        label="overall score" if criterion == OVERALL else f"{criterion} score",
        identity=f"criteria/1 {criterion}",
        criterion=criterion,
    )


def make_agreement(
    kind: str, name: str, table: AgreementTable, context: AnswerContext
) -> AgreementMeasure:
    """The measure of a table; there is one kind."""
    return AgreementMeasure(
        **table.shared(name),
        label="agreement with stored verdicts",
        identity=f"agreement/1 ties {table.ties}",
        ties=table.ties,
    )
