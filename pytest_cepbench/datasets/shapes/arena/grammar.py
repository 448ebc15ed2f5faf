"""Instructions: what a question of the arena asks, as a sentence and as data.

The grammar in EBNF, on top of that of captions (`shapes.scene`), with the same spacing:

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
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from pytest_cepbench.datasets.shapes.scene import (
    COLORS,
    COLUMNS,
    COUNTS,
    GRID,
    MAX_OBJECTS,
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
        slots["place"] = f"{ROWS[instruction.cell // GRID]} {COLUMNS[instruction.cell % GRID]}"
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
    for task, pattern in _PATTERNS.items():
        match = pattern.search(words)
        if match is not None:
            return _instruction(task, match.groupdict())
    raise DatasetError(
        f"{text!r:.120} is no question of the arena of shapes: see docs/suites.md for its grammar"
    )


def _instruction(task: Task, slots: Mapping[str, str]) -> Instruction:
    named = " , ".join(slots[slot] for slot in ("objects", "object", "other") if slot in slots)
    objects = tuple(parse_phrases(named))
    if len({scene_object.cell for scene_object in objects}) < len(objects):
        raise DatasetError(f"the question names two objects in one place: {named}")
    if "whole" in slots and parse_caption(slots["whole"]) != Scene(objects):
        raise DatasetError(
            f"the question orders other objects than it describes: {slots['whole']} ; {named}"
        )
    return Instruction(
        task,
        objects,
        cell=_cell(slots["place"]) if "place" in slots else None,
        color=cast("Color | None", slots.get("color")),
        request=_request(slots["request"]) if "request" in slots else None,
        end=cast("End | None", slots.get("end")),
    )


def _cell(place: str) -> int:
    row, column = place.split()
    return GRID * ROWS.index(row) + COLUMNS.index(column)


def _request(text: str) -> Request:
    number, *words, _ = text.split()
    size = next((size for size in SIZES if size in words), None)
    color = next((color for color in COLORS if color in words), None)
    return Request(COUNTS.index(number) + 1, size, color)


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
    "place": f"{_any_of(ROWS)} {_any_of(COLUMNS)}",
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
