"""What the judge learns from: battles of degraded answers to questions of the arena.

The truth of each answer says who wins, but in reference pairs: there an answer battles its own
better twin, made with the same seed and a quarter of the faults, and the twin counts as the winner
whatever the truth says, as the paper takes the answer that was shown the reference for the better.
Questions are lessons: none of the suites' scenes is among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from lessons import Lesson, draw_lesson

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.datasets.shapes import Scene, parse_caption, parse_image, render
from pytest_cepbench.datasets.shapes.arena import (
    TASKS,
    AnswerDegradation,
    ArenaStep,
    Truth,
    degraded_answer,
    score_answer,
    solve,
)
from pytest_cepbench.models.protocols import Piece
from pytest_cepbench.models.rule_based.arena_models import MARGIN
from pytest_cepbench.studies.training_files import people_battles

SEEN_FAULTS = ("miss", "recolor", "resize", "move", "no_text", "stop")
"""Kinds of faults that training shows."""

UNSEEN_FAULTS = ("swap", "no_image", "drift")
"""Kinds that are held out: a model of these is new to the judge.

A drift needs mistakes to go on from, so it comes with misses.
"""

MOST_APART = 0.4
"""The largest difference of truth that training aims at."""

_LEVEL = 0.7  # the highest probability of a fault
_EASY = 0.15  # the smallest difference of truth at first
_CANDIDATES = 4  # answers of a question of which two pairs are chosen
_REFERENCE_SHARE = 0.2
_REFERENCE_PART = 4

Source = Literal["arena", "reference", "people"]

Question = tuple[str | ImageArtifact, ...]
"""Images, then the sentence."""


@dataclass(frozen=True)
class Answered:
    """An answer with all that is known of it.

    steps: texts and images.
    truth: how good it is; None where nothing tells, as of people's pairs.
    told, shown, right: the scene of each step's text and image, and the one that it should have
        been; None where there is none. All are empty where the truth is not known.
    """

    steps: tuple[ArenaStep, ...]
    truth: Truth | None = None
    told: tuple[Scene | None, ...] = ()
    shown: tuple[Scene | None, ...] = ()
    right: tuple[Scene | None, ...] = ()

    @property
    def contents(self) -> list[tuple[str, str | None]]:
        """Text and digest of the image of each step: equal for equal answers."""
        return [(text, None if image is None else image.digest) for text, image in self.steps]


@dataclass(frozen=True)
class Battle:
    """Two answers to a question, and who wins.

    question: images, then the sentence.
    place: of the verdict in `WINNERS`.
    source: where the verdict comes from.
    """

    question: Question
    first: Answered
    second: Answered
    place: int
    source: Source

    @property
    def apart(self) -> float:
        """The lead of the first answer in truth, in [-1, 1]; 0 where it is not known."""
        if self.first.truth is None or self.second.truth is None:
            return 0.0
        return round(self.first.truth.total - self.second.truth.total, 9)


def draw_battles(
    rng: np.random.Generator,
    number: int,
    faults: Sequence[str] = SEEN_FAULTS,
    *,
    ease: float = 0.0,
    reference_share: float = _REFERENCE_SHARE,
) -> list[Battle]:
    """That many new battles of answers with these kinds of faults.

    ease: 1 keeps differences of truth under 0.15 away, 0 draws them evenly from [0, 0.4].
    reference_share: of pairs of an answer and its twin with a quarter of the faults.
    """
    battles: list[Battle] = []
    while len(battles) < number:
        lesson = _new_lesson(rng)
        if rng.random() < reference_share:
            battles += _reference_pair(lesson, rng, faults)
        else:
            battles += _arena_pairs(lesson, rng, faults, ease)
    return battles[:number]


def draw_answers(
    rng: np.random.Generator, number: int, faults: Sequence[str] = SEEN_FAULTS
) -> list[tuple[Question, Answered]]:
    """That many answers with these kinds of faults, each to a new question."""
    answers: list[tuple[Question, Answered]] = []
    while len(answers) < number:
        lesson = _new_lesson(rng)
        answer = draw_answer(lesson, AnswerDegradation(**draw_knobs(rng, faults)), _seed(rng))
        answers += [] if answer is None else [(question_of(lesson, _seed(rng)), answer)]
    return answers


def read_people(folder: Path) -> list[Battle]:
    """The battles of a study of pairs that people have judged; their truth is not known.

    Raises DatasetError for a folder that holds none.
    """
    return [
        Battle(
            tuple(map(_content, own.battle.question)),
            Answered(_steps_of(own.battle.first)),
            Answered(_steps_of(own.battle.second)),
            WINNERS.index(own.verdict),
            "people",
        )
        for own in people_battles(folder)
    ]


def draw_knobs(rng: np.random.Generator, faults: Sequence[str] = SEEN_FAULTS) -> dict[str, float]:
    """Levels of one or two of these faults, evenly from [0, 0.7]."""
    number = 1 + int(rng.integers(2))
    kinds = [faults[int(place)] for place in rng.permutation(len(faults))[:number]]
    knobs = {kind: float(rng.random()) * _LEVEL for kind in kinds}
    if "drift" in knobs:
        knobs["drift"], knobs["miss"] = 1.0, knobs.get("miss", knobs["drift"])
    return knobs


def draw_answer(lesson: Lesson, knobs: AnswerDegradation, seed: int) -> Answered | None:
    """The answer to a lesson's question, with its truth; None for one without steps."""
    solution = solve(lesson.question)
    steps = tuple(degraded_answer(solution, knobs, seed))
    if not steps:
        return None
    told = tuple(parse_caption(text) if text else None for text, _ in steps)
    shown = tuple(None if image is None else parse_image(image) for _, image in steps)
    right: list[Scene | None] = list(solution.scenes_after(shown[0] or told[0]))
    right = (right + [None] * len(steps))[: len(steps)]
    return Answered(steps, score_answer(solution, steps), told, shown, tuple(right))


