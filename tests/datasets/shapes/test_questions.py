"""Questions about scenes and their answers, and the facts of scenes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.shapes import (
    Scene,
    SceneObject,
    caption,
    load_shapes,
    parse_caption,
    parse_image,
    render,
)
from pytest_cepbench.datasets.shapes.questions import (
    answer_question,
    plural_of,
    scene_facts,
)
from pytest_cepbench.datasets.shapes.samples import sample_scene
from pytest_cepbench.datasets.shapes.scene import COLORS, COUNTS, SHAPES, SIZES
from tests.datasets.shapes.strategies import SEEDS, drawn_scenes

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


SCENES = st.sampled_from([sample_scene(s) for s in load_shapes(samples_per_category=12).samples])


@given(SCENES, st.sampled_from(SHAPES), st.sampled_from(COLORS), st.sampled_from(SIZES))
def test_counts_and_presence_agree(scene: Scene, shape: str, color: str, size: str) -> None:
    """There are any where the count is not zero; a narrower noun never has more."""
    noun = plural_of(shape)
    counts = [
        ("zero", *COUNTS).index(str(answer_question(scene, f"How many {words} are in the image?")))
        for words in (noun, f"{color} {noun}", f"{size} {color} {noun}")
    ]
    assert counts == sorted(counts, reverse=True)
    present = answer_question(scene, f"Are there any {color} {noun} in the image?")
    assert present == ("yes" if counts[1] else "no")
    assert counts[0] == sum(thing.shape == shape for thing in scene.objects)


PAIR = Scene((SceneObject(0, "small", "red", "circle"), SceneObject(8, "large", "blue", "square")))


def _lost(scene: Scene, other: Scene) -> dict[str, int]:
    gone = set(scene_facts(scene)) - set(scene_facts(other))
    return dict(Counter(fact.kind for fact in gone))


def test_the_facts_of_two_objects() -> None:
    """One count, and of each object its shape, color, size and place; one relation."""
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


def test_another_color_costs_color_and_relation_only() -> None:
    """Facts are atomic: one changed attribute leaves the others as they are."""
    exchanged = Scene(tuple(replace(t, cell=8 - t.cell) for t in PAIR.objects))
    assert _lost(PAIR, exchanged) == {"relation": 1}
    first, second = PAIR.objects
    recolored = Scene((replace(first, color="green"), second))
    assert _lost(PAIR, recolored) == {"color": 1, "relation": 1}
    moved = Scene((replace(first, cell=3), second))
    assert _lost(PAIR, moved) == {"position": 1}
    resized = Scene((replace(first, size="large"), second))
    assert _lost(PAIR, resized) == {"size": 1, "relation": 1}
    assert _lost(PAIR, Scene((second,))) == {
        "count": 1, "object": 1, "color": 1, "size": 1, "position": 1, "relation": 1,
    }  # fmt: skip


@given(drawn_scenes(), drawn_scenes())
def test_different_scenes_have_different_facts(scene: Scene, other: Scene) -> None:
    """Facts say all there is: nothing that changes a drawn scene goes unseen."""
    assert (scene == other) == (scene_facts(scene) == scene_facts(other))


@given(drawn_scenes(), SEEDS)
def test_text_and_picture_have_the_facts_of_their_scene(scene: Scene, seed: int) -> None:
    """Read by the grammar and by the rules of sight, without any error of their own."""
    facts = scene_facts(scene)
    assert scene_facts(parse_caption(caption(scene))) == facts
    assert scene_facts(parse_image(render(scene, seed))) == facts
