"""Scenes of the shapes world: grammar of captions, vectors, and what is drawn."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.shapes import Scene, SceneObject, caption, parse_caption
from pytest_cepbench.datasets.shapes.scene import COLORS, SHAPES, SIZES
from tests.datasets.shapes.strategies import drawn_scenes, scenes, similarity

CIRCLE = SceneObject(4, "small", "red", "circle")


def test_two_objects_in_a_cell_are_refused() -> None:
    """A cell holds one object, so that a place names an object."""
    with pytest.raises(ValueError, match=r"a cell holds one object, got cells \[4, 4\]"):
        Scene((CIRCLE, replace(CIRCLE, color="blue")))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("size", "huge", "'huge' is not one of small, large"),
        ("color", "pink", "'pink' is not one of red"),
        ("shape", "star", "'star' is not one of circle"),
        ("cell", 9, "cell 9 is not in 0..8"),
        ("cell", -1, "cell -1 is not in 0..8"),
    ],
)
def test_objects_outside_of_the_world_are_refused(field: str, value: Any, message: str) -> None:
    """An object that no caption could name cannot be made."""
    with pytest.raises(ValueError, match=message):
        replace(CIRCLE, **{field: value})


RED = SceneObject(3, "small", "red", "circle")
BLUE = SceneObject(8, "large", "blue", "square")


@given(scenes())
def test_every_caption_gives_its_scene_back(scene: Scene) -> None:
    """Reading is the inverse of writing, from no object to nine."""
    assert parse_caption(caption(scene)) == scene


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("no shapes", ()),
        ("a photograph of a cat", ()),
        ("<bos> one shape : small red circle middle left <eos>", (RED,)),
        ("small red circle middle left", (RED,)),
        ("nine shapes : small red circle middle left", (RED,)),
        ("small red circle middle left,large blue square bottom right.", (RED, BLUE)),
        ("small red circle middle , large blue square bottom right", (BLUE,)),
        ("small red red circle middle left", ()),
        ("smaller red circle middle left", ()),
        ("small red circle middle leftover", ()),
        # The long s and the Kelvin sign are S and K where Unicode's rules ignore case.
        ("\u017fmall red circle middle left", ()),
    ],
)
def test_what_is_no_object_is_left_out(text: str, expected: tuple[SceneObject, ...]) -> None:
    """Only whole objects count, and the words around them change nothing."""
    assert parse_caption(text) == Scene(expected)


WORDS: dict[str, tuple[str, ...]] = {"size": SIZES, "color": COLORS, "shape": SHAPES}


@given(scenes(), scenes())
def test_only_equal_scenes_have_similarity_one(first: Scene, second: Scene) -> None:
    """A difference between two scenes is never invisible."""
    assert (similarity(first, second) > 1 - 1e-9) == (first == second)


@given(drawn_scenes(), st.data())
def test_each_further_object_lost_lowers_the_similarity(scene: Scene, data: st.DataObject) -> None:
    """Whatever the objects and the order in which they go."""
    order = data.draw(st.permutations(scene.objects))
    values = [similarity(scene, Scene(tuple(order[k:]))) for k in range(len(order) + 1)]
    assert (np.diff(values) < -0.01).all()


@given(drawn_scenes(), st.data())
def test_each_further_attribute_changed_lowers_the_similarity(
    scene: Scene, data: st.DataObject
) -> None:
    """Whatever the attributes, the order in which they change, and what they become."""
    objects = {thing.cell: thing for thing in scene.objects}
    values = [1.0]
    for cell, field in data.draw(st.permutations(list(product(objects, WORDS)))):
        others = [word for word in WORDS[field] if word != getattr(objects[cell], field)]
        changed: dict[str, Any] = {field: data.draw(st.sampled_from(others))}
        objects[cell] = replace(objects[cell], **changed)
        values.append(similarity(scene, Scene(tuple(objects.values()))))
    assert (np.diff(values) < -0.005).all()


def test_documented_cosines_hold() -> None:
    """The figures of the module's text: an attribute changed, objects lost, a move in a line."""
    objects = tuple(SceneObject(cell, "small", "red", "cross") for cell in (0, 4, 8))
    scene = Scene(objects)
    green = replace(objects[0], color="green")
    assert similarity(scene, Scene((green, *objects[1:]))) == pytest.approx(1 - 0.3 / 3)
    assert similarity(scene, Scene(objects[1:])) == pytest.approx((2 / 3) ** 0.5)
    moved = replace(objects[0], cell=1)
    assert similarity(Scene(objects[:1]), Scene((moved,))) == pytest.approx(0.15)
    assert similarity(Scene(objects[:1]), Scene(objects[1:2])) == 0
