"""criteria: how a judge scores single answers by OpenING's seven criteria."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import (
    CRITERIA,
    HIGHEST_SCORE,
    OVERALL,
    CriteriaScores,
    Criterion,
    CriterionResult,
)
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.gate.measurement import Blindness
from pytest_cepbench.metrics.arena import mean_of_rounded_means
from pytest_cepbench.metrics.constancy import FEWEST_ANSWERS
from pytest_cepbench.suites.answer_data import AnswerData
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.measures.answer_base import (
    JUDGE,
    CaseOpponents,
    by_part,
    outcome_of_answer,
)
from pytest_cepbench.suites.measures.base import (
    CaseScores,
    Measured,
    MetricTable,
    Parts,
    Pool,
    by_category,
    everyone,
)

_ALIKE = 0.01
"""Scores in [0, 1] that are all nearer to each other are the same."""

_NOT_MEASURED = "how well this judge's scores agree with people's is not known here"


class CriteriaTable(MetricTable, frozen=True, kw_only=True):
    """criteria: the judge's score of each answer, in one criterion or overall.

    criterion: one of the seven, or "overall", the mean of all seven of an answer.
    """

    criterion: Literal["overall", Criterion] = "overall"


@dataclass(frozen=True)
class CriteriaMeasure:
    """The judge's scores, divided by 10.

    A missing answer scores 0: that is the model's failure. A score that the judge does not give is
    none: the sample is left out, and `judge_failures` counts it. See `AnswerMeasure`.
    """

    name: str
    criterion: str
    pool: Pool
    parts: Parts
    higher_is_better: bool = True
    own_parts: tuple[str, ...] = ()
    per_sample: bool = True
    span: float | None = 1.0
    judged: bool = False
    scored: bool = True
    win_rate: str = ""

    @property
    def label(self) -> str:
        """Its name for people."""
        return "overall score" if self.criterion == OVERALL else f"{self.criterion} score"

    @property
    def identity(self) -> str:
        """The definition."""
        return f"criteria/1 {self.criterion}"

    def read(self, _: Case, samples: Sequence[Sample], data: AnswerData, __: CaseOpponents) -> None:
        """The answers and their scores."""
        data.scores(samples)

    def measure(self, case: Case, data: AnswerData, _: CaseOpponents) -> Measured:
        """A score per sample, in [0, 1]."""
        parts = by_category(case, data)
        samples = everyone(parts)
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
        return Measured(
            by_part(parts, scores),
            samples,
            [
                CaseScores(name, given[name].failures[0], JUDGE)
                if name in known and known[name] is None
                else outcome_of_answer(own)
                for name, own in answers.items()
            ],
            notes=tuple(self._notes(given)),
            blind=blind,
        )

    def explain(self, scores: CriteriaScores) -> str:
        """The judge's own words on an answer's score, or which scores make it up."""
        if self.criterion == OVERALL:
            shown = (f"{name} {_shown(result)}" for name, result in scores.by_criterion.items())
            return ", ".join(shown)
        result = scores.by_criterion[self.criterion]  # type: ignore[index] # one of the names
        return result.detail if isinstance(result, Failure) else result.justification

    def _notes(self, given: Mapping[str, CriteriaScores]) -> Iterator[str]:
        yield _NOT_MEASURED
        if self.criterion == OVERALL and given:
            yield from _published_overall(given)


def _shown(result: CriterionResult) -> str:
    return "none" if isinstance(result, Failure) else f"{result.value:.3g}"


def _published_overall(given: Mapping[str, CriteriaScores]) -> Iterator[str]:
    """The overall score as OpenING's table has it, of the answers that there are."""
    by_criterion: dict[str, list[float]] = {
        name: [value for own in given.values() if (value := own.value(name)) is not None]
        for name in CRITERIA
    }
    if all(by_criterion.values()):
        overall, means = mean_of_rounded_means(by_criterion)
        shown = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
        yield f"OpenING's overall, the mean of the rounded means: {overall:.2f} ({shown})"
