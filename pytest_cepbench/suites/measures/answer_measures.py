"""Metrics of interleaved answers: win rates of their battles, and what can be counted in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pytest_cepbench.chains.answers.answering import SampleAnswer
from pytest_cepbench.chains.answers.battles import PairOutcome
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes.arena import (
    CRITERIA,
    TRUTH_VERSION,
    Solution,
    read_question,
    score_answer,
    solve,
)
from pytest_cepbench.errors import DatasetError, MeasurementError, SuiteError, unknown_name
from pytest_cepbench.gate.measurement import EVEN
from pytest_cepbench.suites.answer_data import AnswerData, LoadedStep, Opponents
from pytest_cepbench.suites.cases import Case
from pytest_cepbench.suites.measures.base import (
    CaseMeasure,
    CaseScores,
    Measured,
    MetricTable,
    Parts,
    Pool,
    by_category,
    everyone,
)

JUDGE = "judge"

Against = Literal["accepted", "gold"]

_NAMED = 3


class WinRateTable(MetricTable, frozen=True, kw_only=True):
    """win_rate: how often an answer is better than the one that it battles."""


class LackTable(MetricTable, frozen=True, kw_only=True):
    """no_image, no_text: answers that lack images or texts, in any step or in all of them."""

    of: Literal["any", "all"] = "any"


class AnswerFailuresTable(MetricTable, frozen=True, kw_only=True):
    """failures: the share of answers that are missing, and of images that are missing in others."""


class StepGapTable(MetricTable, frozen=True, kw_only=True):
    """step_gap: by how many steps answers differ from the reference answer's number."""


class TruthTable(MetricTable, frozen=True, kw_only=True):
    """truth: how far answers meet the criteria of a world whose truth is known."""

    criterion: Literal[
        "total",
        "correctness",
        "coherency",
        "consistency",
        "quality",
        "preference",
        "completeness",
        "richness",
    ] = "total"


class JudgeFailuresTable(MetricTable, frozen=True, kw_only=True):
    """judge_failures: the share of verdicts that the judge did not give."""


ANSWER_KINDS: Mapping[str, type[MetricTable]] = {
    "win_rate": WinRateTable,
    "no_image": LackTable,
    "no_text": LackTable,
    "failures": AnswerFailuresTable,
    "step_gap": StepGapTable,
    "truth": TruthTable,
    "judge_failures": JudgeFailuresTable,
}
"""Kind of metric -> its settings, in suites that ask for interleaved answers."""


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
    def win_rate(self) -> str:
        """The metric whose accepted answers are battled for it; empty where none are."""

    def read(
        self,
        case: Case,
        samples: Sequence[Sample],
        data: AnswerData,
        opponents: CaseOpponents,
        model: str,
    ) -> None:
        """Have everything made that the case needs of these samples and the store does not hold.

        model: identity of the model under test.
        """

    def measure(
        self, case: Case, data: AnswerData, opponents: CaseOpponents, model: str
    ) -> Measured:
        """The scores of a case. model: as of `read`."""


@dataclass(frozen=True)
class WinRateMeasure:
    """The mean score of battles against accepted answers, or against reference answers.

    A sample scores 1 where its answer is better in every order that is asked, 0 where it is worse,
    one half for a tie, for equal answers, and where the judge gives no verdict. A missing answer
    loses; two missing ones are a tie.
    """

    name: str
    against: Against
    pool: Pool
    parts: Parts
    higher_is_better: bool = True
    own_parts: tuple[str, ...] = ()
    per_sample: bool = True
    judged: bool = True

    @property
    def label(self) -> str:
        """Its name for people."""
        return "win rate" if self.against == "accepted" else "win rate against reference answers"

    @property
    def span(self) -> float:
        """Accepted answers score one half against themselves, so no more can be lost."""
        return EVEN if self.against == "accepted" else 1.0

    @property
    def identity(self) -> str:
        """The definition."""
        return f"win_rate/1 against {self.against}"

    @property
    def win_rate(self) -> str:
        """Its own name, where accepted answers are battled."""
        return self.name if self.against == "accepted" else ""

    def read(
        self,
        _: Case,
        samples: Sequence[Sample],
        data: AnswerData,
        opponents: CaseOpponents,
        model: str,
    ) -> None:
        """The answers and the verdicts."""
        data.answers(samples)
        if self.against == "gold":
            data.gold_battles(samples)
            return
        _fight(samples, data, opponents.accepted, model, "baseline")
        _fight(samples, data, opponents.anchor, model, "anchor")

    def measure(
        self, case: Case, data: AnswerData, opponents: CaseOpponents, model: str
    ) -> Measured:
        """A score per sample."""
        parts = by_category(case, data)
        samples = everyone(parts)
        answers = data.answers(samples)
        if all(own.answer is None for own in answers.values()):
            failure = next(iter(answers.values())).failure
            detail = "" if failure is None else f": {failure.kind}: {failure.detail}"
            msg = f"not one of {len(answers)} questions was answered{detail}"
            raise MeasurementError(msg)
        outcomes = [_outcome(own) for own in answers.values()]
        if self.against == "gold":
            fought = data.gold_battles(samples)
            scores = {name: outcome.score for name, outcome in fought.items()}
            remarks = _remarks_on_judge(fought.values())
            return Measured(
                _by_part(parts, scores),
                samples,
                outcomes,
                notes=remarks.notes,
                warnings=remarks.warnings,
            )
        fought, obstacles = _fight(samples, data, opponents.accepted, model, "baseline")
        since, more = _fight(samples, data, opponents.anchor, model, "anchor")
        anchor_scores = {name: since[name].score for name in since}
        scores = {s.id: fought[s.id].score if s.id in fought else EVEN for s in samples}
        remarks = _remarks_on_judge(fought.values())
        return Measured(
            _by_part(parts, scores),
            samples,
            outcomes,
            answers={s.id: answers[s.id].digest for s in samples},
            anchor_scores=_by_part(parts, anchor_scores) if anchor_scores else {},
            obstacles=(*obstacles, *more),
            notes=remarks.notes,
            warnings=remarks.warnings,
        )


