"""Roles of models in a chain: the Protocols that adapters and users' own models satisfy.

Roles take Pillow images, `Sound`s and plain strings; the chains turn results into artifacts. A role
returns one result per input, in order: a `Failure` where a single input fails, and a `Reply` where
a result comes with usage, provenance or remarks. An exception means that the whole batch failed.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import Detections, Failure, Modality, Sound
from pytest_cepbench.artifacts.answer import MOST_STEPS
from pytest_cepbench.artifacts.outcome import CriteriaScores, Winner
from pytest_cepbench.models import ROLE_NAMES as ROLE_NAMES  # noqa: PLC0414 - needed with these
from pytest_cepbench.models import RoleName as RoleName  # noqa: PLC0414

UNIFIED_ROLES: tuple[RoleName, ...] = ("describer", "generator")
"""Roles of a unified model: it describes and generates."""


def is_unified(roles: Collection[RoleName]) -> bool:
    """True where a model with these roles describes and generates."""
    return set(UNIFIED_ROLES) <= set(roles)


CODE = "code"
"""In the provenance of a model of the user's own: its code, which its fingerprint should follow."""

CUT: Mapping[str, str] = {"finish": "length"}
"""In the provenance of a text that ends at the limit of its length, and not by itself."""


FloatArray = npt.NDArray[np.floating[Any]]

ImageLike = Image.Image | npt.NDArray[Any]
"""A Pillow image, (h, w, 3) uint8, or (h, w, 3) floats in [0, 1]."""

SoundLike = Sound | tuple[npt.NDArray[Any], int]
"""A sound, or its (frames,) samples in [-1, 1] with their rate in Hz."""

READS: frozenset[Modality] = frozenset(("text", "image"))
"""Kinds of artifacts that a model reads whose adapter does not say it, in `BoundRole.reads`."""


@dataclass(frozen=True)
class Usage:
    """The usage of a model for some answers, as far as the model counts it; usages add up.

    requests: sent to a server.
    retries: requests that repeat a failed one.
    input_tokens: of prompts and images, as the server counts them.
    output_tokens: of answers, as the server counts them.
    images: drawn.
    cost: in the currency of the prices in the models' specs; 0 without prices.
    """

    requests: int = 0
    retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    images: int = 0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(operator.add, vars(self).values(), vars(other).values()))

    def __sub__(self, other: Usage) -> Usage:
        difference = Usage(*map(operator.sub, vars(self).values(), vars(other).values()))
        return replace(difference, cost=max(0.0, difference.cost))  # rounding could leave -1e-17


@dataclass(frozen=True)
class Reply:
    """A result with its usage, provenance and remarks.

    value: the result itself, or a `Failure`.
    usage: of this result.
    provenance: kept beside the stored result, never in a key.
    passing: whether a failure may succeed at another try, so that it is counted and not stored.
    remarks: sentences for people, shown once in a run.
    """

    value: Any
    usage: Usage = Usage()
    provenance: Mapping[str, str] = field(default_factory=dict)
    passing: bool = False
    remarks: tuple[str, ...] = ()


@runtime_checkable
class Describer(Protocol):
    """Image to text; or sound to text, of a model that reads sounds (`BoundRole.reads`)."""

    def describe(
        self, images: Sequence[Any], prompt: str, seeds: Sequence[int]
    ) -> Sequence[str | Failure | Reply]:
        """Describe each RGB image, or each `Sound`: a call has inputs of one kind.

        seeds: per input, below 2**32, ignored where greedy.
        """
        ...


@runtime_checkable
class JsonDescriber(Describer, Protocol):
    """A describer that can be held to a JSON schema; others are asked for JSON by the prompt."""

    def describe_json(
        self,
        images: Sequence[Image.Image],
        prompts: Sequence[str],
        schema: Mapping[str, Any],
        seeds: Sequence[int],
    ) -> Sequence[str | Failure | Reply]:
        """As `describe`, with a prompt for each image.

        Each text should be an object of the JSON schema, and may not be one.
        """
        ...


@runtime_checkable
class Generator(Protocol):
    """Text to image; or text to sound, of a model that makes sounds (`BoundRole.makes`)."""

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> Sequence[Any]:
        """Draw or sound each text; each result must depend only on its own text and seed.

        Returns an `ImageLike`, or of a model that makes sounds a `SoundLike`, for each; or a
        `Failure` or a `Reply`.
        """
        ...


