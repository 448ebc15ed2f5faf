"""Questions of the arena: what each asks, as a sentence and as data, and its right answer.

The grammar of instructions in EBNF, on top of that of captions (`shapes.scene`) and with the same
spacing:

    instruction = build | add | remove | restore | move | recolor | swap | continue | count | own ;
    build       = "draw this step by step , one shape per step :" caption "; order :" objects ;
    add         = "add one shape per step :" objects ;
    remove      = "remove one shape per step :" objects ;
    restore     = remove ", then bring back what was removed two steps before" ;
    move        = "describe , then move the" object "to" row column ;
    recolor     = "make the" object color ;
    swap        = "swap the" object "and the" object ;
    continue    = "continue with the next step" ;
    count       = "take one shape away per step , top left first , until none is left" ;
    own         = "draw" ( "two" | "three" | "four" ) [ size ] [ color ] "shapes of your choice ,"
                  "then remove the one that comes" ( "first" | "last" ) ;
    objects     = object { "," object } ;

First and last are meant in reading order: row by row from the top left. Captions name at most four
objects, so that the language is closed: `VOCABULARY` has all of its words.

The right answer is found by reading the question alone. A solution is a scene to begin with and a
change for each step, so that a model whose errors stay can go on from what it drew itself. Changes
act on places: "remove the small red circle top left" takes away whatever is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Literal, cast, get_args

from pytest_cepbench.artifacts import ImageArtifact
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
    COLORS,
    COLUMNS,
    COUNTS,
    GRID,
    MAX_OBJECTS,
    PLACES,
    ROWS,
    SHAPES,
    SIZES,
    Color,
    Scene,
    SceneObject,
    Size,
    caption,
    parse_caption,
    parse_phrases,
    phrase,
)
from pytest_cepbench.errors import DatasetError

Task = Literal[
    "build", "add", "remove", "move", "recolor", "swap", "continue", "count", "own", "restore"
]

TASKS: tuple[Task, ...] = get_args(Task)
"""The categories of the arena."""

End = Literal["first", "last"]


@dataclass(frozen=True)
class Request:
    """What a free choice of objects has to meet.

    number: of objects, 2 to 4.
    size, color: of each of them; None where any will do.
    """

    number: int
    size: Size | None = None
    color: Color | None = None

    def fits(self, scene_object: SceneObject) -> bool:
        """True where the object has the size and the color that are asked for."""
        return self.size in (None, scene_object.size) and self.color in (None, scene_object.color)


@dataclass(frozen=True)
class Instruction:
    """What a question asks; each task uses the fields that its sentence has.

    task: one of `TASKS`.
    objects: those that it names, in its order.
    cell: where `move` brings its object.
    color: what `recolor` makes its object.
    request: what `own` wants drawn.
    end: which object of that `own` wants removed, in reading order.
    """

    task: Task
    objects: tuple[SceneObject, ...] = ()
    cell: int | None = None
    color: Color | None = None
    request: Request | None = None
    end: End | None = None


def phrase_instruction(instruction: Instruction) -> str:
    """The one sentence of an instruction."""
    objects = [phrase(scene_object) for scene_object in instruction.objects]
    slots = {
        "whole": caption(Scene(instruction.objects)),
        "objects": " , ".join(objects),
        "color": instruction.color,
        "end": instruction.end,
    }
    slots |= dict(zip(("object", "other"), objects, strict=False))
    if instruction.cell is not None:
        slots["place"] = PLACES[instruction.cell]
    if instruction.request is not None:
        request = instruction.request
        words = (COUNTS[request.number - 1], request.size, request.color, "shapes")
        slots["request"] = " ".join(filter(None, words))
    return _SENTENCES[instruction.task].format_map(slots)


def parse_instruction(text: str) -> Instruction:
    """The instruction in a text, whatever its case, its spacing and the words around it.

    Raises DatasetError where there is none, and for one that contradicts itself.
    """
    words = " ".join(text.lower().split())
    for task, pattern in _PATTERNS.items():  # noqa: B007 - used behind the loop
        match = pattern.search(words)
        if match is not None:
            break
    else:
        raise DatasetError(
            f"{text!r:.120} is no question of the arena of shapes: see docs/suites.md for its "
            "grammar"
        )
    slots = match.groupdict()
    named = " , ".join(slots[slot] for slot in ("objects", "object", "other") if slot in slots)
    objects = tuple(parse_phrases(named))
    if len({scene_object.cell for scene_object in objects}) < len(objects):
        raise DatasetError(f"the question names two objects in one place: {named}")
    if "whole" in slots and parse_caption(slots["whole"]) != Scene(objects):
        raise DatasetError(
            f"the question orders other objects than it describes: {slots['whole']} ; {named}"
        )
    cell = PLACES.index(slots["place"]) if "place" in slots else None
    request = None
    if "request" in slots:
        number, *adjectives, _ = slots["request"].split()
        size = next((size for size in SIZES if size in adjectives), None)
        shade = next((color for color in COLORS if color in adjectives), None)
        request = Request(COUNTS.index(number) + 1, size, shade)
    color, end = slots.get("color"), slots.get("end")
    return Instruction(
        task, objects, cell, cast("Color | None", color), request, cast("End | None", end)
    )


_SENTENCES: Mapping[Task, str] = {
    "build": "draw this step by step , one shape per step : {whole} ; order : {objects}",
    "add": "add one shape per step : {objects}",
    "restore": (
        "remove one shape per step : {objects} , then bring back what was removed two steps before"
    ),
    "remove": "remove one shape per step : {objects}",
    "move": "describe , then move the {object} to {place}",
    "recolor": "make the {object} {color}",
    "swap": "swap the {object} and the {other}",
    "continue": "continue with the next step",
    "count": "take one shape away per step , top left first , until none is left",
    "own": "draw {request} of your choice , then remove the one that comes {end}",
}
"""The first that is found in a text counts: `restore` begins as `remove` does."""


def _any_of(words: tuple[str, ...]) -> str:
    return f"(?:{'|'.join(words)})"


_OBJECT = " ".join(map(_any_of, (SIZES, COLORS, SHAPES, ROWS, COLUMNS)))
_OBJECTS = f"{_OBJECT}(?: , {_OBJECT})*"
_SLOTS = {
    "whole": f"{_any_of(COUNTS)} shapes? : {_OBJECTS}",
    "objects": _OBJECTS,
    "object": _OBJECT,
    "other": _OBJECT,
    "place": _any_of(PLACES),
    "color": _any_of(COLORS),
    "request": (
        f"{_any_of(COUNTS[1:MAX_OBJECTS])}(?: {_any_of(SIZES)})?(?: {_any_of(COLORS)})? shapes"
    ),
    "end": "first|last",
}
_GROUPS = {slot: f"(?P<{slot}>{form})" for slot, form in _SLOTS.items()}
_PATTERNS: Mapping[Task, re.Pattern[str]] = {
    task: re.compile(rf"\b{sentence.format_map(_GROUPS)}\b", re.ASCII)
    for task, sentence in _SENTENCES.items()
}

_CAPTION_WORDS = (
    *(":", ",", "no", "shape", "shapes"), *COUNTS[:MAX_OBJECTS],
    *SIZES, *COLORS, *SHAPES, *ROWS, *COLUMNS,
)  # fmt: skip
_SENTENCE_WORDS = re.sub(r"{\w+}", "", " ".join([*_SENTENCES.values(), *get_args(End)])).split()

VOCABULARY: tuple[str, ...] = tuple(dict.fromkeys((*_CAPTION_WORDS, *_SENTENCE_WORDS)))
"""Every word of questions and captions of the arena."""


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
    asked, scenes = question.instruction, question.scenes
    expected = {"build": 0, "own": 0, "continue": 2}.get(asked.task, 1)
    if len(scenes) != expected:
        raise DatasetError(
            f"{asked.task} asks about {expected} images, the question has {len(scenes)}"
        )
    start = scenes[-1] if scenes else Scene()
    taken = {what.cell for what in start.objects}
    if asked.task in ("remove", "restore", "move", "recolor", "swap"):
        for what in asked.objects:
            if what not in start.objects:
                raise DatasetError(
                    f"the question names the {phrase(what)}, which its image does not show"
                )
    added = {what.cell for what in asked.objects} if asked.task == "add" else {asked.cell}
    if taken & added:
        raise DatasetError(f"the question puts a shape where one is: {phrase_instruction(asked)}")
    if asked.task == "restore" and len(asked.objects) < 2:
        raise DatasetError(
            "the question brings back what was removed two steps before, and removes one shape"
        )
    if asked.task == "count" and not start.objects:
        raise DatasetError("the question takes shapes away from an image that shows none")
    if asked.request is not None:
        start = choose(asked.request, derived_seed(0, phrase_instruction(asked)))
    return Solution(start, _changes(question), asked.request)


def _changes(question: ArenaQuestion) -> tuple[Change, ...]:
    """The change of each step of the right answer, by what the question asks."""
    asked = question.instruction
    objects = asked.objects
    changes: tuple[Change, ...]
    match asked.task:
        case "build" | "add":
            changes = tuple(partial(_put, what=what) for what in objects)
        case "remove":
            changes = tuple(partial(_remove, cell=what.cell) for what in objects)
        case "restore":
            removals = (partial(_remove, cell=what.cell) for what in objects)
            changes = (*removals, partial(_put, what=objects[-2]))
        case "move":
            target = cast("int", asked.cell)
            changes = keep_scene, partial(_move, source=objects[0].cell, target=target)
        case "recolor":
            cell, color = objects[0].cell, cast("Color", asked.color)
            changes = (
                partial(_edit, edit=lambda w: replace(w, color=color) if w.cell == cell else w),
            )
        case "swap":
            first, second = (what.cell for what in objects)
            places = {first: second, second: first}
            changes = (partial(_edit, edit=lambda w: replace(w, cell=places.get(w.cell, w.cell))),)
        case "continue":
            changes = (_next_step(*question.scenes),)
        case "count":
            changes = (partial(_remove_end, end="first"),) * len(question.scenes[0].objects)
        case "own":
            changes = keep_scene, partial(_remove_end, end=cast("End", asked.end))
    return changes


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


def _edit(scene: Scene, edit: Callable[[SceneObject], SceneObject]) -> Scene:
    return Scene(tuple(map(edit, scene.objects)))


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
