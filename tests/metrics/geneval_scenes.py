"""Prompts and hand-made detections for the tests of GenEval's rules."""

from __future__ import annotations

from pytest_cepbench.artifacts import Detection
from pytest_cepbench.metrics.geneval import judge
from pytest_cepbench.metrics.geneval_prompts import (
    GENEVAL,
    Clause,
    Exclusion,
    Position,
    Prompt,
    Relation,
    SelectionSettings,
)

Found = dict[str, list[Detection]]


def seen(
    name: str, score: float, x: float = 100, y: float = 100, side: float = 20, color: str = ""
) -> Detection:
    """A detection of a square object around a center."""
    box = (x - side / 2, y - side / 2, x + side / 2, y + side / 2)
    return Detection(name, score, box, color=color or None)


def many(name: str, *scores: float) -> list[Detection]:
    """Detections far from one another."""
    return [seen(name, score, x=100 * number) for number, score in enumerate(scores)]


def right(prompt: Prompt, detected: Found, settings: SelectionSettings = GENEVAL) -> bool:
    """Whether the image is right, where the detections carry their colors."""
    return judge(prompt, detected, {}, settings).correct


def counting(number: int, name: str = "dog") -> Prompt:
    """Exactly that many."""
    return Prompt("counting", (Clause(name, number),), (Exclusion(name, number + 1),))


def placed(relation: Relation, count: int = 1) -> Prompt:
    """Dogs in that relation to a cat."""
    return Prompt("position", (Clause("cat", 1), Clause("dog", count, None, Position(relation, 0))))


DOG = Prompt("single_object", (Clause("dog", 1),))
DOG_AND_CAT = Prompt("two_object", (Clause("dog", 1), Clause("cat", 1)))
RED_DOG = Prompt("colors", (Clause("dog", 1, color="red"),))
RIGHT_OF_A_RED_DOG = Prompt(
    "position", (Clause("dog", 1, color="red"), Clause("cat", 1, position=Position("right of", 0)))
)
