"""soft_tifa_gm and soft_tifa_am: questions about artifacts, answered by a VQA model.

How the model is asked and checked serves `fact_checks` too: where both ask alike, the store has one
answer for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_cepbench.artifacts import MODALITIES, Failure, digest_json
from pytest_cepbench.chains import Chain, ChainPlan, Modality
from pytest_cepbench.chains.features import vqa_answers, vqa_query
from pytest_cepbench.datasets.questions import (
    MOST_CONTROLS,
    NO,
    YES,
    FactQuestion,
    controls_of,
    questions_of,
)
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.escapes import one_line
from pytest_cepbench.measures.base import (
    CaseScores,
    ChainExcerpt,
    Measure,
    Measured,
    MetricTable,
    RequiredFeatures,
    SuiteContext,
    by_part,
    outcome_of_chain,
    parts_of,
    population,
)
from pytest_cepbench.measures.cases import Case
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.metrics.facts import (
    HALF,
    ControlAccuracy,
    MeanName,
    fail_descendants,
    means_by_kind,
    soft_tifa,
)
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import VqaQuestion

VQA = "vqa"

QUESTION = "{question}"
"""The place of the question in a prompt."""

PROMPT = "{question} Answer in one word."
"""What GenEval 2's released code asks."""

CONTROLS = 2

LEAST_CONTROL = 0.6

LEAST_LATER = 0.1
"""The same of what models made in the other modality than the start's. It may have come to show
what a control asks about, so that only a model which says yes to nearly all is refused by it."""

_ASKED_TWICE = 8
"""Starts whose control questions are asked for both answers, of a model that made no mistake."""

_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def spellings(answer: str) -> tuple[str, ...]:
    """The ways in which a model may write an answer: in either case, a number also in digits.

    Source: the answers that the released code of GenEval 2 adds up, but for those that differ by a
    space before them, which are the VQA model's own to know.
    """
    word = answer.strip()
    forms = [word, word.lower(), word.capitalize()]
    if word.lower() in _NUMBERS:
        forms.append(str(_NUMBERS.index(word.lower())))
    elif word.isascii() and word.isdecimal() and int(word) < len(_NUMBERS):
        number = _NUMBERS[int(word)]
        forms += [number, number.capitalize()]
    return tuple(dict.fromkeys(forms))


@dataclass(frozen=True)
class AnsweredQuestions:
    """The answers about one artifact.

    answers: the probability of the right answer to each question of the sample, as it was given.
    atoms: the same, 0 below a failed one: what scores are made of.
    controls: the probability of the right answer to each of its control questions.
    """

    answers: tuple[float, ...]
    atoms: tuple[float, ...]
    controls: tuple[float, ...]


@dataclass(frozen=True)
class QuestionSettings:
    """How a VQA model is asked.

    prompt: what it is asked, holding `{question}`.
    controls: control questions of each sample, whose answer is known to be no.
    least_control: share of the control questions that must be answered rightly.
    Raises ValueError naming the setting that is out of range.
    """

    prompt: str = PROMPT
    controls: int = CONTROLS
    least_control: float = LEAST_CONTROL

    def __post_init__(self) -> None:
        if QUESTION not in self.prompt:
            raise ValueError(f"prompt = {self.prompt!r} does not hold {QUESTION}")
        if not 0 <= self.controls <= MOST_CONTROLS:
            raise ValueError(f"controls = {self.controls}: 0 to {MOST_CONTROLS} are expected")
        if not HALF < self.least_control <= 1:
            raise ValueError(
                f"least_control = {self.least_control:g}: over 0.5, which a coin answers rightly, "
                "and up to 1 is expected"
            )

    @property
    def identity(self) -> str:
        """All of them, in one line."""
        return (
            f"asked {self.prompt!r}, {self.controls} controls, least {self.least_control:g} right"
        )

    def query(self, sample: Sample) -> str:
        """All that is asked about an artifact of a sample: its questions, then its controls.

        Raises MeasurementError for a sample without questions.
        """
        asked = [
            VqaQuestion(self.prompt.replace(QUESTION, text), spellings(answer))
            for text, answer in (
                *((question.text, question.answer) for question in own_questions(sample)),
                *((text, NO) for text in controls_of(sample)[: self.controls]),
            )
        ]
        return vqa_query(asked)

    def read(self, sample: Sample, probabilities: Sequence[float]) -> AnsweredQuestions:
        """The answers to a `query` of the sample."""
        questions = own_questions(sample)
        places = {question.id: place for place, question in enumerate(questions)}
        parents = [[places[parent] for parent in question.depends_on] for question in questions]
        answers = tuple(probabilities[: len(questions)])
        atoms = fail_descendants(answers, parents)
        return AnsweredQuestions(answers, atoms, tuple(probabilities[len(questions) :]))

    def required(self, plan: ChainPlan, generations: tuple[int, ...]) -> RequiredFeatures:
        """Artifacts of chains, as the VQA model reads them."""

        def query(sample: Sample, _: BoundRole) -> str:
            return self.query(sample)

        return RequiredFeatures(plan, generations, VQA, query, stops_chain=False)

    def required_starts(self, plan: ChainPlan) -> tuple[RequiredFeatures, ...]:
        """The starts, by which the VQA model is judged; none without control questions."""
        return (self.required(plan, (0,)),) * bool(self.controls)

    def ask(
        self, chains: Sequence[Chain], generation: int, chain_data: ChainData
    ) -> list[AnsweredQuestions | Failure]:
        """Ask about every chain's artifact at a generation, which all of them have.

        Raises as `vqa_answers`, and MeasurementError for a sample without questions.
        """
        queries = {chain.sample.id: self.query(chain.sample) for chain in chains}
        results = vqa_answers(chains, generation, queries, chain_data.runner(VQA), chain_data.store)
        return [
            result if isinstance(result, Failure) else self.read(chain.sample, result)
            for chain, result in zip(chains, results, strict=True)
        ]


