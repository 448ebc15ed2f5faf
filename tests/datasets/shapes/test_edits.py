"""Edits of scenes: each changes what its name says, in any answer that has what is edited."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.edits import (
    SCENE_EDITS,
    SceneEdit,
    choose_edit,
    mirrored,
    scene_facts,
)
from pytest_cepbench.datasets.shapes import Scene, SceneObject
from tests.datasets.shapes.strategies import drawn_scenes, scenes

IDS = st.text(max_size=8)

CROSS = SceneObject(0, "small", "red", "cross")
SQUARE = SceneObject(5, "large", "blue", "square")
BOTH = Scene((CROSS, SQUARE))


@given(scenes())
def test_mirrored_twice_is_the_scene(scene: Scene) -> None:
    """Left and right change places, rows stay, and nothing is lost."""
    other = mirrored(scene)
    assert mirrored(other) == scene
    assert sorted(own.look for own in other.objects) == sorted(own.look for own in scene.objects)
    assert sorted(own.row for own in other.objects) == sorted(own.row for own in scene.objects)


@pytest.mark.parametrize("name", SCENE_EDITS)
@given(scene=drawn_scenes(at_least=0), sample_id=IDS)
def test_an_edit_changes_one_thing(name: str, scene: Scene, sample_id: str) -> None:
    """The number of facts that go and come is what the name says; the same for the same sample."""
    edit = choose_edit(name, scene, sample_id)
    assert edit == choose_edit(name, scene, sample_id)
    if edit is None:
        return
    edited = edit.apply(scene)
    assert edited is not None
    before, after = scene_facts(scene), scene_facts(edited)
    gone, came = len(before - after), len(after - before)
    counts = {"move": (3, 3), "recolor": (1, 1), "remove": (3, 0), "redraw": (0, 0)}
    if name == "mirror":
        assert gone == came > 0
    else:
        assert (gone, came) == counts[name]


@given(scene=drawn_scenes(), sample_id=IDS, name=st.sampled_from(SCENE_EDITS))
def test_an_edit_is_read_back_from_its_target(scene: Scene, sample_id: str, name: str) -> None:
    """What a sample carries of its edit is all of it."""
    edit = choose_edit(name, scene, sample_id)
    assert edit is None or SceneEdit.read(name, edit.target) == edit


def test_scenes_that_an_edit_leaves_as_they_are() -> None:
    """A symmetric scene has no mirror image of its own, and a single object is not taken away."""
    middle = Scene((SceneObject(4, "small", "red", "cross"),))
    pair = Scene((CROSS, SceneObject(2, "small", "red", "cross")))
    assert choose_edit("mirror", middle, "a") is None
    assert choose_edit("mirror", pair, "a") is None
    assert choose_edit("remove", middle, "a") is None
    assert all(choose_edit(name, Scene(), "a") is None for name in SCENE_EDITS)


def test_an_object_is_meant_by_its_cell_then_by_its_look() -> None:
    """An answer that misplaces it can be edited; one with two such objects, or none, cannot."""
    edit = SceneEdit("recolor", CROSS, color="green")
    assert edit.apply(BOTH) == Scene((SceneObject(0, "small", "green", "cross"), SQUARE))
    elsewhere = SceneObject(8, "small", "red", "cross")
    assert edit.apply(Scene((elsewhere,))) == Scene((SceneObject(8, "small", "green", "cross"),))
    wrong = SceneObject(0, "large", "cyan", "circle")
    assert edit.apply(Scene((wrong, elsewhere))) == Scene(
        (SceneObject(0, "large", "green", "circle"), elsewhere)
    )
    assert edit.apply(Scene((elsewhere, SceneObject(7, "small", "red", "cross")))) is None
    assert edit.apply(Scene((SQUARE,))) is None


def test_an_object_takes_the_place_of_another() -> None:
    """Where an answer has an object in the cell to which one moves, the edited answer has one."""
    edit = SceneEdit("move", CROSS, cell=5)
    assert edit.apply(BOTH) == Scene((SceneObject(5, "small", "red", "cross"),))
