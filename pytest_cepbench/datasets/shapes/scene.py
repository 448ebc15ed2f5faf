"""Scenes of the shapes world: their objects, their captions, and their vectors.

The grammar of captions in EBNF (words are lower case, every word and sign is followed by one space
but the last):

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

The vector of a scene is the sum over its objects of place (x) look, where place and look are unit
vectors of weighted one-hot codes. So two objects count as alike by the product of

    place: 0.70 for the same cell + 0.15 for the same row + 0.15 for the same column
    look:  0.10 for being there   + 0.30 for each of the same size, color and shape

One attribute changed in a scene of n objects that share no row or column gives 1 - 0.3 / n, k lost
objects give sqrt((n - k) / n); shared rows and columns change that by a few hundredths. In the
scenes that the world draws, each further object lost and each further attribute changed lowers the
cosine to the start. The empty scene has a dimension of its own: it is like itself and like nothing
else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]

Size = Literal["small", "large"]
Color = Literal["red", "green", "blue", "yellow", "purple", "cyan"]
Shape = Literal["circle", "square", "triangle", "cross"]

SIZES: tuple[Size, ...] = get_args(Size)
COLORS: tuple[Color, ...] = get_args(Color)
SHAPES: tuple[Shape, ...] = get_args(Shape)
ROWS = ("top", "middle", "bottom")
COLUMNS = ("left", "center", "right")

GRID = 3
"""Cells along each side of the scene."""

CELLS = GRID * GRID
"""Places an object can have, numbered row by row from the top left."""

MAX_OBJECTS = 4
"""Most objects in a scene that the world itself draws; parsing and perceiving can find more."""

WORLD_VERSION = "shapes/1"
"""Changes when a scene's caption, pixels, perception or features change: part of fingerprints."""


@dataclass(frozen=True)
class SceneObject:
    """One object: its cell in 0..8, and its look. Raises ValueError for a word not of the world."""

    cell: int
    size: Size
    color: Color
    shape: Shape

    def __post_init__(self) -> None:
        for word, known in ((self.size, SIZES), (self.color, COLORS), (self.shape, SHAPES)):
            if word not in known:
                raise ValueError(f"{word!r} is not one of {', '.join(known)}")
        if not 0 <= self.cell < CELLS:
            raise ValueError(f"cell {self.cell} is not in 0..{CELLS - 1}")

    @property
    def look(self) -> tuple[Size, Color, Shape]:
        """Its size, color and shape, wherever it is."""
        return self.size, self.color, self.shape

    @property
    def row(self) -> int:
        """0 for the top row."""
        return self.cell // GRID

    @property
    def column(self) -> int:
        """0 for the left column."""
        return self.cell % GRID


@dataclass(frozen=True)
class Scene:
    """Objects in different cells, kept sorted by cell whatever order they are given in.

    Raises ValueError when two objects share a cell.
    """

    objects: tuple[SceneObject, ...] = ()

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.objects, key=lambda scene_object: scene_object.cell))
        cells = [scene_object.cell for scene_object in ordered]
        if len(set(cells)) < len(cells):
            raise ValueError(f"a cell holds one object, got cells {cells}")
        object.__setattr__(self, "objects", ordered)


EMPTY_CAPTION = "no shapes"

COUNTS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# ASCII only: ignoring case by Unicode's rules would let through letters that lower() keeps foreign.
_PHRASE = re.compile(
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
    return f"{COUNTS[number - 1]} {noun} : {' , '.join(map(phrase, scene.objects))}"


def parse_caption(text: str) -> Scene:
    """The scene that a text tells of; never raises.

    Every run of five words that is an object of the grammar counts, whatever its case, its spacing
    and the words around it; the rest is passed over, the count word too. Where two objects claim a
    cell the first has it.
    """
    objects: dict[int, SceneObject] = {}
    for scene_object in parse_phrases(text):
        objects.setdefault(scene_object.cell, scene_object)
    return Scene(tuple(objects.values()))


def phrase(scene_object: SceneObject) -> str:
    """The five words that name an object and its place."""
    return (
        f"{scene_object.size} {scene_object.color} {scene_object.shape} "
        f"{ROWS[scene_object.row]} {COLUMNS[scene_object.column]}"
    )


def parse_phrases(text: str) -> list[SceneObject]:
    """The objects that a text names, in its order; a cell can be named more than once."""
    objects = []
    for match in _PHRASE.finditer(text):
        size, color, shape, row, column = (word.lower() for word in match.groups())
        cell = GRID * ROWS.index(row) + COLUMNS.index(column)
        look = (cast("Size", size), cast("Color", color), cast("Shape", shape))
        objects.append(SceneObject(cell, *look))
    return objects


_SAME_CELL, _SAME_LINE = 0.70, 0.15
_PRESENT, _SAME_ATTRIBUTE = 0.10, 0.30

_PLACES = CELLS + 2 * GRID
_LOOKS = 1 + len(SIZES) + len(COLORS) + len(SHAPES)

DIMENSION = _PLACES * _LOOKS + 1


def features(scene: Scene) -> FloatArray:
    """(DIMENSION,) float64, non-negative, never zero; the same for a scene however it is drawn."""
    vector = np.zeros(DIMENSION)
    if scene.objects:
        places = np.array([_place(scene_object) for scene_object in scene.objects])
        looks = np.array([_look(scene_object) for scene_object in scene.objects])
        vector[:-1] = (places.T @ looks).ravel()
    else:
        vector[-1] = 1.0
    return vector


def _place(scene_object: SceneObject) -> FloatArray:
    code = np.zeros(_PLACES)
    code[scene_object.cell] = sqrt(_SAME_CELL)
    code[[CELLS + scene_object.row, CELLS + GRID + scene_object.column]] = sqrt(_SAME_LINE)
    return code


def _look(scene_object: SceneObject) -> FloatArray:
    code = np.zeros(_LOOKS)
    code[0] = sqrt(_PRESENT)
    size = 1 + SIZES.index(scene_object.size)
    color = 1 + len(SIZES) + COLORS.index(scene_object.color)
    shape = 1 + len(SIZES) + len(COLORS) + SHAPES.index(scene_object.shape)
    code[[size, color, shape]] = sqrt(_SAME_ATTRIBUTE)
    return code
