"""Scenes for property tests."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from pytest_cepbench.datasets.shapes import Scene, SceneObject, features
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