# -- whether the VQA model can be believed ---------------------------------------------------------


def control_notes(
    metric: str,
    settings: QuestionSettings,
    plan: ChainPlan,
    chain_data: ChainData,
    later: Mapping[Modality, Sequence[float]],
) -> tuple[str, ...]:
    """What control questions tell of the VQA model; nothing where it could not be asked at all.

    The model is judged by what it says of the starts of the whole suite, whose answers are known:
    so the judgement is the same for every case, look and worker, and whatever became of the chains.

    metric: its name, for messages.
    later: by modality, the probabilities of the right answers to the control questions about what
        models made.
    Raises MeasurementError for a model that answers too few rightly, of its own questions or of the
    control questions, and where there are no control questions although they are wanted.
    """
    if not settings.controls:
        return ("no control questions were asked: a model that says yes to all would not show",)
    whole = chain_data.origin

    def ask() -> list[AnsweredQuestions]:
        # Another seed has the same start.
        asked = (s for s in whole.population.samples if not s.replicate)
        samples = [sample for sample in asked if questions_of(sample)]
        return [
            own
            for chains in whole.start_chains(plan.start, samples)
            for own in settings.ask(chains, 0, whole)
            if isinstance(own, AnsweredQuestions)
        ]

    starts = whole.cached(("asked starts", settings), plan.start, ask)
    asked_later = [probability for own in later.values() for probability in own]
    if not starts and not asked_later:
        return ()
    if not any(own.controls for own in starts) and not asked_later:
        raise MeasurementError(
            f"{metric}: there are no control questions: no other sample has a question whose "
            "answer is yes and that this one lacks. Add such questions, or set controls = 0 to "
            "measure without knowing whether the VQA model says yes to all"
        )
    known = ControlAccuracy.of(
        [probability for own in starts for probability in own.answers],
        [probability for own in starts for probability in own.controls],
    )
    if known.below(settings.least_control):
        raise MeasurementError(
            f"{metric}: the VQA model answers too few control questions rightly: {known}; at least "
            f"{settings.least_control:.0%} of each is expected of the starts, whose answers are "
            "known, and one that says the same to all has none of one of them. Give another model "
            "with --vqa=SPEC"
        )
    if known.flawless:
        _refuse_both(metric, settings, plan, chain_data)
    least = LEAST_LATER if starts else settings.least_control
    seen = {what: ControlAccuracy.of((), own) for what, own in later.items() if own}
    for modality, accuracy in seen.items():
        if (modality != plan.start or not starts) and accuracy.below(least):
            raise MeasurementError(
                f"{metric}: the VQA model answers too few control questions rightly: "
                f"{accuracy} in {MODALITIES[modality].made}, where at least {least:.0%} is "
                "expected. One that says yes to all has none: give another with --vqa=SPEC, unless "
                "the chains show all that is asked about"
            )
    notes = [str(known)] if starts else []
    if seen:
        shown = ", ".join(f"{MODALITIES[what].made} {accuracy}" for what, accuracy in seen.items())
        notes.append(f"of what models made, which may show it by now: {shown}")
    return (f"control questions answered rightly: {'; '.join(notes)}",)


