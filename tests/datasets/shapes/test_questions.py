"""Questions about scenes and their answers, and the facts of scenes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given

from pytest_cepbench.datasets.shapes import Scene, SceneObject, parse_caption
from pytest_cepbench.datasets.shapes.questions import answer_question, scene_facts
from tests.datasets.shapes.strategies import drawn_scenes

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
