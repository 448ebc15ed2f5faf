"""The arena's tasks: how the questions of each category are drawn.

build     text: draw a scene, one named object a step; 2 to 4 steps
add       image and text: add one or two objects, one a step
remove    image and text: remove all objects but one, one a step; 1 to 3 steps
move      image and text: show the scene as it is, then with one object elsewhere; 2 steps
recolor   image and text: give one object another color; 1 step
swap      image and text: exchange the places of two objects; 1 step
continue  two images of an object that walks along its row, and text: the next one; 1 step
count     image and text: take away one object a step until none is left; 2 to 4 steps, whose number
          the question does not tell
own       text: draw objects of a free choice, then remove the first or the last of them; 2 steps,
          the second of which depends on what the first one shows
restore   image and text: remove two or three objects, one a step, then bring back the last but one
          of them; 3 or 4 steps

No scene of a question or its answer has more than four objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial

import numpy as np

from pytest_cepbench.datasets.sample import Dataset, DrawnImage, GoldStep, Sample
from pytest_cepbench.datasets.shapes.arena.solver import (
    TASKS,
    ArenaQuestion,
    End,
    Instruction,
    Request,
    Solution,
    Task,
    phrase_instruction,
    read_question,
    solve,
)
from pytest_cepbench.datasets.shapes.samples import (
    LOOKS,
    Family,
    any_look,
    below,
    build_dataset,
    derived_seed,
    few,
    scene_of,
    some,
)
from pytest_cepbench.datasets.shapes.scene import (
    CELLS,
    COLORS,
    GRID,
    MAX_OBJECTS,
    SIZES,
    WORLD_VERSION,
    Scene,
    SceneObject,
    caption,
    render,
)


def _scene(rng: np.random.Generator, number: int) -> Scene:
    """So many objects of different looks."""
    return scene_of(some(rng, range(CELLS), number), some(rng, LOOKS, number))


def _free_cells(scene: Scene) -> list[int]:
    taken = {what.cell for what in scene.objects}
    return [cell for cell in range(CELLS) if cell not in taken]


_ENDS: tuple[End, ...] = ("first", "last")


def _question(task: Task, rng: np.random.Generator) -> ArenaQuestion:
    """A question of a task. Draws are made in this order: with another one all data sets change."""
    if task == "own":
        (size,) = some(rng, (None, *SIZES), 1)
        (color,) = some(rng, (None, *COLORS), 1)
        request = Request(few(rng), size, color)
        return ArenaQuestion(Instruction(task, request=request, end=_ENDS[below(rng, 2)]))
    if task == "continue":
        row, leftward = below(rng, GRID), below(rng, 2)
        columns = range(GRID)[::-1] if leftward else range(GRID)
        cells = [GRID * row + column for column in columns]
        elsewhere = [cell for cell in range(CELLS) if cell not in cells]
        number = few(rng)
        looks = some(rng, LOOKS, number)
        walker = SceneObject(cells[0], *looks[0])
        others = scene_of(some(rng, elsewhere, number - 1), looks[1:]).objects
        scenes = tuple(Scene((*others, replace(walker, cell=cell))) for cell in cells[:2])
        return ArenaQuestion(Instruction(task), scenes)
    if task == "add":
        more = 1 + below(rng, 2)
        scene = _scene(rng, 2 + below(rng, MAX_OBJECTS - 1 - more))
        free = some(rng, _free_cells(scene), more)
        added = tuple(SceneObject(cell, *any_look(rng)) for cell in free)
        return ArenaQuestion(Instruction(task, added), (scene,))
    if task == "restore":
        removals = 2 + below(rng, 2)
        scene = _scene(rng, removals + 1)
        return ArenaQuestion(Instruction(task, tuple(some(rng, scene.objects, removals))), (scene,))
    scene = _scene(rng, few(rng))
    count = len(scene.objects)
    named = {"build": count, "remove": count - 1, "count": 0, "swap": 2}.get(task, 1)
    objects = tuple(some(rng, scene.objects, named))
    if task == "build":
        return ArenaQuestion(Instruction(task, objects))
    cell = some(rng, _free_cells(scene), 1)[0] if task == "move" else None
    color = None
    if task == "recolor":
        color = some(rng, [color for color in COLORS if color != objects[0].color], 1)[0]
    return ArenaQuestion(Instruction(task, objects, cell, color), (scene,))


_OWN = (MAX_OBJECTS - 1) * (1 + len(SIZES)) * (1 + len(COLORS)) * len(_ENDS)

FAMILIES: Mapping[str, Family[ArenaQuestion]] = {
    task: Family(partial(_question, task), _OWN if task == "own" else None) for task in TASKS
}
"""The questions of each category."""

ARENA_VERSION = "shapes-arena/1"
"""Changes when a question or its right answer changes: part of identities and fingerprints."""


def load_shapes_arena(samples_per_category: int = 24, seed: int = 0) -> Dataset:
    """Questions of the arena's ten tasks with their right answers.

    Images of a question come before its text. A gold step has the caption of its scene and its
    drawing; all images of a sample are drawn with one jitter. `own` has 126 questions, the other
    tasks far more than there are samples.
    Parameters, order and errors as of `build_dataset`.
    metadata: "task", as the category; "steps", how many the gold answer has; "scenes", the scenes
    of the question's images and then of the gold steps, each a list of objects as dicts with cell
    (0..8), size, color and shape.
    """

    def make_sample(sample_id: str, _: int, question: ArenaQuestion) -> Sample:
        task = question.instruction.task
        jitter = derived_seed(seed, f"arena {sample_id}")
        gold = solve(question).scenes
        scenes = (*question.scenes, *gold)

        def drawing(scene: Scene) -> DrawnImage:
            return DrawnImage(partial(render, scene, jitter))

        return Sample(
            id=sample_id,
            categories=(task,),
            question=(*map(drawing, question.scenes), phrase_instruction(question.instruction)),
            gold=tuple(GoldStep(caption(scene), drawing(scene)) for scene in gold),
            metadata={
                "task": task,
                "steps": len(gold),
                "scenes": [[asdict(what) for what in scene.objects] for scene in scenes],
            },
        )

    identity = {"loader": "shapes-arena", "version": ARENA_VERSION, "world": WORLD_VERSION}
    return build_dataset(identity, FAMILIES, samples_per_category, seed, make_sample, "arena ")


def sample_scenes(sample: Sample) -> tuple[Scene, ...]:
    """Every scene of a sample of the arena, its question's first: what training leaves out."""
    return tuple(
        Scene(tuple(SceneObject(**scene_object) for scene_object in objects))
        for objects in sample.metadata["scenes"]
    )


def solve_sample(sample: Sample) -> Solution:
    """The right answer to a sample's question, from its text and images.

    Raises DatasetError where the question is none of the arena.
    """
    return solve(
        read_question(
            [piece if isinstance(piece, str) else piece.load() for piece in sample.question]
        )
    )
