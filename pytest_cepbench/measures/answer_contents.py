"""Metrics of what is in interleaved answers: what they lack, their number of steps, their truth."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pytest_cepbench.artifacts.outcome import Criterion
from pytest_cepbench.chains.answers.answering import SampleAnswer
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes.arena import (
    CRITERIA,
    TRUTH_VERSION,
    read_question,
    score_answer,
    solve,
)
from pytest_cepbench.errors import DatasetError, MeasurementError
from pytest_cepbench.measures.answer_data import AnswerData, LoadedStep, Opponents
from pytest_cepbench.measures.base import (
    AnswerContext,
    CaseScores,
    MeasureBase,
    Measured,
    MetricTable,
    by_part,
    parts_of,
)
from pytest_cepbench.measures.cases import Case


@dataclass(frozen=True)
class CaseOpponents:
    """The accepted answers that a case's answers battle; None where nothing was accepted.

    accepted: of the last baseline. anchor: of the anchor, where it is another one.
    """

    accepted: Opponents | None = None
    anchor: Opponents | None = None


@dataclass(frozen=True, kw_only=True)
class AnswerMeasure(MeasureBase):
    """One metric of interleaved answers.

    judged: whether battles are fought for it, so that it needs a judge.
    scored: whether the judge scores single answers for it.
    win_rate: the metric whose accepted answers are battled for it; empty where none are.
    """

    judged: bool = False
    scored: bool = False
    win_rate: str = ""

    @abstractmethod
    def read(
        self,
        case: Case,
        samples: Sequence[Sample],
        data: AnswerData,
        opponents: CaseOpponents,
    ) -> object:
        """Everything that the case needs of these samples; what the store does not hold is made."""

    @abstractmethod
    def measure(self, case: Case, data: AnswerData, opponents: CaseOpponents) -> Measured:
        """The scores of a case."""


def outcome_of_answer(own: SampleAnswer) -> CaseScores:
    """Whether a sample was answered, and who failed where not."""
    return CaseScores(own.sample.id, own.failure, own.blamed)


class LackTable(MetricTable, frozen=True, kw_only=True):
    """no_image, no_text: answers that lack images or texts, in any step or in all of them."""

    of: Literal["any", "all"] = "any"


class AnswerFailuresTable(MetricTable, frozen=True, kw_only=True):
    """failures: the share of answers that are missing, and of images that are missing in others."""


class StepGapTable(MetricTable, frozen=True, kw_only=True):
    """step_gap: by how many steps answers differ from the reference answer's number."""


class TruthTable(MetricTable, frozen=True, kw_only=True):
    """truth: how far answers meet the criteria of a world whose truth is known."""

    criterion: Literal["total", Criterion] = "total"


@dataclass(frozen=True, kw_only=True)
class CountMeasure(AnswerMeasure):
    """A number that is counted in each answer, 1 where there is none.

    count: of an answer.
    shares: whether the numbers are shares, in [0, 1].
    """

    count: Callable[[SampleAnswer], float] = field(repr=False)  # the identity names it
    shares: bool = True
    higher_is_better: bool = False

    def read(
        self, case: Case, samples: Sequence[Sample], data: AnswerData, opponents: CaseOpponents
    ) -> dict[str, SampleAnswer]:
        """The answers."""
        return data.answers(samples)

    def measure(self, case: Case, data: AnswerData, opponents: CaseOpponents) -> Measured:
        """A number per sample."""
        parts, samples = parts_of(case, data)
        answers = data.answers(samples)
        scores = {
            name: 1.0 if own.answer is None else self.count(own) for name, own in answers.items()
        }
        lost = Counter(failure.kind for own in answers.values() for failure in own.lost_images)
        cut = sum(own.cut for own in answers.values())
        notes = []
        if lost:
            kinds = ", ".join(f"{count} {kind}" for kind, count in lost.most_common())
            notes.append(f"{lost.total()} images of answers failed: {kinds}")
        if cut:
            notes.append(
                f"{cut} steps beyond the {data.plan.most} that an answer may have were cut"
            )
        return Measured(
            by_part(parts, scores),
            samples,
            [outcome_of_answer(own) for own in answers.values()],
            shares=self.shares,
            notes=tuple(notes),
        )


@dataclass(frozen=True, kw_only=True)
class TruthMeasure(AnswerMeasure):
    """The truth of answers in the arena of shapes: one of its criteria, or their weighted sum."""

    criterion: str

    def read(
        self, case: Case, samples: Sequence[Sample], data: AnswerData, opponents: CaseOpponents
    ) -> dict[str, float]:
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

    def measure(self, case: Case, data: AnswerData, opponents: CaseOpponents) -> Measured:
        """A score per sample; 0 for one without an answer."""
        parts, samples = parts_of(case, data)
        known = self.read(case, samples, data, opponents)
        scores = dict.fromkeys((s.id for s in samples), 0.0) | known
        outcomes = [outcome_of_answer(own) for own in data.answers(samples).values()]
        return Measured(by_part(parts, scores), samples, outcomes)


def make_count(kind: str, name: str, table: MetricTable, context: AnswerContext) -> CountMeasure:
    """The measure of a table of `no_image`, `no_text`, `failures` or `step_gap`."""

    def lacks(own: SampleAnswer) -> float:
        assert isinstance(table, LackTable)
        assert own.answer is not None
        steps = own.answer.steps
        lacking = [not (step.text if kind == "no_text" else step.image) for step in steps]
        return float(any(lacking) if table.of == "any" else all(lacking))

    def gap(own: SampleAnswer) -> float:
        assert own.answer is not None
        gold = len(own.sample.gold)
        if not gold:
            raise DatasetError(
                f"{own.sample.id}: has no reference answer, whose number of steps is to be met"
            )
        return abs(len(own.answer.steps) - gold) / gold

    def lost(own: SampleAnswer) -> float:
        assert own.answer is not None
        missing = len(own.lost_images)
        return missing / (missing + len(own.answer.images)) if missing else 0.0

    shared = table.shared(name, parts="overall")
    if isinstance(table, LackTable):
        what = "images" if kind == "no_image" else "texts"
        steps = "a step" if table.of == "any" else "every step"
        label, identity = f"answers without {what} in {steps}", f"{kind}/1 of {table.of}"
        return CountMeasure(**shared, label=label, identity=identity, count=lacks)
    if isinstance(table, StepGapTable):
        shared |= {"shares": False, "span": None, "count": gap}
        return CountMeasure(**shared, label="gap in steps", identity="step_gap/1")
    return CountMeasure(**shared, label="failure rate", identity="answer-failures/1", count=lost)


def make_truth(kind: str, name: str, table: TruthTable, context: AnswerContext) -> TruthMeasure:
    """The measure of a table; there is one kind."""
    return TruthMeasure(
        **table.shared(name, parts="overall"),
        label="truth" if table.criterion == "total" else table.criterion,
        identity=f"{TRUTH_VERSION} {table.criterion}",
        criterion=table.criterion,
    )
