"""Drawing: a scene and a seed to pixels."""

from __future__ import annotations

import numpy as np

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes.look import (
    BACKGROUND,
    CELL,
    PALETTE,
    PLACE_JITTER,
    RADII,
    RADIUS_JITTER,
    SIDE,
    FloatArray,
    coverage,
)
from pytest_cepbench.datasets.shapes.scene import CELLS, COLORS, SIZES, Scene

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
