"""The atomic facts of a scene: what is there, how many, how it looks, where it stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from pytest_cepbench.datasets.shapes.scene import (
    COLUMNS,
    COUNTS,
    EMPTY_CAPTION,
    ROWS,
    Scene,
    SceneObject,
)
from pytest_cepbench.metrics.facts import Fact

SCENE_FACTS = "shapes-facts/1"
"""Changes when a scene has other facts: part of the identity of what is measured by them."""

SCENE_KINDS = ("object", "count", "color", "size", "position", "relation")


def scene_facts(scene: Scene) -> tuple[Fact, ...]:
    """The facts of a scene, sorted; no two scenes of up to four objects have the same.

    object    "circle": something has this shape, once for each object
    count     "three shapes": of the whole scene; the empty scene has this fact alone
    color     "red": something has this color, once for each object
    size      "large", once for each object
    position  "top left": something stands there, once for each object
    relation  "small red circle left of large blue square", once for each pair of objects: one of
              left of, above, above left of, above right of

    Every kind but the last looks at one attribute alone, so that an error in one is not counted in
    the others: another color costs a color. What belongs together is the relations' part, which
    name both objects whole: attributes or places that are exchanged cost relations only.
    """
    words = Counter(_words(scene))
    return tuple(
        sorted(
            Fact(kind, text, nth)
            for (kind, text), number in words.items()
            for nth in range(1, number + 1)
        )
    )


def _words(scene: Scene) -> Iterator[tuple[str, str]]:
    number = len(scene.objects)
    noun = "shape" if number == 1 else "shapes"
    yield "count", f"{COUNTS[number - 1]} {noun}" if number else EMPTY_CAPTION
    for thing in scene.objects:
        yield "object", thing.shape
        yield "color", thing.color
        yield "size", thing.size
        yield "position", f"{ROWS[thing.row]} {COLUMNS[thing.column]}"
    for first, second in combinations(scene.objects, 2):  # sorted by cell, row by row
        yield "relation", _relation(first, second)


def _relation(first: SceneObject, second: SceneObject) -> str:
    """The relation of two objects, the first of which does not stand in a lower row."""
    names = [" ".join(thing.look) for thing in (first, second)]
    if first.row == second.row:
        where = "left of"
    elif first.column == second.column:
        where = "above"
    else:
        where = "above left of" if first.column < second.column else "above right of"
    return f"{names[0]} {where} {names[1]}"
