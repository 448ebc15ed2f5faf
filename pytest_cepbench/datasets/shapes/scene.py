"""Scenes: all that there is to see in the shapes world, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

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
        checks = ((self.size, SIZES), (self.color, COLORS), (self.shape, SHAPES))
        for given, known in checks:
            if given not in known:
                msg = f"{given!r} is not one of {', '.join(known)}"
                raise ValueError(msg)
        if not 0 <= self.cell < CELLS:
            msg = f"cell {self.cell} is not in 0..{CELLS - 1}"
            raise ValueError(msg)

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
            msg = f"a cell holds one object, got cells {cells}"
            raise ValueError(msg)
        object.__setattr__(self, "objects", ordered)
