"""Questions about scenes of the embedded world, and their answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.shapes import Scene, load_shapes, parse_caption
from pytest_cepbench.datasets.shapes.questions import answer_question, plural_of
from pytest_cepbench.datasets.shapes.samples import sample_scene
from pytest_cepbench.datasets.shapes.scene import COLORS, COUNTS, SHAPES, SIZES

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
