"""Scenes of the shapes world: captions, vectors, questions and facts, and what knobs make worse."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.shapes import (
    Degradation,
    Scene,
    SceneObject,
    caption,
    degrade_scene,
    is_blank,
    parse_caption,
)
from pytest_cepbench.datasets.shapes.degrade import KNOB_NAMES
from pytest_cepbench.datasets.shapes.questions import answer_question, scene_facts
from pytest_cepbench.datasets.shapes.scene import CELLS, COLORS, MAX_OBJECTS, SHAPES, SIZES
from tests.datasets.shapes.strategies import SEEDS, drawn_scenes, scenes, similarity

CIRCLE = SceneObject(4, "small", "red", "circle")


def test_objects_outside_of_the_world_are_refused() -> None:
    """An object that no caption could name cannot be made, nor two in a cell."""
    for field, value, message in (
        ("size", "huge", "'huge' is not one of small, large"),
        ("color", "pink", "'pink' is not one of red"),
        ("shape", "star", "'star' is not one of circle"),
        ("cell", 9, r"cell 9 is not in 0\.\.8"),
        ("cell", -1, r"cell -1 is not in 0\.\.8"),
    ):
        other: dict[str, Any] = {field: value}
        with pytest.raises(ValueError, match=message):
            replace(CIRCLE, **other)
    with pytest.raises(ValueError, match=r"a cell holds one object, got cells \[4, 4\]"):
        Scene((CIRCLE, replace(CIRCLE, color="blue")))


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
def test_different_scenes_differ_in_features_and_facts(first: Scene, second: Scene) -> None:
    """A difference between two scenes is never invisible; facts say all there is of drawn ones."""
    assert (similarity(first, second) > 1 - 1e-9) == (first == second)
    drawn, other = (Scene(scene.objects[:MAX_OBJECTS]) for scene in (first, second))
    assert (drawn == other) == (scene_facts(drawn) == scene_facts(other))


@given(drawn_scenes(), st.data())
def test_each_further_change_lowers_the_similarity(scene: Scene, data: st.DataObject) -> None:
    """Whatever the objects and the order in which they are lost; whatever the attributes, the order
    in which they change, and what they become.
    """
    order = data.draw(st.permutations(scene.objects))
    values = [similarity(scene, Scene(tuple(order[k:]))) for k in range(len(order) + 1)]
    assert (np.diff(values) < -0.01).all()
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


# -- questions and facts --------------------------------------------------------------------------

SCENE = parse_caption(
    "three shapes : large red circle top left , small red cross middle right , "
    "small blue cross bottom center"
)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How many crosses are in the image?", "two"),
        ("How many small red crosses are in the image? Answer in one word.", "one"),
        ("how many SHAPES are in the image?", "three"),
        ("How many squares are in the image?", "zero"),
        ("Are there any circles in the image?", "yes"),
        ("Is there a circle in the image?", "yes"),
        ("Are there any blue circles in the image?", "no"),
        ("Is the circle red?", "yes"),
        ("Are the crosses small?", "yes"),
        ("Are the crosses red?", "no"),
        ("Is the square red?", "no"),
        ("Is the circle left of the cross?", "yes"),
        ("Is the circle above the crosses?", "yes"),
        ("Is the blue cross right of the red cross?", "no"),
        ("Is the circle above the square?", "no"),
        ("Is the circle happy?", None),
        ("What is it?", None),
        ("", None),
    ],
)
def test_questions_are_answered_by_the_scene(question: str, answer: str | None) -> None:
    """In GenEval 2's words; what is no question of the grammar has no answer."""
    assert answer_question(SCENE, question) == answer


PAIR = Scene((SceneObject(0, "small", "red", "circle"), SceneObject(8, "large", "blue", "square")))


def test_the_facts_of_two_objects() -> None:
    """One count, and of each object its shape, color, size and place; one relation. Facts are
    atomic: one changed attribute leaves the others as they are.
    """
    assert [f"{fact.kind}: {fact}" for fact in scene_facts(PAIR)] == [
        "color: blue",
        "color: red",
        "count: two shapes",
        "object: circle",
        "object: square",
        "position: bottom right",
        "position: top left",
        "relation: small red circle above left of large blue square",
        "size: large",
        "size: small",
    ]
    first, second = PAIR.objects
    for objects, kinds in (
        ((replace(first, cell=8), replace(second, cell=0)), "relation"),
        ((replace(first, color="green"), second), "color relation"),
        ((replace(first, cell=3), second), "position"),
        ((replace(first, size="large"), second), "relation size"),
        ((second,), "color count object position relation size"),
    ):
        gone = {*scene_facts(PAIR)} - {*scene_facts(Scene(objects))}
        assert " ".join(sorted(fact.kind for fact in gone)) == kinds


