"""Asking a VQA model about a sample's artifacts: its questions, control questions, and the check.

What `soft_tifa` and the checker of facts by a VQA model share. Where both ask alike, the store has
one answer for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cepbench.chains import vqa_query
from pytest_cepbench.datasets.questions import (
    MOST_CONTROLS,
    NO,
    FactQuestion,
    controls_of,
    questions_of,
)
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.errors import MeasurementError
from pytest_cepbench.metrics.soft_tifa import HALF, ControlAccuracy, fail_descendants
from pytest_cepbench.models.protocols import VqaQuestion

VQA = "vqa"

QUESTION = "{question}"
"""The place of the question in a prompt."""

PROMPT = "{question} Answer in one word."
"""What GenEval 2's released code asks."""

CONTROLS = 2

LEAST_CONTROL = 0.6

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

    atoms: the probability of the right answer to each question of the sample, 0 below a failed one.
    controls: the same of its control questions.
    """

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
            msg = f"prompt = {self.prompt!r} does not hold {QUESTION}"
            raise ValueError(msg)
        if not 0 <= self.controls <= MOST_CONTROLS:
            msg = f"controls = {self.controls}: 0 to {MOST_CONTROLS} are expected"
            raise ValueError(msg)
        if not HALF < self.least_control <= 1:
            msg = (
                f"least_control = {self.least_control:g}: over 0.5, which a coin answers rightly, "
                "and up to 1 is expected"
            )
            raise ValueError(msg)

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
        atoms = fail_descendants(probabilities[: len(questions)], parents)
        return AnsweredQuestions(atoms, tuple(probabilities[len(questions) :]))

    def check(self, metric: str, present: Sequence[float], absent: Sequence[float]) -> str:
        """What the controls tell of the model, as a note.

        metric: its name, for messages.
        present, absent: probabilities of the right answers about what is there, and what is not.
        Raises MeasurementError for a model that answers too few of either rightly, and where there
        are no control questions although they are wanted.
        """
        if not self.controls:
            return "no control questions were asked: a model that says yes to all would not show"
        if not absent:
            msg = (
                f"{metric}: there are no control questions: no other sample has a question whose "
                "answer is yes and that this one lacks. Add such questions, or set controls = 0 to "
                "measure without knowing whether the VQA model says yes to all"
            )
            raise MeasurementError(msg)
        accuracy = ControlAccuracy.of(present, absent)
        if accuracy.below(self.least_control):
            msg = (
                f"{metric}: the VQA model answers too few control questions rightly: {accuracy}; "
                f"at least {self.least_control:.0%} of each is expected, and one that says the "
                "same to all has none of one of them. Give another model with --vqa=SPEC"
            )
            raise MeasurementError(msg)
        return f"control questions answered rightly: {accuracy}"


def own_questions(sample: Sample) -> tuple[FactQuestion, ...]:
    """The questions of a sample. Raises MeasurementError where it has none."""
    questions = questions_of(sample)
    if not questions:
        msg = (
            f"sample {sample.id!r} has no questions to ask about its pictures: name a file of them "
            "with [data] questions = FILE, or have them made of GenEval's clauses or of generated "
            'scenes with questions = "metadata"'
        )
        raise MeasurementError(msg)
    return questions
