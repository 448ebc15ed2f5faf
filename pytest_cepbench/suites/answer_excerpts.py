"""A sample's question and answer for the reader, beside the answer that it battled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import Answer
from pytest_cepbench.chains.answers.answer_plan import refer_to_question
from pytest_cepbench.chains.answers.battles import PairOutcome
from pytest_cepbench.chains.growth import digest_of_image
from pytest_cepbench.datasets.sample import Sample, SeedImage
from pytest_cepbench.store import Store

OpponentName = Literal["accepted", "anchor", "reference"]
"""Whose answer a battle was against: the baseline's, the anchor's, or the data set's own."""


@dataclass(frozen=True)
class ExcerptStep:
    """One step of an answer, or one text or image of a question.

    text: empty where it has none.
    image: digest of its image; None where it has none.
    source: the image, where it is the data set's and need not be in the store.
    """

    text: str = ""
    image: str | None = None
    source: SeedImage | None = None


@dataclass(frozen=True)
class AnswerExcerpt:
    """A sample's question and answer.

    question: its texts and images, in order.
    steps: of the candidate's answer; none where there is no answer.
    failure: why there is none.
    opponent: whose answer it battled; None where the case has no battles.
    opposing: the steps of that answer; none where it is missing.
    opposing_lost: whether the store lacks that answer.
    outcome: of the battle; None where it was not fought.
    remark: what else a reader should know of the score; holds a judge's words.
    """

    question: tuple[ExcerptStep, ...]
    steps: tuple[ExcerptStep, ...]
    failure: Failure | None = None
    opponent: OpponentName | None = None
    opposing: tuple[ExcerptStep, ...] = ()
    opposing_lost: bool = False
    outcome: PairOutcome | None = None
    remark: str = ""


def excerpt_question(sample: Sample, store: Store) -> tuple[ExcerptStep, ...]:
    """The parts of a sample's question. Raises DatasetError for an image that is none."""
    digests = [digest for _, digest in refer_to_question(sample, store).inputs]
    return tuple(
        ExcerptStep(text=piece)
        if isinstance(piece, str)
        else ExcerptStep(image=digest, source=piece)
        for piece, digest in zip(sample.question, digests, strict=True)
    )


def excerpt_answer(answer: Answer | None) -> tuple[ExcerptStep, ...]:
    """The steps of a stored answer; none where there is no answer."""
    return () if answer is None else tuple(ExcerptStep(s.text, s.image) for s in answer.steps)


def excerpt_gold(sample: Sample, store: Store) -> tuple[ExcerptStep, ...]:
    """The steps of a sample's reference answer. Raises ImageError for an image that is none."""
    return tuple(
        ExcerptStep(
            step.text,
            None if step.image is None else digest_of_image(step.image, store),
            step.image,
        )
        for step in sample.gold
    )
