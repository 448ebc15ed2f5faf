"""Models that measure, as a user writes them: the embedded ones, which fail at what a file names.

Before and after they fail they are one model, so that measurements stay comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure, ImageArtifact, digest_text
from pytest_cepbench.artifacts.outcome import CRITERIA
from pytest_cepbench.models.protocols import AnsweredQuestion, Battle, VqaQuestion
from pytest_cepbench.models.rule_based.scene_models import ShapesDetector, ShapesVqa, VqaKnobs
from tests.suites.world import Namer, vector

EVERYTHING = "*"
"""In a file: the model fails at all of its inputs."""


class Failing:
    """kind: "raise", or "odd" for what the role may not return (NaN, no verdict, bad boxes).

    file: one digest of an input a line, or `EVERYTHING`.
    """

    seeded = False

    def __init__(self, kind: str, file: str) -> None:
        self.kind, self.file = kind, Path(file)
        self.fingerprint = f"failing {type(self).__name__}/1"

    def fails(self, piece: Image.Image | str) -> bool:
        """Whether it fails at an input. Raises where it is to raise."""
        named = self.file.read_text(encoding="utf-8").split()
        if isinstance(piece, str):
            digest = digest_text(piece)
        else:
            digest = ImageArtifact.from_pil(piece).digest
        if EVERYTHING not in named and digest not in named:
            return False
        if self.kind == "raise":
            raise ArithmeticError("out of order")
        return True


class Encoder(Failing):
    """Vectors of scenes."""

    def encode_images(self, images: Sequence[Image.Image]) -> Any:
        """(n, D), NaN where it fails."""
        return np.array([vector(i) * (np.nan if self.fails(i) else 1.0) for i in images])

    encode_texts = encode_images


class ColorEncoder(Failing, Namer):
    """Colors of cut-outs; it fails at all of them or at none, and at no text."""

    def encode_images(self, images: Sequence[Image.Image]) -> Any:
        """(n, 3), NaN where it fails."""
        broken = [self.fails(image) for image in images]
        return np.where(np.array(broken)[:, None], np.nan, super().encode_images(images))


class Detector(Failing):
    """Boxes of shapes."""

    queries = "classes"

    def detect(self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]) -> list[Any]:
        """The boxes, or a failure."""
        found: list[Any] = list(ShapesDetector().detect(images, queries))
        return [
            Failure("bad-boxes", "inside out") if self.fails(image) else own
            for image, own in zip(images, found, strict=True)
        ]


class Vqa(Failing):
    """Answers about scenes."""

    def answer(self, pieces: Sequence[Any], questions: Sequence[Sequence[VqaQuestion]]) -> Any:
        """The probabilities, NaN where it fails."""
        answers: list[Any] = list(ShapesVqa(VqaKnobs()).answer(pieces, questions))
        return [
            [float("nan")] * len(own) if self.fails(piece) else own
            for piece, own in zip(pieces, answers, strict=True)
        ]


class Judge(Failing):
    """Verdicts and scores of answers, by the first text of their questions.

    kind: also "second", for no verdict where the answer of the smaller digest is shown second, in
    one of two orders.
    """

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> list[Any]:
        """The answer of more words, which misses fewer objects; or no verdict."""
        return [self._verdict(*each) for each in zip(battles, seeds, strict=True)]

    def _verdict(self, battle: Battle, seed: int) -> Any:
        first, second = (
            " ".join(piece for piece in answer if isinstance(piece, str))
            for answer in (battle.first, battle.second)
        )
        if self.fails(_text(battle.question)) and (self.kind != "second" or first > second):
            return Failure("no-verdict", "I cannot decide.")
        lead = len(first.split()) - len(second.split())
        return "A" if lead > 0 else "B" if lead < 0 else ("Tie(A)", "Tie(B)")[seed % 2]

    def score_answers(self, answers: Sequence[AnsweredQuestion], seeds: Sequence[int]) -> list[Any]:
        """Scores, or none."""
        return [
            Failure("no-score", "I cannot decide.")
            if self.fails(_text(answered.question))
            else dict.fromkeys(CRITERIA, 5 + len(answered.answer) % 2)
            for answered in answers
        ]


def _text(question: Sequence[Any]) -> str:
    return next(piece for piece in question if isinstance(piece, str))
