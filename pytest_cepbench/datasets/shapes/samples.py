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

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from math import comb, perm
from typing import TypeVar

import numpy as np

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.datasets.sample import Dataset, DrawnImage, Sample
from pytest_cepbench.datasets.shapes.grammar import caption
from pytest_cepbench.datasets.shapes.render import render
from pytest_cepbench.datasets.shapes.scene import (
    CELLS,
    COLORS,
    GRID,
    MAX_OBJECTS,
    SHAPES,
    SIZES,
    WORLD_VERSION,
    Color,
    Scene,
    SceneObject,
    Shape,
    Size,
)
from pytest_cepbench.errors import DatasetError

_MOST = 10_000  # ids number samples with four digits

T = TypeVar("T")

_Look = tuple[Size, Color, Shape]

_LOOKS: tuple[_Look, ...] = tuple(product(SIZES, COLORS, SHAPES))


@dataclass(frozen=True)
class _Family:
    """One category's scenes.

    draw: one scene, all of one number of objects equally likely. size: how many there are.
    """

    draw: Callable[[np.random.Generator], Scene]
    size: int


def load_shapes(samples_per_category: int = 24, seed: int = 0) -> Dataset:
    """The shapes data set: scenes as images with their exact captions, in eight categories.

    No scene is in a category twice before all of its family's scenes are. The samples of a number
    are also those of every larger number, the same on every machine.
    metadata: "scene", a list of objects as dicts with cell (0..8), size, color and shape.
    Raises DatasetError unless 1 <= samples_per_category <= 10,000 and seed >= 0.
    """
    if not 1 <= samples_per_category <= _MOST:
        msg = f"samples_per_category must be in 1..{_MOST:,}, got {samples_per_category}"
        raise DatasetError(msg)
    if seed < 0:
        msg = f"the seed of the shapes data set must not be negative, got {seed}"
        raise DatasetError(msg)
    samples = [
        _sample(category, index, scene, seed)
        for category in sorted(_FAMILIES)
        for index, scene in enumerate(_scenes(category, samples_per_category, seed))
    ]
    identity = {
        "loader": "shapes",
        "version": WORLD_VERSION,
        "samples_per_category": samples_per_category,
        "seed": seed,
    }
    return Dataset("shapes", identity, tuple(samples))


def _scenes(category: str, number: int, seed: int) -> list[Scene]:
    family = _FAMILIES[category]
    rng = np.random.Generator(np.random.PCG64(_derived(seed, category)))
    scenes: list[Scene] = []
    seen: set[Scene] = set()
    while len(scenes) < number:
        scene = family.draw(rng)
        if scene not in seen:
            seen.add(scene)
            scenes.append(scene)
        if len(seen) == family.size:
            seen.clear()
    return scenes


def _sample(category: str, index: int, scene: Scene, seed: int) -> Sample:
    sample_id = f"{category}/{index:04d}"
    return Sample(
        id=sample_id,
        categories=(category,),
        image=DrawnImage(partial(render, scene, _derived(seed, sample_id))),
        text=caption(scene),
        metadata={"scene": [asdict(one) for one in scene.objects]},
    )


def _derived(seed: int, name: str) -> int:
    """A seed in 0..2**64-1 of its own for each name."""
    return int(digest_text(f"{seed} {name}")[:16], 16)


def _below(rng: np.random.Generator, limit: int) -> int:
    # Only random() is used: of all of NumPy's distributions its stream is the least likely to change.
    return int(rng.random() * limit)


def _some(rng: np.random.Generator, things: Sequence[T], number: int) -> list[T]:
    left = list(things)
    return [left.pop(_below(rng, len(left))) for _ in range(number)]


def _few(rng: np.random.Generator) -> int:
    return 2 + _below(rng, MAX_OBJECTS - 1)


def _look(rng: np.random.Generator) -> _Look:
    return _LOOKS[_below(rng, len(_LOOKS))]


def _scene(cells: Sequence[int], looks: Sequence[_Look]) -> Scene:
    return Scene(tuple(SceneObject(c, *look) for c, look in zip(cells, looks, strict=True)))


def _existence(rng: np.random.Generator) -> Scene:
    return _scene([_below(rng, CELLS)], [_look(rng)])


def _count(rng: np.random.Generator) -> Scene:
    number = _few(rng)
    return _scene(_some(rng, range(CELLS), number), [_look(rng)] * number)


def _color(rng: np.random.Generator) -> Scene:
    size, _, shape = _look(rng)
    colors = _some(rng, COLORS, _few(rng))
    return _scene(_some(rng, range(CELLS), len(colors)), [(size, c, shape) for c in colors])


def _shape(rng: np.random.Generator) -> Scene:
    size, color, _ = _look(rng)
    shapes = _some(rng, SHAPES, _few(rng))
    return _scene(_some(rng, range(CELLS), len(shapes)), [(size, color, s) for s in shapes])


def _size(rng: np.random.Generator) -> Scene:
    _, color, shape = _look(rng)
    number = _few(rng)
    # Cells come in random order, so which objects are small is random too.
    small = 1 + _below(rng, number - 1)
    looks: list[_Look] = [("small", color, shape)] * small
    looks += [("large", color, shape)] * (number - small)
    return _scene(_some(rng, range(CELLS), number), looks)


def _position(rng: np.random.Generator) -> Scene:
    columns = _some(rng, range(GRID), GRID)
    cells = [GRID * row + column for row, column in enumerate(columns)]
    return _scene(cells, _some(rng, _LOOKS, GRID))


def _relation(rng: np.random.Generator) -> Scene:
    line = _below(rng, GRID)
    first, second = _some(rng, range(GRID), 2)
    if _below(rng, 2):
        cells = [GRID * line + first, GRID * line + second]
    else:
        cells = [GRID * first + line, GRID * second + line]
    return _scene(cells, _some(rng, _LOOKS, 2))


def _crowded(rng: np.random.Generator) -> Scene:
    cells = _some(rng, range(CELLS), MAX_OBJECTS)
    return _scene(cells, _some(rng, _LOOKS, MAX_OBJECTS))


_FEW = range(2, MAX_OBJECTS + 1)


def _ways(per_cells: Callable[[int], int]) -> int:
    """Scenes of two to four objects, given how many there are for a choice of n cells."""
    return sum(comb(CELLS, n) * per_cells(n) for n in _FEW)


_FAMILIES = {
    "existence": _Family(_existence, CELLS * len(_LOOKS)),
    "count": _Family(_count, _ways(lambda _: len(_LOOKS))),
    "color": _Family(_color, _ways(lambda n: perm(len(COLORS), n) * len(SIZES) * len(SHAPES))),
    "shape": _Family(_shape, _ways(lambda n: perm(len(SHAPES), n) * len(SIZES) * len(COLORS))),
    "size": _Family(_size, _ways(lambda n: (2**n - 2) * len(COLORS) * len(SHAPES))),
    "position": _Family(_position, perm(GRID) * perm(len(_LOOKS), GRID)),
    "relation": _Family(_relation, 2 * GRID * comb(GRID, 2) * perm(len(_LOOKS), 2)),
    "crowded": _Family(_crowded, comb(CELLS, MAX_OBJECTS) * perm(len(_LOOKS), MAX_OBJECTS)),
}
