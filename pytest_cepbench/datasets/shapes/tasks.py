"""GenEval's six tasks in the shapes world: captions with the clauses that their drawings must meet.

single_object  one object; there is its shape
two_object     two objects of different shapes; both shapes are there
counting       two to four equal objects; there are exactly as many of the shape
colors         one object; its shape is there in its color
position       two objects of different shapes in one row or column; one is where the other says
color_attr     two objects of different shapes and colors; each shape is there in its color
"""

from __future__ import annotations

from math import comb, perm
from typing import Any, cast

import numpy as np

from pytest_cepbench.datasets.sample import Dataset
from pytest_cepbench.datasets.shapes.samples import (
    EQUAL,
    ONE,
    PAIRS_IN_LINE,
    Family,
    Look,
    any_look,
    build_dataset,
    cells_in_line,
    scene_of,
    some,
)
from pytest_cepbench.datasets.shapes.scene import (
    CELLS,
    COLORS,
    SHAPES,
    SIZES,
    Scene,
    SceneObject,
)
from pytest_cepbench.metrics.geneval import (
    Clause,
    Exclusion,
    Position,
    Prompt,
    Relation,
    Task,
    prompt_metadata,
)


def load_shapes_tasks(samples_per_category: int = 24, seed: int = 0) -> Dataset:
    """Scenes of GenEval's tasks, for text-first chains that are judged by GenEval's rules.

    Text, image, ids and their stability as in `load_shapes`. A caption says more than its task
    asks; what is asked is in the metadata, in GenEval's form: "tag", "include" and, in counting,
    "exclude", over the names of the shapes and colors of the world (cyan is none of GenEval's).
    Every other position prompt asks where the first object is, the others where the second is.
    Raises DatasetError unless 1 <= samples_per_category <= 10,000 and seed >= 0.
    """

    def remarks(task: str, index: int, scene: Scene) -> dict[str, Any]:
        return prompt_metadata(_prompt(cast("Task", task), scene.objects, index))

    return build_dataset("shapes-tasks", _FAMILIES, samples_per_category, seed, remarks)


def _two_shapes(rng: np.random.Generator) -> list[Look]:
    return [(*any_look(rng)[:2], shape) for shape in some(rng, SHAPES, 2)]


def _color_attr(rng: np.random.Generator) -> Scene:
    colors = some(rng, COLORS, 2)
    looks = [
        (size, color, shape)
        for (size, _, shape), color in zip(_two_shapes(rng), colors, strict=True)
    ]
    return scene_of(some(rng, range(CELLS), 2), looks)


_SHAPE_PAIRS = perm(len(SHAPES), 2) * (len(SIZES) * len(COLORS)) ** 2
_COLORED_PAIRS = perm(len(SHAPES), 2) * perm(len(COLORS), 2) * len(SIZES) ** 2

_FAMILIES: dict[str, Family[Scene]] = {
    "single_object": ONE,
    "two_object": Family(
        lambda rng: scene_of(some(rng, range(CELLS), 2), _two_shapes(rng)),
        comb(CELLS, 2) * _SHAPE_PAIRS,
    ),
    "counting": EQUAL,
    "colors": ONE,
    "position": Family(
        lambda rng: scene_of(cells_in_line(rng), _two_shapes(rng)), PAIRS_IN_LINE * _SHAPE_PAIRS
    ),
    "color_attr": Family(_color_attr, comb(CELLS, 2) * _COLORED_PAIRS),
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
        place = Position(_relation(subject, target), 0)
        return Prompt(task, (Clause(target.shape), Clause(subject.shape, position=place)))
    colored = task in ("colors", "color_attr")
    return Prompt(
        task,
        tuple(
            Clause(scene_object.shape, color=scene_object.color if colored else None)
            for scene_object in objects
        ),
    )


def _relation(subject: SceneObject, target: SceneObject) -> Relation:
    if subject.row == target.row:
        return "left of" if subject.column < target.column else "right of"
    return "above" if subject.row < target.row else "below"