def _refuse_both(
    metric: str, settings: QuestionSettings, plan: ChainPlan, chain_data: ChainData
) -> None:
    """Raise MeasurementError for a model to which any answer is likely: both yes and no.

    It answers all questions rightly, whatever it is shown. A model that normalizes over the answers
    that are looked for alone is one.
    """
    whole = chain_data.origin

    def ask() -> list[float]:
        samples = [
            sample
            for sample in whole.population.samples
            if not sample.replicate and controls_of(sample)
        ][:_ASKED_TWICE]
        queries = {
            sample.id: vqa_query(
                [
                    VqaQuestion(settings.prompt.replace(QUESTION, text), spellings(YES))
                    for text in controls_of(sample)[: settings.controls]
                ]
            )
            for sample in samples
        }
        return [
            probability
            for chains in whole.start_chains(plan.start, samples)
            for own in vqa_answers(chains, 0, queries, whole.runner(VQA), whole.store)
            if not isinstance(own, Failure)
            for probability in own
        ]

    said = whole.cached(("yes to controls", settings), plan.start, ask)
    both = sum(probability > HALF for probability in said)
    if 2 * both > len(said):
        raise MeasurementError(
            f"{metric}: the VQA model gives over one half both to yes and to no, in {both} of "
            f"{len(said)} control questions: it finds any answer likely that is looked for, "
            "whatever it is shown. Give another with --vqa=SPEC"
        )


def own_questions(sample: Sample) -> tuple[FactQuestion, ...]:
    """The questions of a sample. Raises MeasurementError where it has none."""
    questions = questions_of(sample)
    if not questions:
        raise MeasurementError(
            f"sample {sample.id!r} has no questions to ask about its pictures: name a file of them "
            "with [data] questions = FILE, or have them made of GenEval's clauses or of generated "
            'scenes with questions = "metadata"'
        )
    return questions


_MEANS: Mapping[str, MeanName] = {"soft_tifa_gm": "geometric", "soft_tifa_am": "arithmetic"}

_LABELS = {"soft_tifa_gm": "Soft-TIFA GM", "soft_tifa_am": "Soft-TIFA AM"}

_SHOWN = 3  # questions in a remark


class SoftTifaTable(MetricTable, frozen=True, kw_only=True):
    """soft_tifa_gm, soft_tifa_am: how far a picture or text shows what its sample's questions ask.

    start: of the chains; image-first where the suite plays both and this is left out.
    generation: of the artifact that is asked about; the first picture when left out.
    prompt: what the VQA model is asked, holding `{question}`.
    controls: control questions of each sample, whose answer is known to be no; 0 to ask none, and
    to measure without knowing whether the model says yes to all.
    least_control: share of the control questions, of those about what is there and of those about
    what is not, that must be answered rightly.
    """

    start: Modality | None = None
    generation: int | None = None
    prompt: str = PROMPT
    controls: int = CONTROLS
    least_control: float = LEAST_CONTROL


