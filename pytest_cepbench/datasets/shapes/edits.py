"""Edits of scenes: one change that is exactly known, of the scene, its image and its caption.

mirror   left and right change places, and each object with its column
move     one object goes to a free cell
recolor  one object gets another color
remove   one object of several is taken away
redraw   nothing is changed, and all of it drawn by another seed: a little moved, larger or smaller

An object is meant by its cell, or, where an answer has none in that cell, by its look, if a single
object of the answer has it: so an edit can be made in what a model said of the scene.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pytest_cepbench.datasets.shapes.samples import below, derived_seed, random_generator
from pytest_cepbench.datasets.shapes.scene import CELLS, COLORS, GRID, Color, Scene, SceneObject

Fact = tuple[int, str, str]
"""Cell, attribute ("size", "color" or "shape") and its value: an object is three of them."""


@dataclass(frozen=True)
class SceneEdit:
    """One edit of one scene.

    name: mirror, move, recolor, remove or redraw.
    object: the object that is edited; None for mirror and redraw.
    cell: where it moves to.
    color: what it is colored.
    """

    name: str
    object: SceneObject | None = None
    cell: int | None = None
    color: Color | None = None

    @property
    def target(self) -> Mapping[str, Any]:
        """The edit but for its name, as built-in types."""
        parts = {"object": self.object and asdict(self.object), "cell": self.cell}
        return {k: v for k, v in {**parts, "color": self.color}.items() if v is not None}

    @classmethod
    def read(cls, name: str, target: Mapping[str, Any]) -> SceneEdit:
        """The edit of a name and a target."""
        known = target.get("object")
        edited = None if known is None else SceneObject(**known)
        return cls(name, edited, target.get("cell"), target.get("color"))

    def apply(self, scene: Scene) -> Scene | None:
        """The scene after the edit; None where it has not the object that is meant.

        An object that moves to a cell where the scene has another one takes its place.
        """
        if self.object is None:
            return mirrored(scene) if self.name == "mirror" else scene
        meant = self._meant(self.object, scene)
        if meant is None:
            return None
        others = [other for other in scene.objects if other != meant]
        if self.name == "recolor":
            assert self.color is not None
            others.append(replace(meant, color=self.color))
        elif self.name == "move":
            assert self.cell is not None
            others = [other for other in others if other.cell != self.cell]
            others.append(replace(meant, cell=self.cell))
        return Scene(tuple(others))

    @staticmethod
    def _meant(edited: SceneObject, scene: Scene) -> SceneObject | None:
        at_cell = [own for own in scene.objects if own.cell == edited.cell]
        alike = [own for own in scene.objects if own.look == edited.look]
        if at_cell:
            return at_cell[0]
        return alike[0] if len(alike) == 1 else None


def mirrored(scene: Scene) -> Scene:
    """The scene with left and right exchanged."""
    return Scene(
        tuple(replace(own, cell=own.cell + GRID - 1 - 2 * own.column) for own in scene.objects)
    )


def choose_edit(name: str, scene: Scene, sample_id: str) -> SceneEdit | None:
    """The edit of a name for a scene; None where the scene cannot take it, or stays as it is.

    sample_id: decides which object, cell and color, among equally likely ones.
    A single object is not removed: what is left would be no scene to describe.
    """
    return _CHOICES[name](scene, sample_id)


def _mirror(scene: Scene, _: str) -> SceneEdit | None:
    return None if mirrored(scene) == scene else SceneEdit("mirror")


def _redraw(scene: Scene, _: str) -> SceneEdit | None:
    return SceneEdit("redraw") if scene.objects else None


def _move(scene: Scene, sample_id: str) -> SceneEdit | None:
    taken = {own.cell for own in scene.objects}
    free = [cell for cell in range(CELLS) if cell not in taken]
    if not free or not taken:
        return None
    draw = random_generator(derived_seed(0, f"{sample_id} move"))
    edited = scene.objects[below(draw, len(scene.objects))]
    return SceneEdit("move", edited, cell=free[below(draw, len(free))])


def _recolor(scene: Scene, sample_id: str) -> SceneEdit | None:
    if not scene.objects:
        return None
    draw = random_generator(derived_seed(0, f"{sample_id} recolor"))
    edited = scene.objects[below(draw, len(scene.objects))]
    others = [color for color in COLORS if color != edited.color]
    return SceneEdit("recolor", edited, color=others[below(draw, len(others))])


def _remove(scene: Scene, sample_id: str) -> SceneEdit | None:
    if len(scene.objects) < 2:
        return None
    draw = random_generator(derived_seed(0, f"{sample_id} remove"))
    return SceneEdit("remove", scene.objects[below(draw, len(scene.objects))])


_CHOICES: Mapping[str, Callable[[Scene, str], SceneEdit | None]] = {
    "mirror": _mirror,
    "move": _move,
    "recolor": _recolor,
    "remove": _remove,
    "redraw": _redraw,
}

SCENE_EDITS = tuple(_CHOICES)
"""The names of the edits."""


def scene_facts(scene: Scene) -> frozenset[Fact]:
    """Size, color and shape of each object, in its cell."""
    return frozenset(
        (own.cell, attribute, value)
        for own in scene.objects
        for attribute, value in zip(("size", "color", "shape"), own.look, strict=True)
    )
