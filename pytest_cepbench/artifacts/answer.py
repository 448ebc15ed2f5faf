"""Interleaved answers: steps of a text, an image or both, named by the digest of their parts.

The rules by which a sequence of texts and images becomes steps stand here once, for models that
answer in one message and for answers that are read from files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from pytest_cepbench.artifacts.digest import canonical_json, digest_text
from pytest_cepbench.files import parse_json

MOST_STEPS = 10
"""Most steps of an answer; the released test set of OpenING was filtered to as many."""

STEP_END = "<IMG>"
"""Ends a part of a writer's text, where an image belongs. Source: OpenING's released prompts."""

T = TypeVar("T")


@dataclass(frozen=True)
class StoredStep:
    """One step of an answer.

    text: empty where it has none.
    image: digest of its image; None where it has none.
    """

    text: str
    image: str | None


@dataclass(frozen=True)
class Answer:
    """An interleaved answer, whose images lie in the store.

    steps: in order, at least one. Raises ValueError for none, and for one without text and image.
    """

    steps: tuple[StoredStep, ...]

    def __post_init__(self) -> None:
        if not self.steps or any(not (step.text or step.image) for step in self.steps):
            raise ValueError("an answer has at least one step, and a step a text, an image or both")

    @cached_property
    def digest(self) -> str:
        """Digest of its texts and images, in order: equal answers have equal digests."""
        return digest_text(self.to_json())

    @property
    def images(self) -> tuple[str, ...]:
        """Digests of its images, in order."""
        return tuple(step.image for step in self.steps if step.image is not None)

    def to_json(self) -> str:
        """Canonical JSON: a list of [text, digest of the image or null]."""
        return canonical_json([[step.text, step.image] for step in self.steps])

    @classmethod
    def from_json(cls, text: str) -> Answer:
        """The answer that `to_json` wrote. Raises ValueError for anything else."""
        match parse_json(text):
            case [*steps]:
                return cls(tuple(map(_stored_step, steps)))
            case other:
                raise ValueError(f"an answer is a list of steps, got {other!r:.80}")


def _stored_step(step: object) -> StoredStep:
    match step:
        case [str(text), None]:
            return StoredStep(text, None)
        case [str(text), str(image)]:
            return StoredStep(text, image)
    raise ValueError(f"a step is [text, digest or null], got {step!r:.80}")


def cut_into_steps(pieces: Iterable[str | T]) -> list[tuple[str, T | None]]:
    """Steps of (text, image or None) from texts and images in reading order.

    A step ends after its image: text after the last image is a step without one, and of two images
    in a row the second is a step without text. White space alone is no text; texts that follow one
    another are one text.
    """
    steps: list[tuple[str, T | None]] = []
    texts: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            texts += [piece.strip()] if piece.strip() else []
        else:
            steps.append(("\n".join(texts), piece))
            texts = []
    if texts:
        steps.append(("\n".join(texts), None))
    return steps


def limit_steps(steps: Sequence[T], most: int = MOST_STEPS) -> tuple[list[T], int]:
    """The steps that count, and how many were cut off."""
    return list(steps[:most]), max(0, len(steps) - most)
