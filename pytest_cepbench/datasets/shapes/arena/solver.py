"""Solving: a question to the scenes of its right answer, reading the question alone.

A solution is a scene to begin with and a change for each step, so that a model whose errors stay
can go on from what it drew itself. Changes act on places: "remove the small red circle top left"
takes away whatever is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import cast

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes.arena.grammar import (
    End,
    Instruction,
    Request,
    Task,
    parse_instruction,
    phrase_instruction,
)
from pytest_cepbench.datasets.shapes.parser import parse_image
from pytest_cepbench.datasets.shapes.samples import (
    LOOKS,
    derived_seed,
    random_generator,
    scene_of,
    some,
)
from pytest_cepbench.datasets.shapes.scene import (
    CELLS,
    GRID,
    Color,
    Scene,
    SceneObject,
    phrase,
)
from pytest_cepbench.errors import DatasetError

Change = Callable[[Scene], Scene]
"""A scene before a step -> the scene after it."""


@dataclass(frozen=True)
class ArenaQuestion:
    """A question as data.

    instruction: what its text asks.
    scenes: those of its images, in order.
    """

    instruction: Instruction
    scenes: tuple[Scene, ...] = ()


@dataclass(frozen=True)
class Solution:
    """The right answer to a question.

    start: the scene before the first step.
    changes: one for each step.
    request: what the first step is free to meet in any way; None where nothing is free. `start` is
        then one way to meet it.
    """

    start: Scene
    changes: tuple[Change, ...]
    request: Request | None = None

    @property
    def scenes(self) -> tuple[Scene, ...]:
        """The scene after each step."""
        return tuple(
            accumulate(self.changes, lambda scene, change: change(scene), initial=self.start)
        )[1:]

    def scenes_after(self, first: Scene | None) -> tuple[Scene, ...]:
        """The right scenes of an answer whose first step shows a given scene.

        first: None where it shows nothing. It matters only where the first step is free: what is
        right there is the way to meet the request that is nearest to it, and the second step
        changes what was drawn, right or wrong, unless that was nothing.
        """
        if self.request is None or first is None:
            return self.scenes
        nearest = nearest_choice(self.request, first)
        second = self.changes[1](first if first.objects else nearest)
        return nearest, second


def read_question(pieces: Sequence[str | ImageArtifact]) -> ArenaQuestion:
    """The question in texts and images. Raises DatasetError where its text is none of the arena."""
    text = " ".join(piece for piece in pieces if isinstance(piece, str))
    images = [piece for piece in pieces if not isinstance(piece, str)]
    return ArenaQuestion(parse_instruction(text), tuple(map(parse_image, images)))


def solve(question: ArenaQuestion) -> Solution:
    """The right answer to a question.

    Raises DatasetError where its images are not as many as its task needs, or do not show what its
    text names.
    """
    instruction, scenes = question.instruction, question.scenes
    expected = IMAGES[instruction.task]
    if len(scenes) != expected:
        raise DatasetError(
            f"{instruction.task} asks about {expected} images, the question has {len(scenes)}"
        )
    start = scenes[-1] if scenes else Scene()
    _check_scene(instruction, start)
    if instruction.request is not None:
        seed = derived_seed(0, phrase_instruction(instruction))
        start = choose(instruction.request, seed)
    return Solution(start, _CHANGES[instruction.task](question), instruction.request)


IMAGES: dict[Task, int] = {
    "build": 0,
    "add": 1,
    "remove": 1,
    "move": 1,
    "recolor": 1,
    "swap": 1,
    "continue": 2,
    "count": 1,
    "own": 0,
    "restore": 1,
}
"""How many images a question of each task has."""


def choose(request: Request, seed: int) -> Scene:
    """A scene that meets a request; objects of different looks."""
    rng = random_generator(seed)
    fitting = [look for look in LOOKS if request.fits(SceneObject(0, *look))]
    cells = some(rng, range(CELLS), request.number)
    return scene_of(cells, some(rng, fitting, request.number))


def nearest_choice(request: Request, scene: Scene) -> Scene:
    """The scene that meets a request and has most of another scene.

    It has the objects that fit, in reading order, as many as are asked for. Those that are wanting
    are put where the other scene has none that fits, so that they never count as drawn.
    """
    kept = [what for what in scene.objects if request.fits(what)][: request.number]
    taken = {what.cell for what in kept}
    look = next(look for look in LOOKS if request.fits(SceneObject(0, *look)))
    free = [cell for cell in range(CELLS) if cell not in taken]
    wanting = [SceneObject(cell, *look) for cell in free[: request.number - len(kept)]]
    return Scene((*kept, *wanting))


def _check_scene(instruction: Instruction, scene: Scene) -> None:
    """Raise DatasetError where what the text asks cannot be done with what the picture shows."""
    if instruction.task in ("remove", "restore", "move", "recolor", "swap"):
        for what in instruction.objects:
            if what not in scene.objects:
                raise DatasetError(
                    f"the question names the {phrase(what)}, which its image does not show"
                )
    targets = [instruction.cell] if instruction.task == "move" else []
    if instruction.task == "add":
        targets = [what.cell for what in instruction.objects]
    if {what.cell for what in scene.objects}.intersection(targets):
        raise DatasetError(
            f"the question puts a shape where one is: {phrase_instruction(instruction)}"
        )
    if instruction.task == "restore" and len(instruction.objects) < 2:
        raise DatasetError(
            "the question brings back what was removed two steps before, and removes one shape"
        )
    if instruction.task == "count" and not scene.objects:
        raise DatasetError("the question takes shapes away from an image that shows none")


def keep_scene(scene: Scene) -> Scene:
    """The change of a step that changes nothing."""
    return scene


def _put(scene: Scene, what: SceneObject) -> Scene:
    return Scene((*_remove(scene, what.cell).objects, what))


def _remove(scene: Scene, cell: int) -> Scene:
    return Scene(tuple(what for what in scene.objects if what.cell != cell))


def _remove_end(scene: Scene, end: End) -> Scene:
    return Scene(scene.objects[1:] if end == "first" else scene.objects[:-1])


def _move(scene: Scene, source: int, target: int) -> Scene:
    moved = [replace(what, cell=target) for what in scene.objects if what.cell == source]
    kept = _remove(_remove(scene, target), source) if moved else scene
    return Scene((*kept.objects, *moved))


def _recolor(scene: Scene, cell: int, color: Color) -> Scene:
    return Scene(
        tuple(replace(what, color=color) if what.cell == cell else what for what in scene.objects)
    )


def _swap(scene: Scene, first: int, second: int) -> Scene:
    exchanged = {first: second, second: first}
    return Scene(
        tuple(replace(what, cell=exchanged.get(what.cell, what.cell)) for what in scene.objects)
    )


def _next_step(before: Scene, after: Scene) -> Change:
    """The next step of the one object that walks along its row from one scene to the next."""
    left = {*before.objects} - {*after.objects}
    arrived = {*after.objects} - {*before.objects}
    if len(left) == len(arrived) == 1:
        (walker,), (there,) = left, arrived
        stride = there.column - walker.column
        inside = 0 <= there.column + stride < GRID
        if walker.look == there.look and walker.row == there.row and inside:
            return partial(_move, source=there.cell, target=there.cell + stride)
    raise DatasetError("the question's two images do not show one shape on its way along its row")


def _put_each(question: ArenaQuestion) -> tuple[Change, ...]:
    return tuple(partial(_put, what=what) for what in question.instruction.objects)


def _remove_each(question: ArenaQuestion) -> tuple[Change, ...]:
    return tuple(partial(_remove, cell=what.cell) for what in question.instruction.objects)


def _restoration(question: ArenaQuestion) -> tuple[Change, ...]:
    back = partial(_put, what=question.instruction.objects[-2])
    return (*_remove_each(question), back)


def _movement(question: ArenaQuestion) -> tuple[Change, ...]:
    (what,), target = question.instruction.objects, cast("int", question.instruction.cell)
    return keep_scene, partial(_move, source=what.cell, target=target)


def _recoloring(question: ArenaQuestion) -> tuple[Change, ...]:
    (what,), color = question.instruction.objects, cast("Color", question.instruction.color)
    return (partial(_recolor, cell=what.cell, color=color),)


def _exchange(question: ArenaQuestion) -> tuple[Change, ...]:
    first, second = question.instruction.objects
    return (partial(_swap, first=first.cell, second=second.cell),)


def _countdown(question: ArenaQuestion) -> tuple[Change, ...]:
    (scene,) = question.scenes
    return (partial(_remove_end, end="first"),) * len(scene.objects)


def _own_removal(question: ArenaQuestion) -> tuple[Change, ...]:
    return keep_scene, partial(_remove_end, end=cast("End", question.instruction.end))


_CHANGES: Mapping[Task, Callable[[ArenaQuestion], tuple[Change, ...]]] = {
    "build": _put_each,
    "add": _put_each,
    "remove": _remove_each,
    "move": _movement,
    "recolor": _recoloring,
    "swap": _exchange,
    "continue": lambda question: (_next_step(*question.scenes),),
    "count": _countdown,
    "own": _own_removal,
    "restore": _restoration,
}
