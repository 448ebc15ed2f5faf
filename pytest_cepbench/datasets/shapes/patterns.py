"""Patterns of scenes, known by rule: the truth that a construction of a data set is measured by."""

from __future__ import annotations

from collections.abc import Callable

from pytest_cepbench.datasets.shapes.scene import GRID, MAX_OBJECTS, SIZES, Scene

PATTERN_SENTENCES = {
    "Count": "The image shows three objects or more.",
    "Color": "The objects have three colors or more.",
    "Position": "There are two objects or more, all of them in one row or in one column.",
    "Size": "There are small and large objects.",
    "Crowd": "The image shows as many objects as images of this world have: four.",
    "Symmetry": "The left half mirrors the right half.",
}
"""Name and rule of each pattern. A rule that changes raises `WORLD_VERSION`."""

PATTERN_NAMES = tuple(PATTERN_SENTENCES)


def scene_patterns(scene: Scene) -> tuple[str, ...]:
    """The patterns of a scene, in the order of `PATTERN_NAMES`; several or none."""
    return tuple(name for name in PATTERN_NAMES if _RULES[name](scene))


def _in_line(scene: Scene) -> bool:
    objects = scene.objects
    rows, columns = {thing.row for thing in objects}, {thing.column for thing in objects}
    return len(objects) > 1 and 1 in (len(rows), len(columns))


def _mirrored(scene: Scene) -> bool:
    looks = {thing.cell: thing.look for thing in scene.objects}
    turned = {thing.row * GRID + GRID - 1 - thing.column: thing.look for thing in scene.objects}
    return bool(looks) and looks == turned


_RULES: dict[str, Callable[[Scene], bool]] = {
    "Count": lambda scene: len(scene.objects) >= 3,
    "Color": lambda scene: len({thing.color for thing in scene.objects}) >= 3,
    "Position": _in_line,
    "Size": lambda scene: {thing.size for thing in scene.objects} == set(SIZES),
    "Crowd": lambda scene: len(scene.objects) >= MAX_OBJECTS,
    "Symmetry": _mirrored,
}