def _fight(
    samples: Sequence[Sample],
    data: AnswerData,
    opponents: Opponents | None,
    model: str,
    name: str,
) -> tuple[dict[str, PairOutcome], tuple[str, ...]]:
    """The battles against the answers of one baseline, and why they could not be fought.

    model: identity of the model under test. name: of the baseline, for people.
    """
    if opponents is None:
        return {}, ()
    if opponents.identity == model:
        # The same weights and settings: other digests would be another machine's arithmetic.
        return {sample.id: PairOutcome() for sample in samples}, ()
    fought: dict[str, PairOutcome] = {}
    missing = data.missing_opponents(samples, opponents)
    if not missing:
        fought = data.battles(samples, opponents)
        # Damaged images are noticed where the judge is to see them.
        missing = [s.id for s in samples if s.id in opponents.answers and s.id not in fought]
    if missing:
        shown = ", ".join(missing[:_NAMED])
        obstacle = (
            f"answers: {len(missing)} of {len(samples)} answers of the {name} are not in the "
            f"store ({shown}): use the store of the run that accepted them (--cep-store, "
            "--cep-shared), or bring them with `cepbench answers import`"
        )
        return {}, (obstacle,)
    return {s.id: fought.get(s.id, PairOutcome()) for s in samples}, ()


_MOST_FIRST = 0.95
"""Of the verdicts for the answer in one place; above it a judge looks at places, not at answers."""

_MANY_FIRST = 0.65
"""From here on reports warn; GPT-4o's share was .641 in the released verdicts of OpenING."""

_ENOUGH_VERDICTS = 20


@dataclass(frozen=True)
class _JudgeRemarks:
    """What is to be said of the judge of some battles, a sentence each."""

    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def _remarks_on_judge(outcomes: Iterable[PairOutcome]) -> _JudgeRemarks:
    """Remarks on how a judge judged.

    Raises MeasurementError where its verdicts follow the order of the answers alone: every score
    would be one half then, whatever the answers are.
    """
    fought = [outcome for outcome in outcomes if outcome.verdicts]
    if not fought:
        return _JudgeRemarks()
    verdicts = [verdict for outcome in fought for verdict in outcome.verdicts]
    given = [verdict.winner for verdict in verdicts if isinstance(verdict.winner, str)]
    failures = Counter(failure.kind for outcome in fought for failure in outcome.failures)
    notes, warnings = [_NOT_MEASURED], []
    if failures:
        kinds = ", ".join(f"{count} {kind}" for kind, count in failures.most_common())
        notes.append(
            f"the judge gave no verdict {failures.total()} times ({kinds}), each counts as a tie"
        )
    if given:
        first = sum(winner in ("A", "Tie(A)") for winner in given) / len(given)
        said = f"{len(given)} verdicts, {first:.0%} of them for the answer that was shown first"
        notes.append(said)
        one_place = max(first, 1 - first)
        if len(given) >= _ENOUGH_VERDICTS and one_place >= _MOST_FIRST:
            msg = f"{said}: this judge looks at the order of the answers, not at them"
            raise MeasurementError(msg)
        if len(given) >= _ENOUGH_VERDICTS and one_place >= _MANY_FIRST:
            warnings.append(f"{said}: the judge has a strong order effect")
        if len(given) >= _ENOUGH_VERDICTS and all(w in ("Tie(A)", "Tie(B)") for w in given):
            warnings.append(f"all {len(given)} verdicts are ties: this judge saw no difference")
    return _JudgeRemarks(tuple(notes), tuple(warnings))


