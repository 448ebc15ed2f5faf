"""Data sets of scenes: families of them, each of which stresses one thing that a model must tell.

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any, Generic, TypeVar, cast

import numpy as np

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.datasets.sample import Dataset, DrawnImage, Sample
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
    caption,
    render,
)
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.geneval_prompts import (
    Clause,
    Exclusion,
    Position,
    Prompt,
    Relation,
    Task,
    prompt_metadata,
)

_MOST = 10_000  # ids number samples with four digits

T = TypeVar("T")

Look = tuple[Size, Color, Shape]

LOOKS: tuple[Look, ...] = tuple(product(SIZES, COLORS, SHAPES))


@dataclass(frozen=True)
class Family(Generic[T]):
    """What one category consists of: scenes, or questions about scenes.

    draw: one of them; of scenes all of one number of objects are equally likely.
    size: how many there are; None where no data set can have all of them.
    """

    draw: Callable[[np.random.Generator], T]
    size: int | None = None


def build_dataset(
    identity: Mapping[str, str],
    families: Mapping[str, Family[T]],
    samples_per_category: int,
    seed: int,
    make_sample: Callable[[str, int, T], Sample],
    stream: str = "",
) -> Dataset:
    """Samples of each family, in a category of its name.

    No member is in a category twice before all of its family's are. The samples of a number are
    also those of every larger number, the same on every machine.
    identity: the loader, whose name the data set has, and versions.
    samples_per_category: 1 to 10,000.
    seed: of the draws.
    make_sample: of its id, `CATEGORY/NUMBER`, this number, and the member.
    stream: begins the names from which the families' own seeds are derived.
    Raises DatasetError unless 1 <= samples_per_category <= 10,000 and seed >= 0.
    """
    name = identity["loader"]
    if not 1 <= samples_per_category <= _MOST:
        raise DatasetError(
            f"samples_per_category must be in 1..{_MOST:,}, got {samples_per_category}"
        )
    if seed < 0:
        raise DatasetError(f"the seed of the {name} data set must not be negative, got {seed}")
    samples = []
    for category, family in sorted(families.items()):
        rng = random_generator(derived_seed(seed, f"{stream}{category}"))
        seen: set[T] = set()
        index = 0
        while index < samples_per_category:
            member = family.draw(rng)
            if member not in seen:
                seen.add(member)
                samples.append(make_sample(f"{category}/{index:04d}", index, member))
                index += 1
            if len(seen) == family.size:
                seen.clear()
    whole = {**identity, "samples_per_category": samples_per_category, "seed": seed}
    return Dataset(name, whole, tuple(samples))


def _scene_sample(seed: int, sample_id: str, _: int, scene: Scene, **remarks: Any) -> Sample:
    """A scene as an image with its exact caption. remarks: metadata besides "scene"."""
    return Sample(
        id=sample_id,
        categories=(sample_id.partition("/")[0],),
        image=DrawnImage(partial(render, scene, derived_seed(seed, sample_id))),
        text=caption(scene),
        metadata={"scene": [asdict(what) for what in scene.objects], **remarks},
    )


def sample_scene(sample: Sample) -> Scene:
    """The scene of a sample of these data sets, read from its metadata."""
    return Scene(tuple(SceneObject(**scene_object) for scene_object in sample.metadata["scene"]))


def derived_seed(seed: int, name: str) -> int:
    """A seed in 0..2**64-1 of its own for each name."""
    return int(digest_text(f"{seed} {name}")[:16], 16)


def random_generator(seed: int) -> np.random.Generator:
    """A source of random numbers that is the same everywhere."""
    return np.random.Generator(np.random.PCG64(seed))


def below(rng: np.random.Generator, limit: int) -> int:
    """One of 0..limit-1."""
    # Only random() is used: of NumPy's distributions its stream is the least likely to change.
    return int(rng.random() * limit)


def some(rng: np.random.Generator, things: Sequence[T], number: int) -> list[T]:
    """So many different ones of the things, in random order."""
    left = list(things)
    return [left.pop(below(rng, len(left))) for _ in range(number)]


def few(rng: np.random.Generator) -> int:
    """A number of objects, from two to the most that the world draws."""
    return 2 + below(rng, MAX_OBJECTS - 1)


def any_look(rng: np.random.Generator) -> Look:
    """One of `LOOKS`."""
    return LOOKS[below(rng, len(LOOKS))]


def cells_in_line(rng: np.random.Generator) -> list[int]:
    """Two cells of one row or of one column, in random order."""
    line = below(rng, GRID)
    first, second = some(rng, range(GRID), 2)
    if below(rng, 2):
        return [GRID * line + first, GRID * line + second]
    return [GRID * first + line, GRID * second + line]


def scene_of(cells: Sequence[int], looks: Sequence[Look]) -> Scene:
    """The scene with these looks in these cells."""
    return Scene(tuple(SceneObject(c, *look) for c, look in zip(cells, looks, strict=True)))


def _equal(rng: np.random.Generator) -> Scene:
    number = few(rng)
    return scene_of(some(rng, range(CELLS), number), [any_look(rng)] * number)


ONE = Family(lambda rng: scene_of([below(rng, CELLS)], [any_look(rng)]), CELLS * len(LOOKS))
"""One object."""

EQUAL = Family(_equal)
"""Two to four objects that are equal but for their places."""


def load_shapes(samples_per_category: int = 24, seed: int = 0) -> Dataset:
    """The shapes data set: scenes as images with their exact captions, in eight categories.

    Parameters, order and errors as of `build_dataset`.
    metadata: "scene", a list of objects as dicts with cell (0..8), size, color and shape.
    """
    identity = {"loader": "shapes", "version": WORLD_VERSION}
    make_sample = partial(_scene_sample, seed)
    return build_dataset(identity, _FAMILIES, samples_per_category, seed, make_sample)


def _differing(place: int, words: Sequence[str]) -> Callable[[np.random.Generator], Scene]:
    """What draws two to four objects that differ in a word of their look, and in their cells."""

    def draw(rng: np.random.Generator) -> Scene:
        look: list[Any] = [*any_look(rng)]
        own = some(rng, words, few(rng))
        looks = [cast("Look", (*look[:place], word, *look[place + 1 :])) for word in own]
        return scene_of(some(rng, range(CELLS), len(own)), looks)

    return draw


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
    return scene_of([GRID * row + c for row, c in enumerate(columns)], some(rng, LOOKS, GRID))


_FAMILIES = {
    "existence": ONE,
    "count": EQUAL,
    "color": Family(_differing(1, COLORS)),
    "shape": Family(_differing(2, SHAPES)),
    "size": Family(_size),
    "position": Family(_position),
    "relation": Family(lambda rng: scene_of(cells_in_line(rng), some(rng, LOOKS, 2))),
    "crowded": Family(
        lambda rng: scene_of(some(rng, range(CELLS), MAX_OBJECTS), some(rng, LOOKS, MAX_OBJECTS))
    ),
}


def load_shapes_tasks(samples_per_category: int = 24, seed: int = 0) -> Dataset:
    """Scenes of GenEval's six tasks, for text-first chains that are judged by GenEval's rules.

    single_object  one object; there is its shape
    two_object     two objects of different shapes; both shapes are there
    counting       two to four equal objects; there are exactly as many of the shape
    colors         one object; its shape is there in its color
    position       two objects of different shapes in one row or column; one is where the other says
    color_attr     two objects of different shapes and colors; each shape is there in its color

    Text, image, ids and their stability as in `load_shapes`. A caption says more than its task
    asks; what is asked is in the metadata, in GenEval's form: "tag", "include" and, in counting,
    "exclude", over the names of the shapes and colors of the world (cyan is none of GenEval's).
    Every other position prompt asks where the first object is, the others where the second is.
    """

    def make_sample(sample_id: str, index: int, scene: Scene) -> Sample:
        task = cast("Task", sample_id.partition("/")[0])
        prompt = prompt_metadata(_prompt(task, scene.objects, index))
        return _scene_sample(seed, sample_id, index, scene, **prompt)

    identity = {"loader": "shapes-tasks", "version": WORLD_VERSION}
    return build_dataset(identity, _TASK_FAMILIES, samples_per_category, seed, make_sample)


def _two_shapes(rng: np.random.Generator) -> list[Look]:
    return [(*any_look(rng)[:2], shape) for shape in some(rng, SHAPES, 2)]


def _color_attr(rng: np.random.Generator) -> Scene:
    colors = some(rng, COLORS, 2)
    looks = [
        (size, color, shape)
        for (size, _, shape), color in zip(_two_shapes(rng), colors, strict=True)
    ]
    return scene_of(some(rng, range(CELLS), 2), looks)


_TASK_FAMILIES: dict[str, Family[Scene]] = {
    "single_object": ONE,
    "two_object": Family(lambda rng: scene_of(some(rng, range(CELLS), 2), _two_shapes(rng))),
    "counting": EQUAL,
    "colors": ONE,
    "position": Family(lambda rng: scene_of(cells_in_line(rng), _two_shapes(rng))),
    "color_attr": Family(_color_attr),
}


def _prompt(task: Task, objects: tuple[SceneObject, ...], index: int) -> Prompt:
    """The prompt of the task for the drawing of these objects."""
    first = objects[0]
    if task == "counting":
        number = len(objects)
        include = (Clause(first.shape, number),)
        return Prompt(task, include, (Exclusion(first.shape, number + 1),))
    if task == "position":
        target, subject = objects if index % 2 else objects[::-1]
        relation: Relation = "above" if subject.row < target.row else "below"
        if subject.row == target.row:
            relation = "left of" if subject.column < target.column else "right of"
        place = Position(relation, 0)
        return Prompt(task, (Clause(target.shape, 1), Clause(subject.shape, 1, position=place)))
    colored = task in ("colors", "color_attr")
    return Prompt(
        task,
        tuple(
            Clause(scene_object.shape, 1, color=scene_object.color if colored else None)
            for scene_object in objects
        ),
    )


PATTERN_SENTENCES = {
    "Count": "The image shows three objects or more.",
    "Color": "The objects have three colors or more.",
    "Position": "There are two objects or more, all of them in one row or in one column.",
    "Size": "There are small and large objects.",
    "Crowd": "The image shows as many objects as images of this world have: four.",
    "Symmetry": "The left half mirrors the right half.",
}
"""Name and rule of each pattern. A rule that changes raises `WORLD_VERSION`."""

PATTERN_NAMES = tuple(PATTERN_SENTENCES)


def scene_patterns(scene: Scene) -> tuple[str, ...]:
    """The patterns of a scene, in the order of `PATTERN_NAMES`; several or none."""
    objects = scene.objects
    rows, columns = {thing.row for thing in objects}, {thing.column for thing in objects}
    looks = {thing.cell: thing.look for thing in objects}
    turned = {thing.row * GRID + GRID - 1 - thing.column: thing.look for thing in objects}
    holds = {
        "Count": len(objects) >= 3,
        "Color": len({thing.color for thing in objects}) >= 3,
        "Position": len(objects) > 1 and 1 in (len(rows), len(columns)),
        "Size": {thing.size for thing in objects} == set(SIZES),
        "Crowd": len(objects) >= MAX_OBJECTS,
        "Symmetry": bool(looks) and looks == turned,
    }
    return tuple(name for name in PATTERN_NAMES if holds[name])