# -- knobs -----------------------------------------------------------------------------------------

PER_OBJECT = ("miss", "recolor", "reshape", "resize", "move")
PROBABILITIES = st.floats(0, 1)

FOUR = Scene(
    (
        SceneObject(0, "small", "red", "circle"),
        SceneObject(2, "large", "blue", "square"),
        SceneObject(4, "small", "green", "cross"),
        SceneObject(7, "large", "cyan", "triangle"),
    )
)


def knobs(name: str, value: float) -> Degradation:
    """One knob turned, the others at zero."""
    return replace(Degradation(), **{name: value})


@given(st.sampled_from(PER_OBJECT), scenes(), SEEDS, PROBABILITIES, PROBABILITIES)
def test_a_higher_knob_keeps_what_a_lower_one_did(
    name: str, scene: Scene, seed: int, low: float, high: float
) -> None:
    """Objects that differ at the lower setting are the same, in the same way, at the higher. No
    knob turned is no distortion, whatever the seed.
    """
    assert degrade_scene(scene, Degradation(), seed) == scene
    assert not is_blank(Degradation(), seed)
    low, high = sorted((low, high))
    original = set(scene.objects)
    weak = set(degrade_scene(scene, knobs(name, low), seed).objects)
    strong = set(degrade_scene(scene, knobs(name, high), seed).objects)
    assert original - weak <= original - strong
    assert weak - original <= strong - original


@given(scenes(at_least=1), SEEDS)
def test_full_knobs_change_every_object_in_their_own_respect(scene: Scene, seed: int) -> None:
    """At 1 each knob changes all objects, and only what its name says."""
    assert degrade_scene(scene, knobs("miss", 1), seed) == Scene()
    for name, field in (("recolor", "color"), ("reshape", "shape"), ("resize", "size")):
        result = degrade_scene(scene, knobs(name, 1), seed)
        for before, after in zip(scene.objects, result.objects, strict=True):
            assert getattr(before, field) != getattr(after, field)
            restored: dict[str, Any] = {field: getattr(before, field)}
            assert replace(after, **restored) == before
    moved = degrade_scene(scene, knobs("move", 1), seed)
    looks = sorted(thing.look for thing in scene.objects)
    assert sorted(thing.look for thing in moved.objects) == looks
    stayed = {thing.cell for thing in scene.objects} & {thing.cell for thing in moved.objects}
    assert len(stayed) == max(0, 2 * len(scene.objects) - CELLS)


@given(scenes(), SEEDS)
def test_a_swap_exchanges_two_objects_that_differ(scene: Scene, seed: int) -> None:
    """A swap is always visible, and happens wherever one can be."""
    result = degrade_scene(scene, knobs("swap", 1), seed)
    changed = set(scene.objects) ^ set(result.objects)
    different = len({thing.look for thing in scene.objects}) > 1
    assert len(changed) == (4 if different else 0)
    assert [thing.cell for thing in result.objects] == [thing.cell for thing in scene.objects]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PER_OBJECT, "swap", "blank"])
@pytest.mark.parametrize("value", [0.05, 0.3, 0.9])
def test_knobs_act_at_their_rate(name: str, value: float) -> None:
    """Over many seeds the share of distorted objects, scenes or answers is the knob's value."""
    rounds = 3000
    if name == "blank":
        hits = [float(is_blank(knobs(name, value), seed)) for seed in range(rounds)]
    else:
        results = [degrade_scene(FOUR, knobs(name, value), seed) for seed in range(rounds)]
        whole = 2 if name == "swap" else 4
        hits = [len(set(FOUR.objects) - set(result.objects)) / whole for result in results]
    assert np.mean(hits) == pytest.approx(value, abs=4 * math.sqrt(value * (1 - value) / rounds))


def test_what_is_no_probability_is_refused_by_name() -> None:
    """The message names the knob, the range and the value. What one decides stays what it was."""
    assert [s for s in range(12) if is_blank(knobs("blank", 0.5), s)] == [2, 3, 4, 5, 7]
    for name, value in product(KNOB_NAMES, (-0.01, 1.01, math.nan, math.inf)):
        with pytest.raises(ValueError, match=rf"{name} is a probability in \[0, 1\], got {value}"):
            knobs(name, value)
