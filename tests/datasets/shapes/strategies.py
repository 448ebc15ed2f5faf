"""Scenes and questions of the arena for property tests."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from pytest_cepbench.datasets.shapes import Scene, SceneObject, features, parse_caption, render
from pytest_cepbench.datasets.shapes.arena import (
    TASKS,
    ArenaQuestion,
    Solution,
    read_question,
    solve,
)
from pytest_cepbench.datasets.shapes.arena.samples import FAMILIES
from pytest_cepbench.datasets.shapes.arena.solver import Task
from pytest_cepbench.datasets.shapes.samples import random_generator
from pytest_cepbench.datasets.shapes.scene import CELLS, COLORS, MAX_OBJECTS, SHAPES, SIZES

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)

_OBJECTS = st.builds(
    SceneObject,
    cell=st.integers(0, CELLS - 1),
    size=st.sampled_from(SIZES),
    color=st.sampled_from(COLORS),
    shape=st.sampled_from(SHAPES),
)


def scenes(at_least: int = 0, at_most: int = CELLS) -> st.SearchStrategy[Scene]:
    """Scenes of that many objects."""
    objects = st.lists(
        _OBJECTS, min_size=at_least, max_size=at_most, unique_by=lambda thing: thing.cell
    )
    return objects.map(lambda some: Scene(tuple(some)))


def drawn_scenes(at_least: int = 1) -> st.SearchStrategy[Scene]:
    """Scenes as the world draws them itself."""
    return scenes(at_least, MAX_OBJECTS)


def similarity(first: Scene, second: Scene) -> float:
    """Cosine of two scenes' features."""
    a, b = features(first), features(second)
    return float(a @ b) / math.sqrt(float(np.dot(a, a)) * float(np.dot(b, b)))


def draw_question(task: Task, seed: int) -> ArenaQuestion:
    """A question as the data set draws it."""
    return FAMILIES[task].draw(random_generator(seed))


QUESTIONS = st.builds(draw_question, st.sampled_from(TASKS), SEEDS)


RED, BLUE, GREEN = (
    "small red circle top left",
    "large blue cross middle center",
    "small green square bottom right",
)


def solved(text: str, *pictures: str) -> Solution:
    """The solution of a question whose images show what captions tell."""
    images = [render(parse_caption(picture), seed=7) for picture in pictures]
    return solve(read_question([*images, text]))