@dataclass(frozen=True)
class AskedChain:
    """What the VQA model answered about one chain.

    outcome: what stopped the chain or the asking, if anything did.
    score: in [0, 1]; 0 where there is no picture, None where the model could not be asked.
    atoms: probability of each question's right answer, 0 below a failed one; empty where there are
    none.
    controls: probability of the right answer to each control question about the artifact.
    """

    outcome: CaseScores
    score: float | None
    atoms: tuple[float, ...] = ()
    controls: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SoftTifaMeasure(Measure):
    """The mean over samples of Soft-TIFA, each a mean over the questions of its sample.

    A sample without a picture has 0. One that the VQA model could not be asked about has no score.
    The model is asked about the starts too, which the questions are true of: where it answers too
    few of these or of the control questions rightly, nothing is measured. See
    `control_notes` and `SoftTifaTable`.
    """

    kind: str
    plan: ChainPlan
    generation: int
    settings: QuestionSettings

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The artifact that is asked about, and the start."""
        starts = self.settings.required_starts(self.plan)
        return (*starts, self.settings.required(self.plan, (self.generation,)))

    def read(
        self, case: Case, samples: Sequence[Sample], chain_data: ChainData
    ) -> dict[str, AskedChain]:
        """What the VQA model answers."""
        chain_data.require_recorded(self.plan.start, (self.generation,))
        return chain_data.per_chain(
            self, self.plan.start, samples, lambda chains: self._ask(chains, chain_data)
        )

    def measure(self, case: Case, chain_data: ChainData) -> Measured:
        """One score per sample. Raises MeasurementError where the controls show a blind model."""
        parts, samples = parts_of(case, chain_data)
        asked = self.read(case, samples, chain_data)
        controls = [probability for chain in asked.values() for probability in chain.controls]
        later = {self.plan.modality(self.generation): controls} if controls else {}
        notes = control_notes(self.name, self.settings, self.plan, chain_data, later)
        # The mean probability of the right answer by kind of question, as GenEval 2 does by skill.
        kinds: list[str] = []
        atoms: list[float] = []
        for sample in samples:
            if own_atoms := asked[sample.id].atoms:
                kinds += [question.kind for question in questions_of(sample)]
                atoms += own_atoms
        if atoms:
            shown = ", ".join(
                f"{kind} {mean:.3f} ({count:,})"
                for kind, (mean, count) in means_by_kind(kinds, atoms).items()
            )
            notes = (*notes, f"right answers by kind of question: {shown}")
        content = [[s.id, self.settings.query(s)] for s in population(case, chain_data)]
        return Measured(
            scores=by_part(parts, {name: own.score or 0.0 for name, own in asked.items()}),
            samples=samples,
            outcomes=[asked[sample.id].outcome for sample in samples],
            identity={"questions": digest_json(content)[:16]},
            notes=notes,
        )

    def show(self, case: Case, sample_id: str, chain_data: ChainData) -> ChainExcerpt:
        """The chain with the score of its picture, and the questions that are answered worst."""
        samples = chain_data.named(sample_id)
        asked = self.read(case, samples, chain_data)[sample_id]
        chain = chain_data.chains(self.plan.start, samples)[sample_id]
        marks = {} if asked.score is None or not asked.atoms else {self.generation: asked.score}
        questions = questions_of(samples[0])
        worst = sorted(zip(asked.atoms, questions, strict=False), key=lambda pair: pair[0])
        remark = "; ".join(
            f"{one_line(question.text, 80)} {one_line(question.answer, 40)}: {probability:.2f}"
            for probability, question in worst[:_SHOWN]
            if probability < HALF
        )
        return ChainExcerpt(chain, marks, asked.outcome.failure, chain.failed_at, remark)

    def _ask(self, chains: Sequence[Chain], chain_data: ChainData) -> dict[str, AskedChain]:
        if self.settings.controls:
            self.settings.ask(chains, 0, chain_data)  # stored, with what the chains are read for
        able = [chain for chain in chains if chain.has(self.generation)]
        results = self.settings.ask(able, self.generation, chain_data)
        answered = {chain.sample.id: own for chain, own in zip(able, results, strict=True)}
        asked: dict[str, AskedChain] = {}
        for chain in chains:
            outcome, own = outcome_of_chain(chain, self.plan), answered.get(chain.sample.id)
            if own is None:
                asked[chain.sample.id] = AskedChain(outcome, 0.0)
            elif isinstance(own, Failure):
                asked[chain.sample.id] = AskedChain(CaseScores(chain.sample.id, own, VQA), None)
            else:
                score = soft_tifa(own.atoms, _MEANS[self.kind])
                asked[chain.sample.id] = AskedChain(outcome, score, own.atoms, own.controls)
        return asked


def make_soft_tifa(
    kind: str, name: str, table: SoftTifaTable, context: SuiteContext
) -> SoftTifaMeasure:
    """The measure of a table. Raises SuiteError for settings that do not fit."""
    plan = context.plan(name, table.start)
    generation = table.generation
    if generation is None:
        generation = 1 if plan.start == "text" else 2
    if not 1 <= generation <= plan.generations:
        problem = f"generation = {generation}: 1 to {plan.generations} is expected"
        raise context.error(name, problem)
    try:
        settings = QuestionSettings(table.prompt, table.controls, table.least_control)
    except ValueError as error:
        raise context.error(name, error) from error
    return SoftTifaMeasure(
        **table.shared(name),
        label=_LABELS[kind],
        identity=(
            f"soft-tifa/1 {_MEANS[kind]} mean at generation {generation} of {plan.start}-first "
            f"chains, {settings.identity}"
        ),
        kind=kind,
        plan=plan,
        generation=generation,
        settings=settings,
    )
