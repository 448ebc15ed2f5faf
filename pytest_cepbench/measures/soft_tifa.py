"""soft_tifa_gm and soft_tifa_am: questions about artifacts, answered by a VQA model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_cepbench.artifacts import MODALITIES, Failure, digest_json
from pytest_cepbench.chains import Chain, Modality
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

_QUESTION = "{question}"
"""The place of the question in a prompt."""

_LEAST_LATER = 0.1
"""Least share of control questions answered rightly, of what models made in the other modality than
the start's. It may have come to show what a control asks about, so that only a model which says yes
to nearly all is refused by it."""

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


_MEANS: Mapping[str, MeanName] = {"soft_tifa_gm": "geometric", "soft_tifa_am": "arithmetic"}

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
    prompt: str = "{question} Answer in one word."  # what GenEval 2's released code asks
    controls: int = 2
    least_control: float = 0.6


@dataclass(frozen=True)
class AskedChain:
    """What the VQA model answered about an artifact of one chain; nothing where there is none.

    outcome: what stopped the chain or the asking, if anything did.
    answers: the probability of the right answer to each question of the sample, as it was given.
    atoms: the same, 0 below a failed one: what scores are made of.
    controls: the probability of the right answer to each of its control questions.
    """

    outcome: CaseScores
    answers: tuple[float, ...] = ()
    atoms: tuple[float, ...] = ()
    controls: tuple[float, ...] = ()


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


class SoftTifaMeasure(Measure):
    """The mean over samples of Soft-TIFA, each a mean over the questions of its sample.

    A sample without a picture has 0. One that the VQA model could not be asked about has no score.
    The model is asked about the starts too, which the questions are true of: where it answers too
    few of these or of the control questions rightly, nothing is measured. See `SoftTifaTable`.
    """

    def __init__(self, kind: str, name: str, table: SoftTifaTable, context: SuiteContext) -> None:
        """Raises SuiteError for settings that do not fit."""
        super().__init__(kind, name, table, context)
        self.plan = plan = context.plan(name, table.start)
        self.prompt, self.controls = table.prompt, table.controls
        self.least_control, generation = table.least_control, table.generation
        if generation is None:
            generation = 1 if plan.start == "text" else 2
        self.generation = generation
        problem = ""
        if not 1 <= generation <= plan.generations:
            problem = f"generation = {generation}: 1 to {plan.generations} is expected"
        elif _QUESTION not in self.prompt:
            problem = f"prompt = {self.prompt!r} does not hold {_QUESTION}"
        elif not 0 <= self.controls <= MOST_CONTROLS:
            problem = f"controls = {self.controls}: 0 to {MOST_CONTROLS} are expected"
        elif not HALF < self.least_control <= 1:
            problem = (
                f"least_control = {self.least_control:g}: over 0.5, which a coin answers rightly, "
                "and up to 1 is expected"
            )
        elif not self.controls and self.least_control != SoftTifaTable().least_control:
            problem = f"least_control = {self.least_control:g}: with controls = 0 none are asked"
        if problem:
            raise context.error(name, problem)
        self.label = f"Soft-TIFA {kind[-2:].upper()}"
        self.identity = (
            f"soft-tifa/1 {_MEANS[kind]} mean at generation {generation} of {plan.start}-first "
            f"chains, asked {self.prompt!r}, {self.controls} controls, least "
            f"{self.least_control:g} right"
        )

    def required_features(self, case: Case | None) -> tuple[RequiredFeatures, ...]:
        """The artifact that is asked about, and the start, by which the VQA model is judged."""

        def query(sample: Sample, _: BoundRole) -> str:
            return self._query(sample)

        generations = ((0,), (self.generation,)) if self.controls else ((self.generation,),)
        return tuple(
            RequiredFeatures(self.plan, own, VQA, query, stops_chain=False) for own in generations
        )

    def read(self, case: Case, samples: Sequence[Sample], data: ChainData) -> dict[str, AskedChain]:
        """What the VQA model answers."""
        data.require_recorded(self.plan.start, (self.generation,))

        def read(chains: Sequence[Chain]) -> dict[str, AskedChain]:
            if self.controls:
                self._ask(chains, 0, data)  # stored, with what the chains are read for
            asked = {c.sample.id: AskedChain(outcome_of_chain(c, self.plan)) for c in chains}
            able = [chain for chain in chains if chain.has(self.generation)]
            asked |= {own.outcome.sample: own for own in self._ask(able, self.generation, data)}
            return asked

        # Both means are of the same answers.
        key = ("asked", self.generation, self.prompt, self.controls)
        return data.per_chain(key, self.plan.start, samples, read)

    def measure(self, case: Case, data: ChainData) -> Measured:
        """One score per sample. Raises MeasurementError where the controls show a blind model."""
        parts, samples = parts_of(case, data.dataset)
        asked = self.read(case, samples, data)
        controls = [probability for own in asked.values() for probability in own.controls]
        notes = self._control_notes(data, controls)
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
            notes += (f"right answers by kind of question: {shown}",)
        content = [[s.id, self._query(s)] for s in parts_of(case, data.population)[1]]
        return Measured(
            scores=by_part(parts, {name: self._score(own) for name, own in asked.items()}),
            samples=samples,
            outcomes=[asked[sample.id].outcome for sample in samples],
            identity={"questions": digest_json(content)[:16]},
            notes=notes,
        )

    def show(self, case: Case, sample_id: str, data: ChainData) -> ChainExcerpt:
        """The chain with the score of its picture, and the questions that are answered worst."""
        samples = data.named(sample_id)
        asked = self.read(case, samples, data)[sample_id]
        chain = data.chains(self.plan.start, samples)[sample_id]
        marks = {self.generation: self._score(asked)} if asked.atoms else {}
        worst = sorted(
            zip(asked.atoms, questions_of(samples[0]), strict=False), key=lambda pair: pair[0]
        )
        remark = "; ".join(
            f"{one_line(question.text, 80)} {one_line(question.answer, 40)}: {probability:.2f}"
            for probability, question in worst[:_SHOWN]
            if probability < HALF
        )
        return ChainExcerpt(chain, marks, asked.outcome.failure, chain.failed_at, remark)

    def _score(self, asked: AskedChain) -> float:
        return soft_tifa(asked.atoms, _MEANS[self.kind]) if asked.atoms else 0.0

    def _asked(self, pairs: Iterable[tuple[str, str]]) -> str:
        """The query of questions with the answers whose likelihood is asked for."""
        prompts = ((self.prompt.replace(_QUESTION, text), answer) for text, answer in pairs)
        return vqa_query([VqaQuestion(text, spellings(answer)) for text, answer in prompts])

    def _query(self, sample: Sample) -> str:
        """All that is asked about an artifact of a sample: its questions, then its controls.

        Raises MeasurementError for a sample without questions.
        """
        own = [(question.text, question.answer) for question in own_questions(sample)]
        return self._asked([*own, *((text, NO) for text in controls_of(sample)[: self.controls])])

    def _ask(self, chains: Sequence[Chain], generation: int, data: ChainData) -> list[AskedChain]:
        """Ask about every chain's artifact at a generation, which all of them have.

        Raises as `vqa_answers`, and MeasurementError for a sample without questions.
        """
        queries = {chain.sample.id: self._query(chain.sample) for chain in chains}
        results = vqa_answers(chains, generation, queries, data.runner(VQA), data.store)
        asked = []
        for chain, result in zip(chains, results, strict=True):
            if isinstance(result, Failure):
                asked.append(AskedChain(CaseScores(chain.sample.id, result, VQA)))
                continue
            questions = own_questions(chain.sample)
            places = {question.id: place for place, question in enumerate(questions)}
            parents = [[places[parent] for parent in question.depends_on] for question in questions]
            answers = tuple(result[: len(questions)])
            atoms, controls = fail_descendants(answers, parents), tuple(result[len(questions) :])
            outcome = outcome_of_chain(chain, self.plan)
            asked.append(AskedChain(outcome, answers, atoms, controls))
        return asked

    def _control_notes(self, data: ChainData, later: Sequence[float]) -> tuple[str, ...]:
        """What control questions tell of the VQA model; nothing where it could not be asked at all.

        The model is judged by what it says of the starts of the whole suite, whose answers are
        known: so the judgement is the same for every case, look and worker, and whatever became of
        the chains.

        later: the probabilities of the right answers to the control questions about what models
            made.
        Raises MeasurementError for a model that answers too few rightly, of its own questions or of
        the control questions, and where there are no control questions although they are wanted.
        """
        if not self.controls:
            said = "no control questions were asked: a model that says yes to all would not show"
            return (said,)
        whole, start = data.origin, self.plan.start

        def ask() -> list[AskedChain]:
            # Another seed has the same start.
            asked = (s for s in whole.population.samples if not s.replicate)
            samples = [sample for sample in asked if questions_of(sample)]
            return [
                own
                for chains in whole.start_chains(start, samples)
                for own in self._ask(chains, 0, whole)
                if own.answers  # none where the model failed at it
            ]

        starts = whole.cached(("asked starts", self.prompt, self.controls), start, ask)
        if not starts and not later:
            return ()
        if not any(own.controls for own in starts) and not later:
            raise MeasurementError(
                f"{self.name}: there are no control questions: no other sample has a question "
                "whose answer is yes and that this one lacks. Add such questions, or set "
                "controls = 0 to measure without knowing whether the VQA model says yes to all"
            )
        known = ControlAccuracy.of(
            [probability for own in starts for probability in own.answers],
            [probability for own in starts for probability in own.controls],
        )
        too_few = f"{self.name}: the VQA model answers too few control questions rightly:"
        if known.below(self.least_control):
            raise MeasurementError(
                f"{too_few} {known}; at least {self.least_control:.0%} of each is expected of the "
                "starts, whose answers are known, and one that says the same to all has none of "
                "one of them. Give another model with --vqa=SPEC"
            )
        if known.flawless:
            self._refuse_both(whole)
        modality = self.plan.modality(self.generation)
        made, seen = MODALITIES[modality].made, ControlAccuracy.of((), later)
        least = _LEAST_LATER if starts else self.least_control
        if (modality != start or not starts) and seen.below(least):
            raise MeasurementError(
                f"{too_few} {seen} in {made}, where at least {least:.0%} is expected. One that "
                "says yes to all has none: give another with --vqa=SPEC, unless the chains show "
                "all that is asked about"
            )
        notes = [str(known)] if starts else []
        if later:
            notes.append(f"of what models made, which may show it by now: {made} {seen}")
        return (f"control questions answered rightly: {'; '.join(notes)}",)

    def _refuse_both(self, whole: ChainData) -> None:
        """Raise MeasurementError for a model to which any answer is likely: both yes and no.

        It answers all questions rightly, whatever it is shown. A model that normalizes over the
        answers that are looked for alone is one.
        """

        def ask() -> list[float]:
            samples = [
                sample
                for sample in whole.population.samples
                if not sample.replicate and controls_of(sample)
            ][:_ASKED_TWICE]
            queries = {
                s.id: self._asked((text, YES) for text in controls_of(s)[: self.controls])
                for s in samples
            }
            return [
                probability
                for chains in whole.start_chains(self.plan.start, samples)
                for own in vqa_answers(chains, 0, queries, whole.runner(VQA), whole.store)
                if not isinstance(own, Failure)
                for probability in own
            ]

        key = ("yes to controls", self.prompt, self.controls)
        said = whole.cached(key, self.plan.start, ask)
        both = sum(probability > HALF for probability in said)
        if 2 * both > len(said):
            raise MeasurementError(
                f"{self.name}: the VQA model gives over one half both to yes and to no, in {both} "
                f"of {len(said)} control questions: it finds any answer likely that is looked for, "
                "whatever it is shown. Give another with --vqa=SPEC"
            )
