"""Questions of the arena for property tests, and reading of its samples."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.shapes.arena import (
    TASKS,
    ArenaQuestion,
    ArenaStep,
)
from pytest_cepbench.datasets.shapes.arena.samples import FAMILIES
from pytest_cepbench.datasets.shapes.arena.solver import Task
from pytest_cepbench.datasets.shapes.samples import random_generator
from tests.datasets.shapes.strategies import SEEDS


def draw_question(task: Task, seed: int) -> ArenaQuestion:
    """A question as the data set draws it."""
    return FAMILIES[task].draw(random_generator(seed))


QUESTIONS = st.builds(draw_question, st.sampled_from(TASKS), SEEDS)


def question_pieces(sample: Sample) -> list[str | ImageArtifact]:
    """The texts and loaded images of a sample's question."""
    return [piece if isinstance(piece, str) else piece.load() for piece in sample.question]


def gold_steps(sample: Sample) -> list[ArenaStep]:
    """The steps of a sample's reference answer."""
    return [(step.text, step.image.load() if step.image else None) for step in sample.gold]