@runtime_checkable
class Encoder(Protocol):
    """Artifact to vector: (n, dimension) floats, not necessarily normalised, NaN allowed."""

    def encode_images(self, images: Sequence[Image.Image]) -> FloatArray:
        """Features of each RGB image."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:
        """Features of each text; raises RoleError where the model reads no texts."""
        ...


@runtime_checkable
class SoundEncoder(Protocol):
    """An encoder of sounds: it has this method as well as those of `Encoder`."""

    def encode_sounds(self, sounds: Sequence[Sound]) -> FloatArray:
        """Features of each sound, of any length and rate."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """An encoder or generator that can say which texts are longer than it reads.

    Those without this method are taken to read any length.
    """

    def text_lengths(self, texts: Sequence[str]) -> tuple[list[int], int]:
        """Tokens of each text, and the most that are read; without a forward pass."""
        ...


Queries = Literal["free-text", "classes"]


@runtime_checkable
class Detector(Protocol):
    """Image to boxes."""

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> Sequence[Detections | Failure]:
        """Find the objects of each RGB image that answer one of its queries.

        queries: for each image the things to look for ("a photo of a red bench", or the plain name
        of a class where the detector knows a fixed set); at least one, none twice. A detection
        carries the query that it answers, word for word. Raises RoleError for a query that a
        detector of a fixed set of classes does not know.
        """
        ...


Piece = str | Image.Image
"""A part of a question or an answer."""


@dataclass(frozen=True)
class VqaQuestion:
    """A question about a picture or a text, with the answer that is looked for.

    text: the question as the model is asked it.
    answers: spellings of that answer, at least one ("four", "Four", "4").
    """

    text: str
    answers: tuple[str, ...]


@runtime_checkable
class Vqa(Protocol):
    """Questions about a picture (visual question answering), or about a text, to probabilities."""

    def answer(
        self, pieces: Sequence[Piece], questions: Sequence[Sequence[VqaQuestion]]
    ) -> Sequence[Sequence[float] | Failure | Reply]:
        """How likely the model's answer to each question is one of those looked for, in [0, 1].

        pieces: RGB images and texts.
        questions: about each piece, at least one. A model that answers in words alone gives 0 or 1.
        """
        ...


Question = Sequence[Piece]
"""A question: texts and RGB images in reading order."""


@dataclass(frozen=True)
class StepLimit:
    """How many steps an answer may have.

    told: the number that the model is told; None where it decides by itself.
    most: the answer is cut after so many, whatever was told.
    """

    told: int | None = None
    most: int = MOST_STEPS


@dataclass(frozen=True)
class AnswerStep:
    """One step of an interleaved answer, as a model gives it.

    text: empty where the step has none.
    image: None where the step has none.
    """

    text: str = ""
    image: ImageLike | None = None


@runtime_checkable
class Writer(Protocol):
    """Question to text: the text part of an interleaved answer, or any other reply."""

    def write(
        self, questions: Sequence[Question], prompt: str, seeds: Sequence[int]
    ) -> Sequence[str | Failure | Reply]:
        """Answer each question with a text; prompt is the system prompt, empty for none."""
        ...


@runtime_checkable
class JsonWriter(Writer, Protocol):
    """A writer that can be held to a JSON schema; others are asked for JSON by the prompt."""

    def write_json(
        self,
        questions: Sequence[Question],
        prompt: str,
        schema: Mapping[str, Any],
        seeds: Sequence[int],
    ) -> Sequence[str | Failure | Reply]:
        """As `write`; each text should be an object of the JSON schema, and may not be."""
        ...


@runtime_checkable
class Editor(Protocol):
    """Image and text to image."""

    def edit(
        self, images: Sequence[Image.Image], texts: Sequence[str], seeds: Sequence[int]
    ) -> Sequence[ImageLike | Failure | Reply]:
        """Change each RGB image as its text says; each depends on its own inputs alone."""
        ...


@runtime_checkable
class Interleaver(Protocol):
    """Question to an answer of steps: one model makes texts and images."""

    def interleave(
        self, questions: Sequence[Question], limits: Sequence[StepLimit], seeds: Sequence[int]
    ) -> Sequence[Sequence[AnswerStep] | Failure | Reply]:
        """Answer each question; each answer depends on its own question, limit and seed alone."""
        ...


@dataclass(frozen=True)
class Battle:
    """Two answers to a question, each a sequence of texts and RGB images in reading order."""

    question: Sequence[Piece]
    first: Sequence[Piece]
    second: Sequence[Piece]


@runtime_checkable
class Judge(Protocol):
    """Two answers to a verdict."""

    def judge(
        self, battles: Sequence[Battle], seeds: Sequence[int]
    ) -> Sequence[Winner | Failure | Reply]:
        """Say of each battle which answer is better: "A" is the first, "B" the second."""
        ...


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question with one answer, each a sequence of texts and RGB images in reading order."""

    question: Sequence[Piece]
    answer: Sequence[Piece]


@runtime_checkable
class AnswerScorer(Protocol):
    """A judge that can also score a single answer; not every judge has this ability."""

    def score_answers(
        self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]
    ) -> Sequence[CriteriaScores | Mapping[str, int] | Failure | Reply]:
        """Score each answer by the seven criteria, with whole numbers from 0 to 10.

        A mapping has a number for each name of `CRITERIA`. A criterion that is left out, and a
        number out of range, are failures of that criterion.
        """
        ...


@runtime_checkable
class Movable(Protocol):
    """A model whose weights can wait in host memory while another model has the device.

    A model without this method is unloaded, and loaded again.
    """

    def move(self, device: str) -> None:
        """Put the weights there: "cpu", or the device that the model was bound to."""
        ...


Model = Describer | Generator | Encoder | Detector | Judge | Writer | Editor | Interleaver | Vqa
