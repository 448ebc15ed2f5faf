"""Captions: the exact sentence for a scene, and the scene that a sentence tells of.

The grammar in EBNF (words are lower case, every word and sign is followed by one space but the
last):

    caption = "no shapes" | count ":" object { "," object } ;
    count   = "one" "shape"
            | ( "two" | "three" | "four" | "five" | "six" | "seven" | "eight" | "nine" ) "shapes" ;
    object  = size color shape row column ;
    size    = "small" | "large" ;
    color   = "red" | "green" | "blue" | "yellow" | "purple" | "cyan" ;
    shape   = "circle" | "square" | "triangle" | "cross" ;
    row     = "top" | "middle" | "bottom" ;
    column  = "left" | "center" | "right" ;

Objects come row by row from the top left. Counts above four name scenes that the world does not
draw itself but that a model may.
"""

from __future__ import annotations

import re
from typing import cast

from pytest_cepbench.datasets.shapes.scene import (
    COLORS,
    COLUMNS,
    GRID,
    ROWS,
    SHAPES,
    SIZES,
    Color,
    Scene,
    SceneObject,
    Shape,
    Size,
)

EMPTY_CAPTION = "no shapes"

_COUNTS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# ASCII only: ignoring case by Unicode's rules would let through letters that lower() keeps foreign.
_OBJECT = re.compile(
    r"\b"
    + r"\s+".join(f"({'|'.join(words)})" for words in (SIZES, COLORS, SHAPES, ROWS, COLUMNS))
    + r"\b",
    re.IGNORECASE | re.ASCII,
)


def caption(scene: Scene) -> str:
    """The one caption of a scene."""
    if not scene.objects:
        return EMPTY_CAPTION
    number = len(scene.objects)
    noun = "shape" if number == 1 else "shapes"
    return f"{_COUNTS[number - 1]} {noun} : {' , '.join(map(_phrase, scene.objects))}"


def parse_caption(text: str) -> Scene:
    """The scene that a text tells of; never raises.

    Every run of five words that is an object of the grammar counts, whatever its case, its spacing
    and the words around it; the rest is passed over, the count word too. Where two objects claim a
    cell the first has it.
    """
    objects: dict[int, SceneObject] = {}
    for match in _OBJECT.finditer(text):
        size, color, shape, row, column = (word.lower() for word in match.groups())
        cell = GRID * ROWS.index(row) + COLUMNS.index(column)
        look = (cast("Size", size), cast("Color", color), cast("Shape", shape))
        objects.setdefault(cell, SceneObject(cell, *look))
    return Scene(tuple(objects.values()))


def _phrase(scene_object: SceneObject) -> str:
    return f"{scene_object.size} {scene_object.color} {scene_object.shape} {ROWS[scene_object.row]} {COLUMNS[scene_object.column]}"
