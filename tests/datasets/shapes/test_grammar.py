"""Captions: exact to write, forgiving to read."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.shapes import Scene, SceneObject, caption, parse_caption
from tests.datasets.shapes.strategies import scenes

RED = SceneObject(3, "small", "red", "circle")
BLUE = SceneObject(8, "large", "blue", "square")


def test_captions_read_as_documented() -> None:
    """The wording is fixed: networks are trained on it."""
    assert caption(Scene()) == "no shapes"
    assert caption(Scene((RED,))) == "one shape : small red circle middle left"
    two = "two shapes : small red circle middle left , large blue square bottom right"
    assert caption(Scene((BLUE, RED))) == two


@given(scenes())
def test_every_caption_gives_its_scene_back(scene: Scene) -> None:
    """Reading is the inverse of writing, from no object to nine."""
    assert parse_caption(caption(scene)) == scene


@given(scenes(), st.randoms(use_true_random=False))
def test_case_and_spacing_are_forgiven(scene: Scene, random: Random) -> None:
    """Letters of any case and any white space between the words make no difference."""
    shouted = "".join(random.choice((letter, letter.upper())) for letter in caption(scene))
    spaced = re.sub(" ", lambda _: random.choice((" ", "  ", "\n", "\t ")), shouted)
    assert parse_caption(spaced) == scene


@given(st.text())
def test_no_text_is_refused(text: str) -> None:
    """Whatever a model says has a scene, and one that can be said again."""
    scene = parse_caption(text)
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


def test_the_first_claim_to_a_cell_wins() -> None:
    """A model that says two things of one place has said the first."""
    text = "small red circle middle left , large blue square middle left"
    assert parse_caption(text) == Scene((RED,))