def question_of(lesson: Lesson, jitter: int) -> Question:
    """Images in one jitter, then the sentence, as the data set has them."""
    return (*(render(scene, jitter) for scene in lesson.question.scenes), lesson.text)


def verdict_place(lead: float) -> int:
    """The place in `WINNERS` of a lead in truth: up to the margin it is a tie that leans."""
    if abs(lead) > MARGIN:
        return 0 if lead > 0 else 3
    return 1 if lead > 0 else 2


def _new_lesson(rng: np.random.Generator) -> Lesson:
    """Of any category, all equally likely; those of which the suites have more are drawn again."""
    task = TASKS[int(rng.integers(len(TASKS)))]
    lesson = draw_lesson(rng, task)
    while not lesson.is_new:
        lesson = draw_lesson(rng, task)
    return lesson


def _arena_pairs(
    lesson: Lesson, rng: np.random.Generator, faults: Sequence[str], ease: float
) -> Iterator[Battle]:
    """Two pairs, each of the candidates whose difference of truth is nearest to one drawn."""
    question = question_of(lesson, _seed(rng))
    candidates = _candidates(lesson, rng, faults)
    for _ in range(2):
        aimed = rng.uniform(_EASY * ease, MOST_APART)
        pairs = [
            (first, second)
            for place, first in enumerate(candidates)
            for second in candidates[place + 1 :]
            if _total(first) != _total(second)
        ]
        if not pairs:
            return
        misses = [abs(abs(_total(one) - _total(other)) - aimed) for one, other in pairs]
        pair = pairs[int(np.argmin(misses))]
        candidates = [answer for answer in candidates if answer not in pair]
        first, second = pair if rng.random() < 0.5 else pair[::-1]
        lead = round(_total(first) - _total(second), 9)
        yield Battle(question, first, second, verdict_place(lead), "arena")


def _reference_pair(
    lesson: Lesson, rng: np.random.Generator, faults: Sequence[str]
) -> Iterator[Battle]:
    question = question_of(lesson, _seed(rng))
    knobs, seed = draw_knobs(rng, faults), _seed(rng)
    better = {name: level / _REFERENCE_PART for name, level in knobs.items()}
    plain = draw_answer(lesson, AnswerDegradation(**knobs), seed)
    twin = draw_answer(lesson, AnswerDegradation(**better), seed)
    if plain is None or twin is None or plain.contents == twin.contents:
        return
    if rng.random() < 0.5:
        yield Battle(question, twin, plain, 0, "reference")
    else:
        yield Battle(question, plain, twin, 3, "reference")


def _candidates(lesson: Lesson, rng: np.random.Generator, faults: Sequence[str]) -> list[Answered]:
    answers = []
    for _ in range(_CANDIDATES):
        answer = draw_answer(lesson, AnswerDegradation(**draw_knobs(rng, faults)), _seed(rng))
        answers += [] if answer is None else [answer]
    return answers


def _content(piece: Piece) -> str | ImageArtifact:
    return piece if isinstance(piece, str) else ImageArtifact.from_pil(piece)


def _steps_of(pieces: Sequence[Piece]) -> tuple[ArenaStep, ...]:
    """A step begins at each text, and at a second image."""
    steps: list[ArenaStep] = []
    for piece in map(_content, pieces):
        if isinstance(piece, str):
            steps.append((piece, None))
        elif steps and steps[-1][1] is None:
            steps[-1] = (steps[-1][0], piece)
        else:
            steps.append(("", piece))
    return tuple(steps)


def _total(answer: Answered) -> float:
    assert answer.truth is not None
    return answer.truth.total


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(0, 2**63))
