"""Answer plans: how a suite asks for interleaved answers, and how their battles are judged.

Questions and answers stand by kind and digest of their pieces, and are loaded as models take them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_cepbench.artifacts import digest_json, digest_text
from pytest_cepbench.artifacts.answer import MOST_STEPS, STEP_END, Answer
from pytest_cepbench.chains.chain import load_artifact
from pytest_cepbench.chains.growth import digest_of_image
from pytest_cepbench.datasets.sample import FileImage, Sample, SeedImage
from pytest_cepbench.errors import DatasetError, ImageError
from pytest_cepbench.models.protocols import Piece, StepLimit
from pytest_cepbench.store import ArtifactRef, Store

if TYPE_CHECKING:
    from pytest_cepbench.datasets.opening.answers import RecordedAnswer

STEP_PLACEHOLDER, QUESTION_PLACEHOLDER = "{step}", "{question}"

TOLD = "The number of generated text-image pairs can be {number}: "
"""Stands before a question whose answer's number of steps is told. Source: OpenING's scripts."""

OrderName = Literal["both", "balanced"]


@dataclass(frozen=True)
class AnswerPlan:
    """How the questions of a suite are asked.

    steps: "free", the model decides how many; "gold", it is told the reference answer's number, as
        OpenING's published scripts do.
    most: an answer is cut after so many steps.
    seed: the run's seed, from which every step's seed is derived.
    system: the writer's system prompt.
    image, edit: what generator and editor draw a step from.
    """

    steps: Literal["free", "gold"] = "free"
    most: int = MOST_STEPS
    seed: int = 0
    system: str = ""
    image: str = STEP_PLACEHOLDER
    edit: str = STEP_PLACEHOLDER

    def limit(self, sample: Sample) -> StepLimit:
        """How many steps the answer to a sample's question may have.

        Raises DatasetError where the reference answer's number is to be told and there is none.
        """
        if self.steps == "free":
            return StepLimit(None, self.most)
        if not sample.gold:
            raise DatasetError(
                f"{sample.id}: has no reference answer, whose number of steps is to be told: use "
                'a data set that has them, or steps = "free" under [answer]'
            )
        return StepLimit(min(len(sample.gold), self.most), self.most)

    def drawing_prompt(self, prompt: str, step: str, sample: Sample) -> str:
        """The prompt for a step's image. prompt: `image` or `edit`."""
        texts = (piece for piece in sample.question if isinstance(piece, str))
        asked = "\n".join(texts) if QUESTION_PLACEHOLDER in prompt else ""
        # One pass: a step's text may hold the other placeholder.
        parts = prompt.split(STEP_PLACEHOLDER)
        return step.join(part.replace(QUESTION_PLACEHOLDER, asked) for part in parts)

    def __str__(self) -> str:
        return f"{self.steps} steps, at most {self.most}, seed {self.seed}"


def parts_of(text: str, limit: StepLimit) -> tuple[list[tuple[str, bool]], int]:
    """The steps of a writer's text: (text, whether it is to have an image), and how many were cut.

    Where the number was told, so many steps have an image and the others keep their text; else
    those whose text the writer ended with the marker of an image. Blank parts are no steps.
    """
    *marked, last = text.split(STEP_END)
    parts = [(part.strip(), True) for part in marked] + [(last.strip(), False)]
    parts = [(part, drawn) for part, drawn in parts if part]
    if limit.told is not None:
        parts = [(part, number < limit.told) for number, (part, _) in enumerate(parts)]
    return parts[: limit.most], max(0, len(parts) - limit.most)


@dataclass(frozen=True)
class BattleRules:
    """How two answers to a question are compared by a judge.

    order: "both" asks with each answer first, and the score is the mean of the two; "balanced" asks
        once, and which answer is first alternates by the digest of the sample's id.
    seed: of the judge.
    """

    order: OrderName = "both"
    seed: int = 0

    def __str__(self) -> str:
        return f"order {self.order}, tie half, seed {self.seed}"  # as baselines have it


@dataclass(frozen=True)
class PieceRefs:
    """Texts and images in reading order, images not loaded.

    name: of what they are, for errors.
    pieces: texts, images of a data set, and images in the store.
    inputs: kind and digest of each.
    """

    name: str
    pieces: tuple[str | SeedImage | ArtifactRef, ...]
    inputs: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """Digest of all pieces, in order."""
        return digest_json(self.inputs)

    def load(self, store: Store) -> list[Piece] | None:
        """The pieces as models take them; None where a stored image is damaged or gone.

        Raises ImageError for an image of the data set that has changed.
        """
        loaded: list[Piece] = []
        for piece, (_, digest) in zip(self.pieces, self.inputs, strict=True):
            if isinstance(piece, str):
                loaded.append(piece)
                continue
            source = None if isinstance(piece, ArtifactRef) else piece
            image = load_artifact(digest, source, self.name, store)
            if image is None:
                return None
            loaded.append(image)
        return loaded


def refer_to_question(sample: Sample, store: Store) -> PieceRefs:
    """The question of a sample. Raises DatasetError where it has none, or an image that is none."""
    if not sample.question:
        raise DatasetError(f"{sample.id}: has no question: the suite asks for interleaved answers")
    return _refer(f"{sample.id}, its question", sample.question, store)


def refer_to_gold(sample: Sample, store: Store) -> PieceRefs | None:
    """The reference answer of a sample, where it has one. Raises DatasetError as above."""
    pieces = _pieces((step.text, step.image) for step in sample.gold)
    return _refer(f"{sample.id}, its reference answer", pieces, store) if pieces else None


def refer_to_answer(answer: Answer, sample_id: str) -> PieceRefs:
    """A stored answer."""
    pieces: list[str | ArtifactRef] = []
    for step in answer.steps:
        pieces += [step.text] if step.text else []
        pieces += [ArtifactRef(step.image)] if step.image is not None else []
    inputs = tuple(
        ("text", digest_text(piece)) if isinstance(piece, str) else ("image", piece.digest)
        for piece in pieces
    )
    return PieceRefs(f"{sample_id}, an answer", tuple(pieces), inputs)


def refer_to_recorded(answer: RecordedAnswer, sample_id: str, store: Store) -> PieceRefs:
    """An answer that another tool has made, its images in their files, with those that are there.

    Its digest is that of the same answer in the store. Raises DatasetError for an image that is
    none.
    """
    files = (s.image if isinstance(s.image, FileImage) else None for s in answer.steps)
    pieces = _pieces(zip((step.text for step in answer.steps), files, strict=True))
    return _refer(f"{sample_id}, an answer", pieces, store)


def _pieces(steps: Iterable[tuple[str, SeedImage | None]]) -> tuple[str | SeedImage, ...]:
    """The texts and images of steps in reading order, without those that are not there."""
    return tuple(
        piece for text, image in steps for piece in (text or None, image) if piece is not None
    )


def _refer(name: str, pieces: tuple[str | SeedImage, ...], store: Store) -> PieceRefs:
    try:
        inputs = tuple(
            ("text", digest_text(piece))
            if isinstance(piece, str)
            else ("image", digest_of_image(piece, store))
            for piece in pieces
        )
    except ImageError as error:
        raise DatasetError(f"{name}: {error}") from error
    return PieceRefs(name, pieces, inputs)
