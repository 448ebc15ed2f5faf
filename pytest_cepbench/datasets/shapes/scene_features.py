"""Features: scenes as vectors whose cosine says how much of one scene is kept in another.

The vector of a scene is the sum over its objects of place (x) look, where place and look are unit
vectors of weighted one-hot codes. So two objects count as alike by the product of

    place: 0.70 for the same cell + 0.15 for the same row + 0.15 for the same column
    look:  0.10 for being there   + 0.30 for each of the same size, color and shape

One attribute changed in a scene of n objects that share no row or column gives 1 - 0.3 / n, k lost
objects give sqrt((n - k) / n); shared rows and columns change that by a few hundredths. In the
scenes that the world draws, each further object lost and each further attribute changed lowers the
cosine to the start. The empty scene has a dimension of its own: it is like itself and like nothing
else.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from pytest_cepbench.datasets.shapes.look import FloatArray
from pytest_cepbench.datasets.shapes.scene import (
    CELLS,
    COLORS,
    GRID,
    SHAPES,
    SIZES,
    Scene,
    SceneObject,
)

_SAME_CELL, _SAME_LINE = 0.70, 0.15
_PRESENT, _SAME_ATTRIBUTE = 0.10, 0.30

_PLACES = CELLS + 2 * GRID
_LOOKS = 1 + len(SIZES) + len(COLORS) + len(SHAPES)

DIMENSION = _PLACES * _LOOKS + 1


def features(scene: Scene) -> FloatArray:
    """(DIMENSION,) float64, non-negative, never zero; the same for a scene however it is drawn."""
    vector = np.zeros(DIMENSION)
    if scene.objects:
        places = np.array([_place(scene_object) for scene_object in scene.objects])
        looks = np.array([_look(scene_object) for scene_object in scene.objects])
        vector[:-1] = (places.T @ looks).ravel()
    else:
        vector[-1] = 1.0
    return vector


def _place(scene_object: SceneObject) -> FloatArray:
    code = np.zeros(_PLACES)
    code[scene_object.cell] = sqrt(_SAME_CELL)
    code[[CELLS + scene_object.row, CELLS + GRID + scene_object.column]] = sqrt(_SAME_LINE)
    return code


def _look(scene_object: SceneObject) -> FloatArray:
    code = np.zeros(_LOOKS)
    code[0] = sqrt(_PRESENT)
    size = 1 + SIZES.index(scene_object.size)
    color = 1 + len(SIZES) + COLORS.index(scene_object.color)
    shape = 1 + len(SIZES) + len(COLORS) + SHAPES.index(scene_object.shape)
    code[[size, color, shape]] = sqrt(_SAME_ATTRIBUTE)
    return code
