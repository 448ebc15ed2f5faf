"""Drawing: a scene and a seed to pixels, and the look of the world that decides them."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes.scene import (
    CELLS,
    COLORS,
    GRID,
    SIZES,
    FloatArray,
    Scene,
    Shape,
)

SIDE = 64
"""Pixels along each side of an image."""

CELL = SIDE / GRID
"""Pixels along each side of a cell."""

BACKGROUND = 0.10
"""Level of all three channels where nothing is drawn, in [0, 1]."""

PALETTE = np.array(
    [
        [0.92, 0.16, 0.16],
        [0.16, 0.75, 0.22],
        [0.20, 0.32, 0.95],
        [0.96, 0.88, 0.18],
        [0.72, 0.25, 0.85],
        [0.20, 0.85, 0.90],
    ]
)
"""(6, 3) RGB in [0, 1], in the order of `COLORS`."""

RADII = (5.2, 9.2)
"""Nominal radius in pixels, in the order of `SIZES`."""

PLACE_JITTER = 1.0
"""Most that an object's center lies off its cell's, in pixels along each axis."""

RADIUS_JITTER = 0.4
"""Most that an object's radius differs from the nominal one, in pixels."""

_SQUARE = 0.88  # half side
_TRIANGLE = 0.62  # radius of the inscribed circle
_TRIANGLE_DROP = 0.18  # center of that circle below the object's own
_BAR = 0.36  # half width of a cross's bars

AREA: dict[Shape, float] = {
    "circle": pi,
    "square": (2 * _SQUARE) ** 2,
    "triangle": 3 * sqrt(3) * _TRIANGLE**2,
    "cross": 8 * _BAR - 4 * _BAR**2,
}
"""Area of each shape of radius 1."""

DROP: dict[Shape, float] = {"circle": 0.0, "square": 0.0, "triangle": _TRIANGLE_DROP, "cross": 0.0}
"""How far the center of mass of each shape of radius 1 lies below its center."""


def coverage(shape: Shape, x: FloatArray, y: FloatArray, radius: FloatArray | float) -> FloatArray:
    """The share of each pixel that a shape covers, in [0, 1], with edges one pixel soft.

    x, y: offsets of the pixels' centers from the shape's, in pixels, y down; radius in pixels; all
    broadcast. A triangle stands on its base and is equilateral; a cross is upright.
    """
    outside = _distance(shape, x, y, radius)
    soft: FloatArray = np.clip(0.5 - outside, 0.0, 1.0)
    return soft


def _distance(shape: Shape, x: FloatArray, y: FloatArray, radius: FloatArray | float) -> FloatArray:
    """Pixels from the shape's edge, negative inside; corners are cut square, not round."""
    across, down = np.abs(x), np.abs(y)
    distance: FloatArray
    if shape == "circle":
        distance = np.sqrt(x * x + y * y) - radius
    elif shape == "square":
        distance = np.maximum(across, down) - _SQUARE * radius
    elif shape == "triangle":
        below = y - _TRIANGLE_DROP * radius
        distance = np.maximum(below, sqrt(0.75) * across - 0.5 * below) - _TRIANGLE * radius
    else:
        longer, shorter = np.maximum(across, down), np.minimum(across, down)
        distance = np.maximum(longer - radius, shorter - _BAR * radius)
    return distance


_CENTERS = np.arange(SIDE) + 0.5


def render(scene: Scene, seed: int) -> ImageArtifact:
    """Draw a scene: (64, 64, 3) pixels.

    seed: any non-negative integer; decides place within the cell and radius of every object. An
    object's jitter depends on seed and cell alone, so it stays when another object is lost.
    """
    uniform = np.random.Generator(np.random.PCG64(seed)).random((CELLS, 3))
    return draw(scene, 2.0 * uniform - 1.0)


def draw(scene: Scene, jitter: FloatArray) -> ImageArtifact:
    """Draw a scene with a given jitter.

    jitter: (9, 3) in [-1, 1], one row per cell: x, y and radius in units of the world's jitter.
    """
    canvas = np.full((SIDE, SIDE, 3), BACKGROUND)
    for scene_object in scene.objects:
        right, down, wider = jitter[scene_object.cell]
        x = _CENTERS - ((scene_object.column + 0.5) * CELL + PLACE_JITTER * right)
        y = _CENTERS - ((scene_object.row + 0.5) * CELL + PLACE_JITTER * down)
        radius = RADII[SIZES.index(scene_object.size)] + RADIUS_JITTER * wider
        cover = coverage(scene_object.shape, x[None, :], y[:, None], radius)[..., None]
        canvas += cover * (PALETTE[COLORS.index(scene_object.color)] - canvas)
    return ImageArtifact(np.rint(canvas * 255).astype(np.uint8))
