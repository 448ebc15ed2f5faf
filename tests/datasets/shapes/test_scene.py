"""Scenes of the shapes world: captions, vectors, facts, knobs; what is seen in their pixels."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from math import dist
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image, ImageFilter

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import (
    Degradation,
    Scene,
    SceneObject,
    caption,
    degrade_scene,
    is_blank,
    load_shapes,
    object_boxes,
    parse_caption,
    parse_image,
    render,
)
from pytest_cepbench.datasets.shapes.degrade import KNOB_NAMES
from pytest_cepbench.datasets.shapes.parser import read_picture
from pytest_cepbench.datasets.shapes.questions import answer_question, scene_facts
from pytest_cepbench.datasets.shapes.scene import CELLS, COLORS, MAX_OBJECTS, SHAPES, SIZES, draw
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


# -- seeing: pixels read back as scenes, boxes of objects, and what they leave over ----------------


def test_every_sample_of_a_large_data_set_is_seen_exactly() -> None:
    """Thirty drawn scenes of every family, each with a jitter of its own."""
    samples = load_shapes(30, seed=1).samples
    seen = [parse_image(sample.image.load()) for sample in samples if sample.image]
    assert seen == [parse_caption(sample.text or "") for sample in samples]


@pytest.mark.slow
@given(scenes(), st.lists(st.sampled_from((-1.0, 0.0, 1.0)), min_size=27, max_size=27))
@settings(max_examples=200)
def test_extreme_jitter_is_seen_exactly(scene: Scene, jitter: list[float]) -> None:
    """Objects that touch their neighbors' cells as far as they ever do are still told apart."""
    assert parse_image(draw(scene, np.array(jitter).reshape(CELLS, 3))) == scene


@given(scenes(), SEEDS, st.sampled_from((128, 192, 512)))
def test_larger_images_are_brought_to_size(scene: Scene, seed: int, side: int) -> None:
    """A generator that draws larger is read just as well."""
    large = render(scene, seed).to_pil().resize((side, side), Image.Resampling.BICUBIC)
    assert parse_image(ImageArtifact.from_pil(large)) == scene


@pytest.mark.parametrize("spoil", ["noise", "blur", "pale", "gray ground"])
def test_small_damage_is_forgiven(spoil: str) -> None:
    """Noise, blur and shifts of level of the size that small diffusion models leave."""
    rng = np.random.Generator(np.random.PCG64(0))
    for sample in load_shapes(8).samples:
        assert sample.image
        image = sample.image.load()
        pixels = image.pixels / 255
        if spoil == "noise":
            pixels = pixels + rng.normal(0, 0.06, pixels.shape)
        elif spoil == "blur":
            pixels = np.asarray(image.to_pil().filter(ImageFilter.GaussianBlur(0.8))) / 255
        elif spoil == "pale":
            pixels = 0.1 + (pixels - 0.1) * 0.85
        else:
            pixels = pixels + 0.04
        spoilt = ImageArtifact((pixels.clip(0, 1) * 255).astype(np.uint8))
        assert parse_image(spoilt) == parse_image(image)


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 90), st.integers(1, 90), st.just(3))))
def test_no_image_is_refused(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
    """Any image of any size has a scene, the same at every look."""
    image = ImageArtifact(pixels)
    assert parse_image(image) == parse_image(image)


TOUCHING = Scene(
    (SceneObject(7, "large", "yellow", "triangle"), SceneObject(8, "large", "green", "circle"))
)
"""Each reaches into the other's cell, no farther from its center than its own corners do."""

STACKED = Scene(
    (
        SceneObject(1, "large", "yellow", "cross"),
        SceneObject(2, "large", "cyan", "triangle"),
        SceneObject(5, "large", "cyan", "triangle"),
    )
)
"""The tip of one triangle reaches into the cell of the other, below its base."""


@given(scenes(), SEEDS)
@example(TOUCHING, 37)
@example(STACKED, 1168782040)
def test_every_object_has_its_own_box(scene: Scene, seed: int) -> None:
    """In a crowd as when drawn alone, to a pixel; all objects, in the order of their cells."""
    boxes = object_boxes(render(scene, seed))
    assert tuple(located.what for located in boxes) == scene.objects
    empty = render(Scene(), seed).pixels.astype(float)
    for located in boxes:
        # That of the pixels which the object, drawn alone, changes to more than one half.
        alone = render(Scene((located.what,)), seed).pixels.astype(float)
        change = np.abs(alone - empty).max(axis=2)
        rows, columns = np.nonzero(change >= change.max() / 2)
        drawn = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        assert located.box == pytest.approx(drawn, abs=1.0)


@given(scenes(at_least=1), SEEDS, st.sampled_from([(128, 128), (192, 64), (320, 256)]))
def test_boxes_are_in_the_pixels_of_the_image(
    scene: Scene, seed: int, size: tuple[int, int]
) -> None:
    """A generator that draws larger, or not square, has its boxes where its own pixels are."""
    small = render(scene, seed)
    large = ImageArtifact.from_pil(small.to_pil().resize(size, Image.Resampling.NEAREST))
    scale = np.array([size[0], size[1], size[0], size[1]]) / 64
    for located, other in zip(object_boxes(small), object_boxes(large), strict=True):
        assert other.box == pytest.approx(tuple(np.array(located.box) * scale))


def test_what_no_world_draws_has_a_box_too() -> None:
    """A ring leaves its middle free, where its center of mass lies: its box is around all of it."""
    down, across = np.indices((64, 64)) - 10.0
    ring = np.abs(np.hypot(across, down) - 9.0) < 1.0
    pixels = np.full((64, 64, 3), 25, np.uint8)
    pixels[ring] = (235, 41, 41)
    (boxes,) = object_boxes(ImageArtifact(pixels))
    assert boxes.box == (1.0, 1.0, 20.0, 20.0)


@given(drawn_scenes(), SEEDS)
def test_drawings_are_explained(scene: Scene, seed: int) -> None:
    """A drawing differs from the one that is fitted to it by less than a level in 64; an object
    stays where it is when another is lost, by less than half of the pixel that counts as moved.
    """
    picture = read_picture(render(scene, seed))
    assert picture.scene == scene
    assert picture.residual < 1 / 64
    after = read_picture(render(Scene(scene.objects[1:]), seed)).centers
    assert all(dist(picture.centers[cell], center) < 0.5 for cell, center in after.items())


def test_black_and_noise_are_not_explained() -> None:
    """What is no drawing of the world leaves more than a good drawing does."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    assert read_picture(ImageArtifact(noise)).residual > 0.2
    assert read_picture(ImageArtifact(np.zeros((64, 64, 3), np.uint8))).residual > 0.09
    assert read_picture(render(Scene(), 0)).residual < 0.01
