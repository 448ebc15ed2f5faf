"""Models as a user writes them, of every role: the embedded ones, which break when they are told.

Their stated identity is the same before and after. The environment tells, so that workers and the
processes of gates break too: `CEP_TEST_FAULT=ROLE:FAULT`, a fault of `test_fail_closed_matrix`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import Detection, Detections
from pytest_cepbench.datasets.shapes import Degradation
from pytest_cepbench.datasets.shapes.arena import AnswerDegradation
from pytest_cepbench.models.protocols import AnswerStep, Battle, Question, StepLimit, VqaQuestion
from pytest_cepbench.models.rule_based.arena_models import (
    JudgeKnobs,
    ShapesInterleaver,
    ShapesJudge,
)
from pytest_cepbench.models.rule_based.scene_models import (
    DescriberKnobs,
    ShapesDescriber,
    ShapesDetector,
    ShapesEncoder,
    ShapesGenerator,
    ShapesVqa,
    VqaKnobs,
)

VARIABLE = "CEP_TEST_FAULT"

THOUGHTS = "<think>\nA red circle, or rather"

GRAY = Image.new("RGB", (64, 64), "gray")


def fault_of(role: str) -> str:
    """What is wrong with the model of a role; empty where nothing is."""
    broken, _, fault = os.environ.get(VARIABLE, "").partition(":")
    return fault if broken == role else ""


def leave(fault: str) -> None:
    """Break off as code of research does."""
    if fault == "raise":
        raise ArithmeticError("out of order")
    if fault == "exit":
        sys.exit()
    if fault == "exit-0":
        sys.exit(0)
    if fault == "skip":
        pytest.skip("no GPU")
    if fault == "quit":
        pytest.exit("no GPU", returncode=0)


class Faulty:
    """version: part of the identity, for another checkpoint of the same model.

    odd: fault -> what is returned for each input.
    """

    seeded = False
    odd: ClassVar[dict[str, Any]] = {}

    def __init__(self, version: str = "1") -> None:
        self.role = type(self).__name__.lower()
        self.fingerprint = f"faulty {self.role}/{version}"
        place, _, fault = fault_of(self.role).partition("-")
        if place == "factory":
            leave(fault)

    def answers(self, inputs: Sequence[Any], honest: Callable[[], Sequence[Any]]) -> Any:
        """One answer for each input, as far as nothing is wrong."""
        fault = fault_of(self.role)
        leave(fault)
        if fault == "nothing":
            return None
        if fault == "few":
            return honest()[:-1]
        return [self.odd[fault]] * len(inputs) if fault else honest()


class Describer(Faulty):
    """Of images."""

    odd: ClassVar[dict[str, Any]] = {
        "none": None,
        "nan": np.nan,
        "constant": "A red circle.",
        "empty": " ",
        "thoughts": THOUGHTS,
    }

    def describe(self, images: Sequence[Any], prompt: str, seeds: Sequence[int]) -> Any:
        """Captions."""
        exact = ShapesDescriber(DescriberKnobs())
        return self.answers(images, lambda: exact.describe(images, prompt, seeds))


class Generator(Faulty):
    """Of images."""

    odd: ClassVar[dict[str, Any]] = {
        "none": None,
        "nan": np.full((64, 64, 3), np.nan),
        "constant": GRAY,
        "empty": np.zeros((0, 0, 3), np.uint8),
    }

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> Any:
        """Drawings."""
        exact = ShapesGenerator(Degradation())
        return self.answers(texts, lambda: exact.generate(texts, seeds))


class Interleaver(Faulty):
    """Of answers."""

    odd: ClassVar[dict[str, Any]] = {
        "none": None,
        "nan": [AnswerStep("A circle.", np.full((64, 64, 3), np.nan))],
        "constant": [AnswerStep("A red circle.", GRAY)],
        "empty": [],
        "thoughts": [AnswerStep(THOUGHTS)],
    }

    def interleave(
        self, questions: Sequence[Question], limits: Sequence[StepLimit], seeds: Sequence[int]
    ) -> Any:
        """Texts and images."""
        exact = ShapesInterleaver(AnswerDegradation())
        return self.answers(questions, lambda: exact.interleave(questions, limits, seeds))


class Encoder(Faulty):
    """Of images and texts."""

    odd: ClassVar[dict[str, Any]] = {
        "none": None,
        "nan": [np.nan] * 4,
        "constant": [1.0] * 4,
        "empty": [],
    }

    def encode_images(self, images: Sequence[Any]) -> Any:
        """Vectors."""
        found = self.answers(images, lambda: list(ShapesEncoder().encode_images(images)))
        return found if found is None else np.array(found)

    def encode_texts(self, texts: Sequence[str]) -> Any:
        """Vectors."""
        found = self.answers(texts, lambda: list(ShapesEncoder().encode_texts(texts)))
        return found if found is None else np.array(found)


class Judge(Faulty):
    """Of answers."""

    odd: ClassVar[dict[str, Any]] = {
        "none": None,
        "nan": np.nan,
        "constant": "A",
        "empty": "",
        "thoughts": THOUGHTS,
    }

    def judge(self, battles: Sequence[Battle], seeds: Sequence[int]) -> Any:
        """Verdicts; a blind one has ties that lean by content, as if it had looked."""
        if fault_of(self.role) == "blind":
            return ["Tie(A)" if str(b.first) < str(b.second) else "Tie(B)" for b in battles]
        exact = ShapesJudge(JudgeKnobs())
        return self.answers(battles, lambda: exact.judge(battles, seeds))


class Vqa(Faulty):
    """Of images and texts."""

    odd: ClassVar[dict[str, Any]] = {"none": None, "nan": np.nan, "constant": 1.0, "empty": ""}

    def answer(self, pieces: Sequence[Any], questions: Sequence[Sequence[VqaQuestion]]) -> Any:
        """Probabilities."""
        if fault_of(self.role) in self.odd:
            each = self.odd[fault_of(self.role)]
            return [[each] * len(own) for own in questions]
        exact = ShapesVqa(VqaKnobs())
        return self.answers(pieces, lambda: exact.answer(pieces, questions))


class Detector(Faulty):
    """Of shapes."""

    queries = "classes"
    odd: ClassVar[dict[str, Any]] = {"none": None, "nan": np.nan, "empty": Detections()}

    def detect(self, images: Sequence[Any], queries: Sequence[Sequence[str]]) -> Any:
        """Boxes; a constant one finds what it is asked for, always at one place."""
        if fault_of(self.role) == "constant":
            return [
                Detections(tuple(Detection(q, 1.0, (0, 0, 9, 9), color="red") for q in asked))
                for asked in queries
            ]
        return self.answers(images, lambda: ShapesDetector().detect(images, queries))


if fault_of("import") in ("exit-0", "skip"):
    leave(fault_of("import"))
