"""Answers in two stages: for each step a text, then an image of that text, by one unified model.

This is how models are run that write and draw with one set of weights and cannot do both in one
sequence (Source: OpenING, section 5.1, "two-stage"). For a text the model is shown the question and
the steps before, texts and images; for an image the step's text and those of the question. Step k
of all questions of a call is made together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.answer import read_answer
from pytest_cepbench.models.protocols import (
    CUT,
    AnswerStep,
    Generator,
    Piece,
    Question,
    Reply,
    StepLimit,
    Writer,
)

PROMPTS = "interleaver-prompts/1"
"""Names the texts of this module; part of every key, and raised when any of them changes."""

SO_FAR = "The answer so far:"
"""Goes between the question and the steps that are made."""

END = "END"
"""What a model that writes step by step says where its answer is complete."""


def step_text(number: int, steps: int | None) -> str:
    """How a model is asked for the text of one step, after the question and the steps before.

    number: of the step, from 1. steps: how many there are to be; None where the model decides.
    """
    of_all = "" if steps is None else f" of {steps}"
    may_end = steps is None and number > 1
    ending = f" If the answer is complete, reply with {END}." if may_end else ""
    return (
        f"Write the text of step {number}{of_all} of the answer and nothing else. An image will be "
        f"drawn for it.{ending}"
    )


@dataclass
class _SequenceDraft:
    """An answer that is being made.

    question: whose answer it is. limit, seed: of the answer.
    steps: made so far. pieces: the texts and images of these.
    complete: whether no more steps are wanted. failure: what ended it early.
    cut: whether a step's text ended at the limit of its length.
    """

    question: Question
    limit: StepLimit
    seed: int
    steps: list[AnswerStep] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    complete: bool = False
    failure: Failure | None = None
    cut: bool = False

    @property
    def open(self) -> bool:
        """Whether another step is to be made."""
        told, most = self.limit.told, self.limit.most
        most = most if told is None else min(told, most)
        return not self.complete and self.failure is None and len(self.steps) < most

    def step_seed(self, stage: str) -> int:
        """The seed of a stage of the next step, below 2**32."""
        named = f"{self.seed} {len(self.steps)} {stage}"
        return int.from_bytes(sha256(named.encode()).digest()[:4], "big")


def interleave(
    writer: Writer,
    generator: Generator,
    questions: Sequence[Question],
    limits: Sequence[StepLimit],
    seeds: Sequence[int],
    *,
    keeps_reasoning: bool = False,
) -> list[list[AnswerStep] | Failure | Reply]:
    """Answer each question with a writer and a generator, which are one model; see `Interleaver`.

    Where no number of steps is asked for, an empty text ends an answer, and so does the word with
    which the model says that it is complete. A step that fails fails its answer.

    writer: writes a step's text.
    generator: draws its image; gives Pillow images or failures.
    keeps_reasoning: whether reasoning is a part of a text: else it is kept with its step, but
        neither drawn nor read again.
    """
    drafts = [_SequenceDraft(*given) for given in zip(questions, limits, seeds, strict=True)]
    while open_drafts := [draft for draft in drafts if draft.open]:
        asked: list[Question] = []
        for draft in open_drafts:
            before = [SO_FAR, *draft.pieces] if draft.pieces else []
            wanted = step_text(len(draft.steps) + 1, draft.limit.told)
            asked.append([*draft.question, *before, wanted])
        written = writer.write(asked, "", [draft.step_seed("text") for draft in open_drafts])
        # The text of each draft's next step, and the same with the reasoning that came with it.
        texts: list[tuple[_SequenceDraft, str, str]] = []
        for draft, result in zip(open_drafts, written, strict=True):
            draft.cut |= isinstance(result, Reply) and result.provenance.items() >= CUT.items()
            whole: str | Failure = result.value if isinstance(result, Reply) else result
            text = whole if keeps_reasoning or isinstance(whole, Failure) else read_answer(whole)
            if isinstance(text, Failure):
                draft.failure = text
                continue
            assert isinstance(whole, str)
            if draft.limit.told is None:
                text, ended = split_end(text)
                whole, _ = split_end(whole)
                draft.complete = ended or not text
            if text or draft.limit.told is not None:
                texts.append((draft, text, whole))
        prompts = []
        for draft, text, _ in texts:
            question = " ".join(piece for piece in draft.question if isinstance(piece, str))
            prompts.append(f"{text}\nThis image belongs to the answer to: {question}")
        seeds_of_images = [draft.step_seed("image") for draft, _, _ in texts]
        drawn = generator.generate(prompts, seeds_of_images) if texts else []
        for (draft, text, whole), image in zip(texts, drawn, strict=True):
            if isinstance(image, Failure):
                number = len(draft.steps) + 1
                draft.failure = Failure(image.kind, f"image of step {number}: {image.detail}")
            else:
                assert isinstance(image, Image.Image)
                draft.steps.append(AnswerStep(whole, image))
                draft.pieces += [text, image] if text else [image]
    empty = Failure("empty-text", "the answer has no step")
    answers = [(draft.failure or draft.steps or empty, draft.cut) for draft in drafts]
    return [Reply(answer, provenance=CUT) if cut else answer for answer, cut in answers]


def split_end(text: str) -> tuple[str, bool]:
    """A step's text without its last line, where that says that the answer is complete; whether it
    did.
    """
    *before, last = text.strip().split("\n")
    if last.strip(" .!*\"'`") != END:
        return text.strip(), False
    return "\n".join(before).strip(), True