_NOT_MEASURED = (
    "how well this judge agrees with people is not known here: `cepbench judge-card` measures it"
)


@dataclass(frozen=True)
class CountMeasure:
    """A number that is counted in each answer; see `AnswerMeasure`.

    count: of an answer.
    missing: for a sample that has no answer.
    shares: whether the numbers are shares, in [0, 1].
    """

    name: str
    label: str
    identity: str
    count: Callable[[SampleAnswer], float]
    missing: float
    shares: bool
    span: float | None
    pool: Pool
    parts: Parts
    higher_is_better: bool = False
    own_parts: tuple[str, ...] = ()
    per_sample: bool = True
    judged: bool = False
    win_rate: str = ""

    def read(
        self, _: Case, samples: Sequence[Sample], data: AnswerData, __: CaseOpponents, ___: str
    ) -> None:
        """The answers."""
        data.answers(samples)

    def measure(self, case: Case, data: AnswerData, _: CaseOpponents, __: str) -> Measured:
        """A number per sample."""
        parts = by_category(case, data)
        samples = everyone(parts)
        answers = data.answers(samples)
        scores = {
            name: self.missing if own.answer is None else self.count(own)
            for name, own in answers.items()
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
            _by_part(parts, scores),
            samples,
            [_outcome(own) for own in answers.values()],
            shares=self.shares,
            notes=tuple(notes),
        )


@dataclass(frozen=True)
class TruthMeasure:
    """The truth of answers in the arena of shapes: one of its criteria, or their weighted sum."""

    name: str
    criterion: str
    pool: Pool
    parts: Parts
    higher_is_better: bool = True
    own_parts: tuple[str, ...] = ()
    per_sample: bool = True
    span: float | None = 1.0
    judged: bool = False
    win_rate: str = ""

    @property
    def label(self) -> str:
        """Its name for people."""
        return "truth" if self.criterion == "total" else self.criterion

    @property
    def identity(self) -> str:
        """The definition."""
        return f"{TRUTH_VERSION} {self.criterion}"

    def read(
        self, _: Case, samples: Sequence[Sample], data: AnswerData, __: CaseOpponents, ___: str
    ) -> None:
        """The answers and their truth."""
        self._scores(samples, data)

    def measure(self, case: Case, data: AnswerData, _: CaseOpponents, __: str) -> Measured:
        """A score per sample; 0 for one without an answer."""
        parts = by_category(case, data)
        samples = everyone(parts)
        scores = dict.fromkeys((s.id for s in samples), 0.0) | self._scores(samples, data)
        outcomes = [_outcome(own) for own in data.answers(samples).values()]
        return Measured(_by_part(parts, scores), samples, outcomes)

    def _scores(self, samples: Sequence[Sample], data: AnswerData) -> dict[str, float]:
        def read(sample: Sample, steps: Sequence[LoadedStep]) -> Sequence[float]:
            truth = score_answer(_solve(sample), steps)
            return [truth.total, *(getattr(truth, criterion) for criterion in CRITERIA)]

        place = ("total", *CRITERIA).index(self.criterion)
        truths = data.per_answer(TRUTH_VERSION, samples, read)
        return {name: numbers[place] for name, numbers in truths.items()}


def _solve(sample: Sample) -> Solution:
    """The right answer to a sample's question. Raises MeasurementError for one of no such world."""
    pieces = [piece if isinstance(piece, str) else piece.load() for piece in sample.question]
    try:
        return solve(read_question(pieces))
    except DatasetError as error:
        msg = f"{sample.id}: truth is known of the arena of shapes alone: {error}"
        raise MeasurementError(msg) from error


