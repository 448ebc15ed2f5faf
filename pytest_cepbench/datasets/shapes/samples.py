"""The data set: families of scenes, each of which stresses one thing that a model must tell.

existence  one object
count      two to four objects that are equal but for their places
color      two to four objects that are equal but for color and place
shape      two to four objects that are equal but for shape and place
size       two to four objects that are equal but for size and place, both sizes among them
position   three objects of different looks, one in each row and one in each column
relation   two objects of different looks in one row or one column
crowded    four objects of different looks
"""

from __future__ import annotations

from math import comb, perm

import numpy as np

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.shapes.families import (
    EQUAL,
    LOOKS,
    ONE,
    PAIRS_IN_LINE,
    Family,
    Look,
    any_look,
    below,
    build_dataset,
    cells_in_line,
    count_few,
    few,
    scene_of,
    some,
)
from pytest_cepbench.datasets.shapes.scene import (
    CELLS,
    COLORS,
    GRID,
    MAX_OBJECTS,
    SHAPES,
    SIZES,
    Scene,
)


def load_shapes(samples_per_category: int = 24, seed: int = 0) -> Dataset:
    """The shapes data set: scenes as images with their exact captions, in eight categories.

    No scene is in a category twice before all of its family's scenes are. The samples of a number
    are also those of every larger number, the same on every machine.
    metadata: "scene", a list of objects as dicts with cell (0..8), size, color and shape.
    Raises DatasetError unless 1 <= samples_per_category <= 10,000 and seed >= 0.
    """
    return build_dataset("shapes", _FAMILIES, samples_per_category, seed)


def _color(rng: np.random.Generator) -> Scene:
    size, _, shape = any_look(rng)
    colors = some(rng, COLORS, few(rng))
    return scene_of(some(rng, range(CELLS), len(colors)), [(size, c, shape) for c in colors])


def _shape(rng: np.random.Generator) -> Scene:
    size, color, _ = any_look(rng)
    shapes = some(rng, SHAPES, few(rng))
    return scene_of(some(rng, range(CELLS), len(shapes)), [(size, color, s) for s in shapes])


def _size(rng: np.random.Generator) -> Scene:
    _, color, shape = any_look(rng)
    number = few(rng)
    # Cells come in random order, so which objects are small is random too.
    small = 1 + below(rng, number - 1)
    looks: list[Look] = [("small", color, shape)] * small
    looks += [("large", color, shape)] * (number - small)
    return scene_of(some(rng, range(CELLS), number), looks)


def _position(rng: np.random.Generator) -> Scene:
    columns = some(rng, range(GRID), GRID)
    cells = [GRID * row + column for row, column in enumerate(columns)]
    return scene_of(cells, some(rng, LOOKS, GRID))


def _relation(rng: np.random.Generator) -> Scene:
    return scene_of(cells_in_line(rng), some(rng, LOOKS, 2))


def _crowded(rng: np.random.Generator) -> Scene:
    cells = some(rng, range(CELLS), MAX_OBJECTS)
    return scene_of(cells, some(rng, LOOKS, MAX_OBJECTS))


_FAMILIES = {
    "existence": ONE,
    "count": EQUAL,
    "color": Family(_color, count_few(lambda n: perm(len(COLORS), n) * len(SIZES) * len(SHAPES))),
    "shape": Family(_shape, count_few(lambda n: perm(len(SHAPES), n) * len(SIZES) * len(COLORS))),
    "size": Family(_size, count_few(lambda n: (2**n - 2) * len(COLORS) * len(SHAPES))),
    "position": Family(_position, perm(GRID) * perm(len(LOOKS), GRID)),
    "relation": Family(_relation, PAIRS_IN_LINE * perm(len(LOOKS), 2)),
    "crowded": Family(_crowded, comb(CELLS, MAX_OBJECTS) * perm(len(LOOKS), MAX_OBJECTS)),
}
