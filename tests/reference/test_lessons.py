"""What the planner learns from: right answers to questions that the suites do not ask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lessons import (
    TAUGHT,
    Lesson,
    draw_lessons,
    draw_pictures,
    known_scenes,
    right_steps,
)

from pytest_cepbench.artifacts.answer import STEP_END
from pytest_cepbench.datasets.shapes import Scene, caption, sample_scene
from pytest_cepbench.datasets.shapes.arena import (
    TASKS,
    VOCABULARY,
    read_question,
    sample_scenes,
    solve_sample,
)
from pytest_cepbench.suites import load_data, load_suite

SUITES = Path(__file__).parents[2] / "suites"

ARENAS = sorted((SUITES / "arena").glob("*.toml"))


def lessons(number: int, *tasks: str) -> list[Lesson]:
    """Of a seed of their own; of any category that is taught where none is named."""
    rng = np.random.default_rng(5)
    return draw_lessons(rng, number, [task for task in TASKS if task in tasks] or TAUGHT)


def test_no_question_of_the_suites_is_taught() -> None:
    """Each of the instrument's, which has those of both, is refused by its scenes or sentence."""
    for sample in load_data(load_suite(SUITES / "arena" / "instrument.toml"), {}).samples:
        assert sample.question is not None
        pieces = [piece if isinstance(piece, str) else piece.load() for piece in sample.question]
        lesson = Lesson(read_question(pieces), str(pieces[-1]), solve_sample(sample).scenes)
        assert not lesson.is_new, sample.id


def test_no_scene_of_the_suites_is_taught() -> None:
    """Neither shown nor told of, of all suites over generated scenes; but for the empty one."""
    known = {
        scene
        for file in (*ARENAS, *(SUITES / "shapes").glob("*.toml"))
        for sample in load_data(load_suite(file), {}).samples
        for scene in (sample_scenes(sample) if sample.question else (sample_scene(sample),))
    }
    assert known == known_scenes()
    taught = {
        scene for lesson in lessons(400) for scene in (*lesson.question.scenes, *lesson.answer)
    }
    assert len(taught) > 400
    assert taught & known == {Scene()}


def test_a_lesson_is_a_question_with_a_right_answer() -> None:
    """In words of the arena; an image of one jitter for each of its scenes."""
    words = {*VOCABULARY, STEP_END}
    drawn = lessons(90)
    for lesson, pictures in zip(drawn, draw_pictures(drawn, np.random.default_rng(0)), strict=True):
        assert right_steps(lesson.question, lesson.words) == 1.0
        assert {*lesson.text.split(), *lesson.words.split()} <= words
        assert pictures.shape == (len(lesson.question.scenes), 3, 64, 64)
        assert pictures.dtype == np.float32


def test_steps_count_as_right_word_for_word() -> None:
    """Missing ones, surplus ones, and captions with any other word count as wrong."""
    (lesson,) = lessons(1, "move")
    first, second = (f"{caption(scene)} {STEP_END}" for scene in lesson.answer)
    assert right_steps(lesson.question, f"{first} {second}") == 1.0
    assert right_steps(lesson.question, f"{first} {caption(lesson.answer[1])}") == 1.0
    assert right_steps(lesson.question, first) == 0.5
    assert right_steps(lesson.question, f"{first} {first}") == 0.5
    assert right_steps(lesson.question, f"{second} {first}") == 0.0
    assert right_steps(lesson.question, f"{first} {second} {second}") == pytest.approx(2 / 3)
    assert right_steps(lesson.question, f"a {first} {second}") == 0.5
    assert right_steps(lesson.question, "") == 0.0
