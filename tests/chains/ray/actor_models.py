"""Models for an actor in the tests' own process: they answer, fail, count tokens, or use a file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Detection, Detections, Failure, Sound
from pytest_cepbench.models.protocols import AnswerStep, Reply, Usage


class AllRoles:
    """Plays every role; its answers name what it was asked."""

    fingerprint = "all-roles/1"
    seeded = True

    def describe(self, images: Sequence[Any], prompt: str, seeds: Sequence[int]) -> list[Any]:
        """A text, a blank one for black images."""
        warnings.warn("old call", DeprecationWarning, stacklevel=1)
        assert all(isinstance(image, Image.Image) for image in images)
        return [
            Reply(Text(f"{prompt} {image.size} {seed}"), Usage(requests=1))
            if np.asarray(image).any()
            else " "
            for image, seed in zip(images, seeds, strict=True)
        ]

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> Any:
        """A gray image; an array of NaN, and an object that raises when it is read."""
        odd = {"nan": np.full((4, 4, 3), np.nan), "raise": Unreadable()}
        if "by name" in texts:
            return dict.fromkeys(texts, odd["nan"])
        return [odd.get(text, Image.new("RGB", (4, 2), (9, 9, 9))) for text in texts]

    def encode_images(self, images: Sequence[Any]) -> Any:
        """Two numbers for each image."""
        return np.asarray([[image.width, 1e60] for image in images], np.float64)

    def encode_texts(self, texts: Sequence[str]) -> Any:
        """Two numbers for each text, a row too few for "short"."""
        if "by name" in texts:
            return {text: [1.0, 1.0] for text in texts}
        return np.ones((len(texts) - ("short" in texts), 2))

    def text_lengths(self, texts: Sequence[str]) -> tuple[Any, int]:
        """Words."""
        return tuple(len(text.split()) for text in texts), 3

    def detect(self, images: Sequence[Any], queries: Sequence[Sequence[str]]) -> list[Any]:
        """Each query once, with numbers of NumPy's."""
        return [
            Detections(
                tuple(
                    Detection(Text(word), np.float32(0.5), (0, 0, np.float64(image.width), 1.0))  # type: ignore[arg-type]
                    for word in words
                )
            )
            for image, words in zip(images, queries, strict=True)
        ]

    def judge(self, battles: Sequence[Any], seeds: Sequence[int]) -> list[Any]:
        """For the first answer where it has the larger image."""
        return [
            "A" if battle.first[0].width > battle.second[0].width else "B" for battle in battles
        ]

    def score_answers(self, answers: Sequence[Any], seeds: Sequence[int]) -> list[Any]:
        """The width of the answer's first image in one criterion, and nothing in the others."""
        return [{"richness": answered.answer[0].width} for answered in answers]

    def answer(self, pieces: Sequence[Any], questions: Sequence[Any]) -> list[Any]:
        """1 for a picture and 0 for a text, of every question; too much of none."""
        return [
            np.full(len(asked), 1.5 if piece == "odd" else float(not isinstance(piece, str)))
            for piece, asked in zip(pieces, questions, strict=True)
        ]

    def write(self, questions: Sequence[Any], prompt: str, seeds: Sequence[int]) -> list[Any]:
        """The texts of the question and the sizes of its images."""
        shown = [
            [piece.size if isinstance(piece, Image.Image) else piece for piece in question]
            for question in questions
        ]
        return [
            Text(f"{prompt} {pieces} {seed}") for pieces, seed in zip(shown, seeds, strict=True)
        ]

    def edit(self, images: Sequence[Any], texts: Sequence[str], seeds: Sequence[int]) -> list[Any]:
        """The image with its sides exchanged."""
        return [image.transpose(Image.Transpose.ROTATE_90) for image in images]

    def interleave(
        self, questions: Sequence[Any], limits: Sequence[Any], seeds: Sequence[int]
    ) -> list[Any]:
        """As many steps as are told; no answer to "no", and no image to "nan"."""
        image = Image.new("RGB", (4, 2), (9, 9, 9))
        nan = np.full((4, 4, 3), np.nan)
        answers: dict[str, Any] = {"no": Failure("refused", "no"), "nan": [AnswerStep("", nan)]}
        return [
            answers.get(question[0], [AnswerStep(Text("one"), image)] * (limit.told or 1))
            for question, limit in zip(questions, limits, strict=True)
        ]


TONE = np.asarray([0.25, -0.25, 0.5, 0.0], np.float32)


class Sounds:
    """Makes, describes and encodes sounds."""

    fingerprint = "sounds/1"
    seeded = True
    makes = "sound"
    reads = ("sound",)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Any]:
        """A tone as a sound, or as its samples with their rate; silence for "hush"."""
        made = {"tone": Sound(TONE, 8000), "hush": (np.zeros(4), 8000)}
        return [made.get(text, (TONE, 8000)) for text in texts]

    def describe(self, sounds: Sequence[Any], prompt: str, seeds: Sequence[int]) -> list[str]:
        """Its length and rate."""
        return [f"{prompt} {len(sound.samples)} at {sound.rate}" for sound in sounds]

    def encode_sounds(self, sounds: Sequence[Any]) -> Any:
        """Its length, and its first sample."""
        return np.asarray([[len(sound.samples), sound.samples[0]] for sound in sounds])

    def encode_images(self, images: Sequence[Any]) -> Any:
        """Nothing that is asked for."""
        raise NotImplementedError

    encode_texts = encode_images


class Text(str):
    """A text of a class that the driver does not have."""

    __slots__ = ()


class Unreadable(Image.Image):
    """An image that raises when its pixels are read."""

    def load(self) -> Any:
        """Raises."""
        raise ArithmeticError("no pixels")

    getexif = load


class Late(AllRoles):
    """Covers a file, which may change between binding and the first answers."""

    def __init__(self, path: str) -> None:
        self.fingerprint = Path(path).read_text(encoding="utf-8")
        self.files = [path]


def full() -> Any:
    """A model that does not fit."""
    raise RuntimeError("CUDA out of memory")
