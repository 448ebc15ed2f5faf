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
from math import pi, sqrt
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import ImageArtifact

FloatArray = npt.NDArray[np.floating[Any]]

Size = Literal["small", "large"]
Color = Literal["red", "green", "blue", "yellow", "purple", "cyan"]
Shape = Literal["circle", "square", "triangle", "cross"]

SIZES: tuple[Size, ...] = get_args(Size)
COLORS: tuple[Color, ...] = get_args(Color)
SHAPES: tuple[Shape, ...] = get_args(Shape)
ROWS = ("top", "middle", "bottom")
COLUMNS = ("left", "center", "right")

PLACES = tuple(f"{row} {column}" for row in ROWS for column in COLUMNS)
"""The words for each cell."""

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
    def noun(self) -> str:
        """The words for its look."""
        return " ".join(self.look)

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
    objects = " , ".join(map(phrase, scene.objects))
    return f"{count_phrase(scene)} : {objects}" if objects else EMPTY_CAPTION


def count_phrase(scene: Scene) -> str:
    """How many objects there are: "one shape", "two shapes"; "no shapes" of none."""
    number = len(scene.objects)
    noun = "shape" if number == 1 else "shapes"
    return f"{COUNTS[number - 1]} {noun}" if number else EMPTY_CAPTION


def parse_caption(text: str) -> Scene:
    """The scene that a text tells of; never raises.

    Every run of five words that is an object of the grammar counts, whatever its case, its spacing
    and the words around it; the rest is passed over, the count word too. Where two objects claim a
    cell the first has it.
    """
    objects = {own.cell: own for own in reversed(parse_phrases(text))}
    return Scene(tuple(objects.values()))


def phrase(scene_object: SceneObject) -> str:
    """The five words that name an object and its place."""
    return f"{scene_object.noun} {PLACES[scene_object.cell]}"


def parse_phrases(text: str) -> list[SceneObject]:
    """The objects that a text names, in its order; a cell can be named more than once."""
    objects = []
    for match in _PHRASE.finditer(text):
        size, color, shape, row, column = (word.lower() for word in match.groups())
        cell = PLACES.index(f"{row} {column}")
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
    if not scene.objects:
        vector[-1] = 1.0
        return vector
    places = np.zeros((len(scene.objects), _PLACES))
    looks = np.zeros((len(scene.objects), _LOOKS))
    for place, look, own in zip(places, looks, scene.objects, strict=True):
        place[own.cell] = sqrt(_SAME_CELL)
        place[[CELLS + own.row, CELLS + GRID + own.column]] = sqrt(_SAME_LINE)
        look[0] = sqrt(_PRESENT)
        size = 1 + SIZES.index(own.size)
        color = 1 + len(SIZES) + COLORS.index(own.color)
        shape = 1 + len(SIZES) + len(COLORS) + SHAPES.index(own.shape)
        look[[size, color, shape]] = sqrt(_SAME_ATTRIBUTE)
    vector[:-1] = (places.T @ looks).ravel()
    return vector


SIDE = 64
"""Pixels along each side of an image."""

CELL = SIDE / GRID
"""Pixels along each side of a cell."""

BACKGROUND = 0.10
"""Level of all three channels where nothing is drawn, in [0, 1]."""

PALETTE = np.array(
    [
        [0.92, 0.16, 0.16],
        [0.16, 0.75, 0.22],
        [0.20, 0.32, 0.95],
        [0.96, 0.88, 0.18],
        [0.72, 0.25, 0.85],
        [0.20, 0.85, 0.90],
    ]
)
"""(6, 3) RGB in [0, 1], in the order of `COLORS`."""

RADII = (5.2, 9.2)
"""Nominal radius in pixels, in the order of `SIZES`."""

PLACE_JITTER = 1.0
"""Most that an object's center lies off its cell's, in pixels along each axis."""

RADIUS_JITTER = 0.4
"""Most that an object's radius differs from the nominal one, in pixels."""

_SQUARE = 0.88  # half side
_TRIANGLE = 0.62  # radius of the inscribed circle
_TRIANGLE_DROP = 0.18  # center of that circle below the object's own
_BAR = 0.36  # half width of a cross's bars
_FARTHEST = 1.1  # along an axis from the center: a triangle's corners, of all shapes

AREA: dict[Shape, float] = {
    "circle": pi,
    "square": (2 * _SQUARE) ** 2,
    "triangle": 3 * sqrt(3) * _TRIANGLE**2,
    "cross": 8 * _BAR - 4 * _BAR**2,
}
"""Area of each shape of radius 1."""

DROP: dict[Shape, float] = {"circle": 0.0, "square": 0.0, "triangle": _TRIANGLE_DROP, "cross": 0.0}
"""How far the center of mass of each shape of radius 1 lies below its center."""


def coverage(shape: Shape, x: FloatArray, y: FloatArray, radius: FloatArray | float) -> FloatArray:
    """The share of each pixel that a shape covers, in [0, 1], with edges one pixel soft.

    x, y: offsets of the pixels' centers from the shape's, in pixels, y down; radius in pixels; all
    broadcast. A triangle stands on its base and is equilateral; a cross is upright.
    """
    across, down = np.abs(x), np.abs(y)
    # Pixels from the shape's edge, negative inside; corners are cut square, not round.
    outside: FloatArray
    if shape == "circle":
        outside = np.sqrt(x * x + y * y) - radius
    elif shape == "square":
        outside = np.maximum(across, down) - _SQUARE * radius
    elif shape == "triangle":
        below = y - _TRIANGLE_DROP * radius
        outside = np.maximum(below, sqrt(0.75) * across - 0.5 * below) - _TRIANGLE * radius
    else:
        longer, shorter = np.maximum(across, down), np.minimum(across, down)
        outside = np.maximum(longer - radius, shorter - _BAR * radius)
    soft: FloatArray = np.clip(0.5 - outside, 0.0, 1.0)
    return soft


_CENTERS = np.arange(SIDE) + 0.5


def render(scene: Scene, seed: int) -> ImageArtifact:
    """Draw a scene: (64, 64, 3) pixels.

    seed: any non-negative integer; decides place within the cell and radius of every object. An
    object's jitter depends on seed and cell alone, so it stays when another object is lost.
    """
    uniform = np.random.Generator(np.random.PCG64(seed)).random((CELLS, 3))
    return draw(scene, 2.0 * uniform - 1.0)


def draw(scene: Scene, jitter: FloatArray) -> ImageArtifact:
    """Draw a scene with a given jitter.

    jitter: (9, 3) in [-1, 1], one row per cell: x, y and radius in units of the world's jitter.
    """
    canvas = np.full((SIDE, SIDE, 3), BACKGROUND)
    for scene_object in scene.objects:
        right, down, wider = jitter[scene_object.cell].tolist()
        x = (scene_object.column + 0.5) * CELL + PLACE_JITTER * right
        y = (scene_object.row + 0.5) * CELL + PLACE_JITTER * down
        radius = RADII[SIZES.index(scene_object.size)] + RADIUS_JITTER * wider
        reach = _FARTHEST * radius + 1.0  # of the pixels along an axis whose centers it may cover
        columns, rows = (
            slice(max(0, int(at - reach)), max(0, int(at + reach) + 1)) for at in (x, y)
        )
        across, along = _CENTERS[columns] - x, _CENTERS[rows] - y
        cover = coverage(scene_object.shape, across[None, :], along[:, None], radius)[..., None]
        around = canvas[rows, columns]
        around += cover * (PALETTE[COLORS.index(scene_object.color)] - around)
    return ImageArtifact(np.rint(canvas * 255).astype(np.uint8))
