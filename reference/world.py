"""What the reference models learn from: scenes of the shapes world, with all that is true of them.

Pictures and captions are the package's own (`pytest_cepbench.datasets.shapes`). No scene of
`suites/shapes` is ever drawn here, so what the suite shows to a model is new to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_cepbench.datasets.shapes import (
    Scene,
    SceneObject,
    caption,
    load_shapes,
    render,
    sample_scene,
)
from pytest_cepbench.datasets.shapes.samples import load_shapes_tasks
from pytest_cepbench.datasets.shapes.scene import (
    CELL,
    CELLS,
    COLORS,
    MAX_OBJECTS,
    RADII,
    SHAPES,
    SIDE,
    SIZES,
)

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

PROMPT = "describe the image"
"""What `suites/shapes` asks of a describer."""

PATCH = 8
"""Pixels along each side of a patch of the vision towers."""

PATCHES = (SIDE // PATCH) ** 2

KINDS = (1 + len(SHAPES), 1 + len(COLORS), 1 + len(SIZES), 1 + CELLS)
"""How many answers each column of `patch_labels` has; the first of each is "nothing here"."""

LOOKS = tuple(product(SIZES, COLORS, SHAPES))

_EDGE = 3.0  # pixels beyond its radius at which an object still has a say in a patch


def draw_scenes(rng: np.random.Generator, number: int) -> list[Scene]:
    """That many scenes of one to four objects, all numbers equally likely, none of the suites'."""
    scenes: list[Scene] = []
    while len(scenes) < number:
        scene = _any_scene(rng)
        if scene not in suite_scenes():
            scenes.append(scene)
    return scenes


def draw_pictures(scenes: Sequence[Scene], rng: np.random.Generator) -> FloatArray:
    """(n, 3, 64, 64) in [0, 1]: each scene once, with its own jitter."""
    seeds = rng.integers(0, 2**63, len(scenes))
    drawn = [render(scene, int(seed)).pixels for scene, seed in zip(scenes, seeds, strict=True)]
    return np.stack(drawn).transpose(0, 3, 1, 2).astype(np.float32) / 255.0


def captions(scenes: Sequence[Scene]) -> list[str]:
    """The exact caption of each scene."""
    return [caption(scene) for scene in scenes]


def patch_labels(scenes: Sequence[Scene]) -> IntArray:
    """(n, 64, 4): shape, color, size and cell of what each patch shows, from 1; 0: nothing."""
    labels = np.zeros((len(scenes), PATCHES, len(KINDS)), dtype=np.int64)
    for row, scene in zip(labels, scenes, strict=True):
        for thing in scene.objects:
            row[_patches_of(thing.cell, thing.size)] = (
                1 + SHAPES.index(thing.shape),
                1 + COLORS.index(thing.color),
                1 + SIZES.index(thing.size),
                1 + thing.cell,
            )
    return labels


def change_one_thing(scene: Scene, rng: np.random.Generator) -> Scene:
    """The scene with one object moved, resized, recolored, reshaped, taken away or put there."""
    objects = list(scene.objects)
    where = int(rng.integers(len(objects)))
    changed = objects.pop(where)
    change = int(rng.integers(5))
    free = sorted(set(range(CELLS)) - {each.cell for each in scene.objects})
    if change == 4 and objects and (len(objects) == MAX_OBJECTS - 1 or rng.random() < 0.5):
        return Scene(tuple(objects))
    if change == 4:
        return Scene((*objects, changed, SceneObject(_one_of(free, rng), *_one_of(LOOKS, rng))))
    cell, size, color, shape = changed.cell, changed.size, changed.color, changed.shape
    if change == 0:
        cell = _one_of(free, rng)
    elif change == 1:
        size = _one_of([each for each in SIZES if each != size], rng)
    elif change == 2:
        color = _one_of([each for each in COLORS if each != color], rng)
    else:
        shape = _one_of([each for each in SHAPES if each != shape], rng)
    return Scene((*objects, SceneObject(cell, size, color, shape)))


def exact_share(true: Sequence[Scene], described: Sequence[Scene]) -> float:
    """The share of scenes that were told without any mistake, in [0, 1]."""
    return float(
        np.mean([scene == description for scene, description in zip(true, described, strict=True)])
    )


@cache
def suite_scenes() -> frozenset[Scene]:
    """Every scene of the three suites in `suites/shapes`, which training leaves out."""
    samples = (
        *load_shapes(24, seed=0).samples,
        *load_shapes(8, seed=1).samples,
        *load_shapes_tasks(16, seed=0).samples,
    )
    return frozenset(map(sample_scene, samples))


def _any_scene(rng: np.random.Generator) -> Scene:
    number = 1 + int(rng.integers(MAX_OBJECTS))
    cells = rng.permutation(CELLS)[:number]
    return Scene(tuple(SceneObject(int(cell), *_one_of(LOOKS, rng)) for cell in cells))


def _one_of(things: Sequence[Any], rng: np.random.Generator) -> Any:
    return things[int(rng.integers(len(things)))]


@cache
def _patches_of(cell: int, size: str) -> npt.NDArray[np.bool_]:
    """(64,) which patches an object of that size in that cell touches."""
    reach = RADII[SIZES.index(size)] + _EDGE
    middles = (np.arange(SIDE // PATCH) + 0.5) * PATCH
    down = np.abs(middles - (cell // 3 + 0.5) * CELL) < reach
    across = np.abs(middles - (cell % 3 + 0.5) * CELL) < reach
    return np.outer(down, across).ravel()