@dataclass(frozen=True)
class JudgeFailuresMeasure:
    """The share of verdicts that the judge did not give, over the battles of a win rate.

    win_rate: that metric; empty where reference answers are battled.
    """

    name: str
    against: Against
    win_rate: str
    pool: Pool
    parts: Parts
    label: str = "judge's failures"
    identity: str = "judge_failures/1"
    higher_is_better: bool = False
    own_parts: tuple[str, ...] = ()
    per_sample: bool = True
    span: float | None = 1.0
    judged: bool = True

    def read(
        self,
        _: Case,
        samples: Sequence[Sample],
        data: AnswerData,
        opponents: CaseOpponents,
        model: str,
    ) -> None:
        """The verdicts."""
        self._fought(samples, data, opponents, model)

    def measure(
        self, case: Case, data: AnswerData, opponents: CaseOpponents, model: str
    ) -> Measured:
        """A share per sample; 0 where no verdict was needed."""
        parts = by_category(case, data)
        samples = everyone(parts)
        fought, obstacles = self._fought(samples, data, opponents, model)
        shares = dict.fromkeys((s.id for s in samples), 0.0) | {
            name: len(outcome.failures) / max(1, len(outcome.verdicts))
            for name, outcome in fought.items()
        }
        outcomes = [_outcome(own) for own in data.answers(samples).values()]
        return Measured(
            _by_part(parts, shares), samples, outcomes, shares=True, obstacles=obstacles
        )

    def _fought(
        self, samples: Sequence[Sample], data: AnswerData, opponents: CaseOpponents, model: str
    ) -> tuple[dict[str, PairOutcome], tuple[str, ...]]:
        if self.against == "gold":
            return data.gold_battles(samples), ()
        return _fight(samples, data, opponents.accepted, model, "baseline")


def _outcome(own: SampleAnswer) -> CaseScores:
    return CaseScores(own.sample.id, own.failure, own.blamed)


def _by_part(
    parts: Mapping[str, Sequence[Sample]], scores: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    return {name: {s.id: scores[s.id] for s in samples} for name, samples in parts.items()}


def _lack(kind: str, of: str) -> Callable[[SampleAnswer], float]:
    def lacks(own: SampleAnswer) -> float:
        assert own.answer is not None
        steps = own.answer.steps
        lacking = [not (step.text if kind == "no_text" else step.image) for step in steps]
        return float(any(lacking) if of == "any" else all(lacking))

    return lacks


def _lost(own: SampleAnswer) -> float:
    assert own.answer is not None
    lost = len(own.lost_images)
    return lost / (lost + len(own.answer.images)) if lost else 0.0


def _gap(own: SampleAnswer) -> float:
    assert own.answer is not None
    gold = len(own.sample.gold)
    if not gold:
        msg = f"{own.sample.id}: has no reference answer, whose number of steps is to be met"
        raise DatasetError(msg)
    return abs(len(own.answer.steps) - gold) / gold


def make_answer_measures(
    tables: Mapping[str, MetricTable], suite: str, against: Against
) -> dict[str, AnswerMeasure]:
    """The measures of a suite of answers by name, in the order of its file. Raises SuiteError."""
    win_rates = [name for name, table in tables.items() if isinstance(table, WinRateTable)]
    counting = [name for name, table in tables.items() if isinstance(table, JudgeFailuresTable)]
    if against == "accepted" and counting and not win_rates:
        msg = (
            f"suite {suite!r}: {counting[0]} counts the verdicts of a win_rate: add "
            "[metrics.win_rate]"
        )
        raise SuiteError(msg)
    win_rate = win_rates[0] if against == "accepted" and win_rates else ""
    return {name: _make(name, table, suite, against, win_rate) for name, table in tables.items()}


def _make(
    name: str, table: MetricTable, suite: str, against: Against, win_rate: str
) -> AnswerMeasure:
    pool = table.pool or "categories"
    if isinstance(table, WinRateTable):
        return WinRateMeasure(name, against, pool, table.parts or "all")
    parts = table.parts or "overall"
    if isinstance(table, TruthTable):
        return TruthMeasure(name, table.criterion, pool, parts)
    if isinstance(table, JudgeFailuresTable):
        return JudgeFailuresMeasure(name, against, win_rate, pool, parts)
    if isinstance(table, LackTable):
        kind = table.kind or name
        lacks = "images" if kind == "no_image" else "texts"
        steps = "a step" if table.of == "any" else "every step"
        return CountMeasure(
            name, f"answers without {lacks} in {steps}", f"{kind}/1 of {table.of}",
            _lack(kind, table.of), 1.0, shares=True, span=1.0, pool=pool, parts=parts,
        )  # fmt: skip
    if isinstance(table, AnswerFailuresTable):
        return CountMeasure(
            name, "failure rate", "answer-failures/1",
            _lost, 1.0, shares=True, span=1.0, pool=pool, parts=parts,
        )  # fmt: skip
    if isinstance(table, StepGapTable):
        return CountMeasure(
            name, "gap in steps", "step_gap/1",
            _gap, 1.0, shares=False, span=None, pool=pool, parts=parts,
        )  # fmt: skip
    msg = f"suite {suite!r}: {unknown_name('metric', name, ANSWER_KINDS)}"
    raise SuiteError(msg)
