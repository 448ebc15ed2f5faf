"""Features: cosines that fall with everything that is lost or changed."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.shapes import Scene, SceneObject, features
from pytest_cepbench.datasets.shapes.scene import COLORS, DIMENSION, SHAPES, SIZES
from tests.datasets.shapes.strategies import drawn_scenes, scenes, similarity

WORDS: dict[str, tuple[str, ...]] = {"size": SIZES, "color": COLORS, "shape": SHAPES}


@given(scenes())
def test_vectors_are_usable_as_they_are(scene: Scene) -> None:
    """Every scene, the empty one too, has a non-negative vector that is not zero."""
    vector = features(scene)
    assert vector.shape == (DIMENSION,)
    assert (vector >= 0).all()
    assert np.linalg.norm(vector) >= 1 - 1e-12


@given(drawn_scenes())
def test_the_empty_scene_is_like_no_other(scene: Scene) -> None:
    """Losing everything leaves nothing."""
    assert similarity(scene, Scene()) == 0
    assert similarity(Scene(), Scene()) == 1


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


@given(drawn_scenes(), st.data())
def test_one_attribute_costs_less_in_a_larger_scene(scene: Scene, data: st.DataObject) -> None:
    """One attribute of one of n objects changed leaves at least 1 - 0.3 / n, and at most .95."""
    thing = data.draw(st.sampled_from(scene.objects))
    field = data.draw(st.sampled_from(list(WORDS)))
    others = [word for word in WORDS[field] if word != getattr(thing, field)]
    changed: dict[str, Any] = {field: data.draw(st.sampled_from(others))}
    rest = tuple(other for other in scene.objects if other != thing)
    value = similarity(scene, Scene((*rest, replace(thing, **changed))))
    assert 1 - 0.3 / len(scene.objects) - 1e-9 <= value <= 0.95


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
