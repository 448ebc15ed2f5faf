"""Asking a VQA model about a sample's artifacts: its questions, control questions, and the check.

What `soft_tifa` and the checker of facts by a VQA model share. Where both ask alike, the store has
one answer for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.chains import Chain, ChainPlan, Modality, vqa_answers, vqa_query
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
from pytest_cepbench.measures.base import RequiredFeatures
from pytest_cepbench.measures.chain_data import ChainData
from pytest_cepbench.metrics.facts import HALF, ControlAccuracy, fail_descendants
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

    def required_starts(self, plan: ChainPlan) -> tuple[RequiredFeatures, ...]:
        """The starts, by which the VQA model is judged; none without control questions."""

        def query(sample: Sample, _: BoundRole) -> str:
            return self.query(sample)

        return (RequiredFeatures(plan, (0,), VQA, query, stops_chain=False),) * bool(self.controls)

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
    starts = _ask_starts(settings, plan, chain_data)
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
        if modality != plan.start or not starts:
            _refuse_yes(metric, modality, accuracy, least)
    notes = [str(known)] if starts else []
    if seen:
        shown = ", ".join(f"{_MADE[what]} {accuracy}" for what, accuracy in seen.items())
        notes.append(f"of what models made, which may show it by now: {shown}")
    return (f"control questions answered rightly: {'; '.join(notes)}",)


_MADE: Mapping[Modality, str] = {"text": "descriptions", "image": "drawings"}


def _refuse_yes(metric: str, modality: Modality, seen: ControlAccuracy, least: float) -> None:
    """Raise MeasurementError for a model that sees too much in what models made."""
    if seen.below(least):
        raise MeasurementError(
            f"{metric}: the VQA model answers too few control questions rightly: {seen} in "
            f"{_MADE[modality]}, where at least {least:.0%} is expected. One that says yes to all "
            "has none: give another with --vqa=SPEC, unless the chains show all that is asked about"
        )


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
            if not sample.replicate and sample.edit is None and controls_of(sample)
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


def _ask_starts(
    settings: QuestionSettings, plan: ChainPlan, chain_data: ChainData
) -> list[AnsweredQuestions]:
    """What the VQA model says of all starts of the suite, as far as it can be asked about them."""
    whole = chain_data.origin

    def ask() -> list[AnsweredQuestions]:
        # Another seed has the same start, and an edited one another than its questions are about.
        asked = (s for s in whole.population.samples if not s.replicate and s.edit is None)
        samples = [sample for sample in asked if questions_of(sample)]
        return [
            own
            for chains in whole.start_chains(plan.start, samples)
            for own in settings.ask(chains, 0, whole)
            if isinstance(own, AnsweredQuestions)
        ]

    return whole.cached(("asked starts", settings), plan.start, ask)


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
