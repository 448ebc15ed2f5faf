"""Metrics of interleaved answers: what they lack, their truth, a judge's scores and agreement."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import Answer
from pytest_cepbench.artifacts.outcome import (
    CRITERIA,
    HIGHEST_SCORE,
    OVERALL,
    WINNERS,
    CriteriaScores,
    Criterion,
)
from pytest_cepbench.chains.answers.answering import SampleAnswer
from pytest_cepbench.chains.answers.battles import PairOutcome
from pytest_cepbench.datasets.judged_battles import VERDICT
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes.arena import TRUTH_VERSION, read_question, score_answer, solve
from pytest_cepbench.errors import DatasetError, MeasurementError
from pytest_cepbench.gate.measurement import Blindness
from pytest_cepbench.measures.answer_data import AnswerData, LoadedStep
from pytest_cepbench.measures.base import (
    JUDGE,
    AnswerContext,
    CaseScores,
    MeasureBase,
    Measured,
    MetricTable,
    Parts,
    by_part,
    parts_of,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.metrics.battles import mean_of_rounded_means
from pytest_cepbench.metrics.diversity import FEWEST_ANSWERS
from pytest_cepbench.metrics.judge_agreement import VERDICTS


class AnswerMeasure(MeasureBase):
    """One metric of interleaved answers.

    judged: whether battles are fought for it, so that it needs a judge.
    scored: whether the judge scores single answers for it.
    win_rate: the metric whose accepted answers are battled for it; empty where none are.
    """

    parts: Parts = "overall"
    judged: bool = False
    scored: bool = False
    win_rate: str = ""

    @abstractmethod
    def read(self, samples: Sequence[Sample], data: AnswerData) -> object:
        """Everything that the case needs of these samples; what the store does not hold is made."""

    @abstractmethod
    def measure(self, case: Case, data: AnswerData) -> Measured:
        """The scores of a case."""


def outcome_of_answer(own: SampleAnswer) -> CaseScores:
    """Whether a sample was answered, and who failed where not."""
    return CaseScores(own.sample.id, own.failure, own.blamed)


class LackTable(MetricTable, frozen=True, kw_only=True):
    """no_image, no_text: answers that lack images or texts, in any step or in all of them."""

    of: Literal["any", "all"] = "any"


class TruthTable(MetricTable, frozen=True, kw_only=True):
    """truth: how far answers meet the criteria of a world whose truth is known."""

    criterion: Literal["total", Criterion] = "total"


class CountMeasure(AnswerMeasure):
    """A number that is counted in each answer, 1 where there is none; a share but of step_gap."""

    higher_is_better = False

    @abstractmethod
    def count(self, own: SampleAnswer, answer: Answer) -> float:
        """The number of an answer."""

    def read(self, samples: Sequence[Sample], data: AnswerData) -> dict[str, SampleAnswer]:
        """The answers."""
        return data.answers(samples)

    def measure(self, case: Case, data: AnswerData) -> Measured:
        """A number per sample."""
        parts, samples = parts_of(case, data.dataset)
        answers = data.answers(samples)
        scores = {
            name: 1.0 if own.answer is None else self.count(own, own.answer)
            for name, own in answers.items()
        }
        lost = Counter(failure.kind for own in answers.values() for failure in own.lost_images)
        cut = sum(own.cut for own in answers.values())
        notes = []
        if lost:
            kinds = ", ".join(f"{count} {kind}" for kind, count in lost.most_common())
            notes.append(f"{lost.total()} images of answers failed: {kinds}")
        if cut:
            most = data.plan.most
            notes.append(f"{cut} steps beyond the {most} that an answer may have were cut")
        return Measured(
            by_part(parts, scores),
            samples,
            [outcome_of_answer(own) for own in answers.values()],
            shares=self.span is not None,
            notes=tuple(notes),
        )


class LackMeasure(CountMeasure):
    """1 for an answer that lacks images (texts) in a step, or in every one."""

    def __init__(self, kind: str, name: str, table: LackTable, context: AnswerContext) -> None:
        super().__init__(kind, name, table, context)
        self.of = table.of
        what = "images" if kind == "no_image" else "texts"
        steps = "a step" if table.of == "any" else "every step"
        self.label, self.identity = f"answers without {what} in {steps}", f"{kind}/1 of {table.of}"

    def count(self, own: SampleAnswer, answer: Answer) -> float:
        """1 or 0."""
        text = self.kind == "no_text"
        lacking = [not (step.text if text else step.image) for step in answer.steps]
        return float(any(lacking) if self.of == "any" else all(lacking))


class AnswerFailuresMeasure(CountMeasure):
    """The share of an answer's images that are missing."""

    label = "failure rate"
    identity = "answer-failures/1"

    def count(self, own: SampleAnswer, answer: Answer) -> float:
        """The share."""
        missing = len(own.lost_images)
        return missing / (missing + len(answer.images)) if missing else 0.0


class StepGapMeasure(CountMeasure):
    """How far the number of an answer's steps is from that of the reference answer."""

    label = "gap in steps"
    identity = "step_gap/1"
    span = None

    def count(self, own: SampleAnswer, answer: Answer) -> float:
        """The difference over the reference's number. Raises DatasetError without a reference."""
        gold = len(own.sample.gold)
        if not gold:
            raise DatasetError(
                f"{own.sample.id}: has no reference answer, whose number of steps is to be met"
            )
        return abs(len(answer.steps) - gold) / gold


