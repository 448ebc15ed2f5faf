"""Knobs of priors: a model that says what it usually sees, whatever is there.

Unlike those of `degrade`, these mistakes do not move when the scene does: a model with a prior is
consistent with itself, and an edit of the scene is lost on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pytest_cepbench.datasets.shapes.degrade import Degradation, degrade_scene
from pytest_cepbench.datasets.shapes.scene import CELLS, COLORS, GRID, FloatArray, Scene

_STREAM = 6  # apart from the other draws, which may have the same seeds

_KNOBS = ("prior", "left")


@dataclass(frozen=True)
class SceneKnobs(Degradation):
    """The knobs of `Degradation`, which act first, and two priors; probabilities in [0, 1].

    prior: that an object has the first of the world's colors, red, whatever its color is.
    left: that an object right of the center is left of it, where that cell is free: a model that
        does not tell an image from its mirror image.
    """

    prior: float = 0.0
    left: float = 0.0


def degrade_with_priors(scene: Scene, knobs: Degradation, seed: int) -> Scene:
    """The scene after all knobs but `blank` have acted on it, priors last.

    seed: any non-negative integer. Decisions are drawn for (seed, knob, cell), as in `degrade`.
    """
    scene = degrade_scene(scene, knobs, seed)
    if not isinstance(knobs, SceneKnobs) or not (knobs.prior or knobs.left):
        return scene
    draws = _draws(seed)
    colored = tuple(
        replace(own, color=COLORS[0]) if draws["prior"][own.cell] < knobs.prior else own
        for own in scene.objects
    )
    taken = {own.cell for own in colored}
    placed = []
    for own in colored:
        opposite = own.cell - (GRID - 1)
        turned = own.column == GRID - 1 and draws["left"][own.cell] < knobs.left
        placed.append(replace(own, cell=opposite) if turned and opposite not in taken else own)
    return Scene(tuple(placed))


def _draws(seed: int) -> dict[str, FloatArray]:
    """For each knob (9,) numbers in [0, 1)."""
    source = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, _STREAM))))
    return dict(zip(_KNOBS, source.random((len(_KNOBS), CELLS)), strict=True))
