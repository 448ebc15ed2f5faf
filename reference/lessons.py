"""What the planner learns from: questions of the arena of shapes with a right answer of each.

Questions and answers are the package's own (`pytest_cepbench.datasets.shapes.arena`). Training
draws no scene of the suites but the empty one, in which every `count` ends, no question without an
image that `suites/arena` asks, and none of the category that is held out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from world import FloatArray, suite_scenes

from pytest_cepbench.artifacts.answer import STEP_END
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes import Scene, caption, parse_caption, render
from pytest_cepbench.datasets.shapes.arena import (
    TASKS,
    ArenaQuestion,
    load_shapes_arena,
    sample_scenes,
    solve,
)
from pytest_cepbench.datasets.shapes.arena.samples import FAMILIES
from pytest_cepbench.datasets.shapes.arena.solver import Task, choose, phrase_instruction
from pytest_cepbench.datasets.shapes.scene import SIDE

HELD_OUT: Task = "swap"
"""The category that training never sees."""

TAUGHT: tuple[Task, ...] = tuple(task for task in TASKS if task != HELD_OUT)
"""The categories that it draws from, all equally often."""


@dataclass(frozen=True)
class Lesson:
    """A question and one right answer to it.

    question: as data.
    text: its sentence.
    answer: the scene after each step; where a choice is free, any that meets the request.
    """

    question: ArenaQuestion
    text: str
    answer: tuple[Scene, ...]

    @property
    def scenes(self) -> tuple[Scene, ...]:
        """Every scene that it shows or tells of, but the empty one."""
        return tuple(scene for scene in (*self.question.scenes, *self.answer) if scene.objects)

    @property
    def words(self) -> str:
        """What a writer should say: the caption of each step, each with the mark of an image."""
        return " ".join(f"{caption(scene)} {STEP_END}" for scene in self.answer)

    @property
    def is_new(self) -> bool:
        """Whether the suites have none of its scenes, nor ask the same without an image."""
        asked = not self.question.scenes and self.text in arena_requests()
        return not asked and known_scenes().isdisjoint(self.scenes)


def draw_lessons(
    rng: np.random.Generator, number: int, tasks: Sequence[Task] = TAUGHT
) -> list[Lesson]:
    """That many new lessons of these categories, all equally likely."""
    lessons: list[Lesson] = []
    while len(lessons) < number:
        # The category is kept until it has a new one: those with known scenes would be rarer.
        task = tasks[int(rng.integers(len(tasks)))]
        lesson = draw_lesson(rng, task)
        while not lesson.is_new:
            lesson = draw_lesson(rng, task)
        lessons.append(lesson)
    return lessons


def draw_lesson(rng: np.random.Generator, task: Task) -> Lesson:
    """A lesson of a category, whether or not it is new."""
    question = FAMILIES[task].draw(rng)
    solution, request = solve(question), question.instruction.request
    chosen = None if request is None else choose(request, int(rng.integers(0, 2**63)))
    text = phrase_instruction(question.instruction)
    return Lesson(question, text, solution.scenes_after(chosen))


def draw_pictures(lessons: Iterable[Lesson], rng: np.random.Generator) -> list[FloatArray]:
    """Of each lesson the (n, 3, 64, 64) pictures of its question in [0, 1], of one jitter."""
    return [_pictures_of(lesson, int(rng.integers(0, 2**63))) for lesson in lessons]


def right_steps(question: ArenaQuestion, words: str) -> float:
    """The share of an answer's steps whose caption is right, in [0, 1].

    Missing steps and those that are too many count as wrong. Where a choice is free, each that
    meets the request is right, and the later step follows from what was chosen.
    """
    written = [part.strip() for part in words.split(STEP_END)]
    if not written[-1]:
        written.pop()
    if not written:
        return 0.0
    right = solve(question).scenes_after(parse_caption(written[0]))
    exact = [text == caption(scene) for text, scene in zip(written, right, strict=False)]
    return sum(exact) / max(len(written), len(right))


def _pictures_of(lesson: Lesson, jitter: int) -> FloatArray:
    drawn = [render(scene, jitter).pixels for scene in lesson.question.scenes]
    pixels = np.array(drawn, np.float32).reshape(-1, SIDE, SIDE, 3)
    return pixels.transpose(0, 3, 1, 2) / np.float32(255.0)


@cache
def known_scenes() -> frozenset[Scene]:
    """Every scene of `suites/arena` and `suites/shapes`."""
    arena = (scene for sample in _arena_samples() for scene in sample_scenes(sample))
    return suite_scenes().union(arena)


@cache
def arena_requests() -> frozenset[str]:
    """The questions of `suites/arena` that have no image."""
    questions = [sample.question for sample in _arena_samples()]
    return frozenset(str(pieces[0]) for pieces in questions if len(pieces) == 1)


def _arena_samples() -> tuple[Sample, ...]:
    """Those of both suites in `suites/arena`."""
    return load_shapes_arena(24, seed=0).samples