class TruthMeasure(AnswerMeasure):
    """The truth of answers in the arena of shapes: one of its criteria, or their weighted sum."""

    def __init__(self, kind: str, name: str, table: TruthTable, context: AnswerContext) -> None:
        super().__init__(kind, name, table, context)
        self.criterion = table.criterion
        self.label = "truth" if table.criterion == "total" else table.criterion
        self.identity = f"{TRUTH_VERSION} {table.criterion}"

    def read(self, samples: Sequence[Sample], data: AnswerData) -> dict[str, float]:
        """The truth of the answers."""

        def read(sample: Sample, steps: Sequence[LoadedStep]) -> Sequence[float]:
            pieces = [
                piece if isinstance(piece, str) else piece.load() for piece in sample.question
            ]
            try:
                solution = solve(read_question(pieces))
            except DatasetError as error:
                raise MeasurementError(
                    f"{sample.id}: truth is known of the arena of shapes alone: {error}"
                ) from error
            truth = score_answer(solution, steps)
            return [truth.total, *(getattr(truth, criterion) for criterion in CRITERIA)]

        place = ("total", *CRITERIA).index(self.criterion)
        truths = data.per_answer(TRUTH_VERSION, samples, read)
        return {name: numbers[place] for name, numbers in truths.items()}

    def measure(self, case: Case, data: AnswerData) -> Measured:
        """A score per sample; 0 for one without an answer."""
        parts, samples = parts_of(case, data.dataset)
        known = self.read(samples, data)
        scores = dict.fromkeys((s.id for s in samples), 0.0) | known
        outcomes = [outcome_of_answer(own) for own in data.answers(samples).values()]
        return Measured(by_part(parts, scores), samples, outcomes)


_ALIKE = 0.01
"""Scores in [0, 1] that are all nearer to each other are the same."""

_NOT_MEASURED = "how well this judge's scores agree with people's is not known here"


class CriteriaTable(MetricTable, frozen=True, kw_only=True):
    """criteria: the judge's score of each answer, in one criterion or overall.

    criterion: one of the seven, or "overall", the mean of all seven of an answer.
    """

    criterion: Literal["overall", Criterion] = "overall"


class CriteriaMeasure(AnswerMeasure):
    """The judge's scores, divided by 10.

    A missing answer scores 0: that is the model's failure. A score that the judge does not give is
    none: the sample is left out, and `judge_failures` counts it.
    """

    scored = True

    def __init__(self, kind: str, name: str, table: CriteriaTable, context: AnswerContext) -> None:
        super().__init__(kind, name, table, context)
        self.criterion = criterion = table.criterion
        self.label = "overall score" if criterion == OVERALL else f"{criterion} score"
        self.identity = f"criteria/1 {criterion}"

    def read(self, samples: Sequence[Sample], data: AnswerData) -> dict[str, CriteriaScores]:
        """The answers' scores."""
        return data.scores(samples)

    def measure(self, case: Case, data: AnswerData) -> Measured:
        """A score per sample, in [0, 1]."""
        parts, samples = parts_of(case, data.dataset)
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
            return ", ".join(
                f"{name} {'none' if isinstance(result, Failure) else f'{result.value:.3g}'}"
                for name, result in scores.by_criterion.items()
            )
        result = scores.by_criterion[self.criterion]  # type: ignore[index] # one of the names
        return result.detail if isinstance(result, Failure) else result.justification


class AgreementTable(MetricTable, frozen=True, kw_only=True):
    """agreement: how often a judge's verdicts are the stored ones.

    ties: "forced" counts a tie for the side that it leans to, "three" as an outcome of its own.
    """

    ties: Literal["forced", "three"] = "forced"


class AgreementMeasure(AnswerMeasure):
    """The share of the orders asked in which the judge agrees with the stored verdict of a battle.

    A verdict that it does not give agrees with none. The readings are OpenING's, table 4: ties
    forced ("FDT") and three outcomes.
    """

    parts = "all"
    label = "agreement with stored verdicts"
    judged = True

    def __init__(self, kind: str, name: str, table: AgreementTable, context: AnswerContext) -> None:
        super().__init__(kind, name, table, context)
        self.ties = table.ties
        self.identity = f"agreement/1 ties {table.ties}"

    def read(self, samples: Sequence[Sample], data: AnswerData) -> dict[str, PairOutcome]:
        """The verdicts."""
        return data.battles(samples, None)

    def measure(self, case: Case, data: AnswerData) -> Measured:
        """A share per battle. Raises MeasurementError for data without stored verdicts."""
        parts, samples = parts_of(case, data.dataset)
        fought = data.battles(samples, None)
        reading = VERDICTS["three_way" if self.ties == "three" else "fdt"]
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
                    agreed += reading[WINNERS[own]] == reading[stored]
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
        verdicts = len(given)
        return Measured(
            by_part(parts, scores), samples, outcomes, notes=tuple(notes), verdicts=verdicts
        )
