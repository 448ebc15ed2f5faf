"""Priors: mistakes that do not move when the scene does."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.edits import mirrored
from pytest_cepbench.datasets.shapes import (
    Degradation,
    Scene,
    SceneKnobs,
    SceneObject,
    degrade_scene,
    degrade_with_priors,
)
from tests.datasets.shapes.strategies import SEEDS, drawn_scenes, scenes

PROBABILITIES = st.floats(0, 1)


@given(scenes(), SEEDS, st.builds(Degradation, miss=PROBABILITIES, move=PROBABILITIES))
def test_without_priors_nothing_is_added(scene: Scene, seed: int, knobs: Degradation) -> None:
    """The other knobs act as they always have: no draw of theirs depends on the new ones."""
    expected = degrade_scene(scene, knobs, seed)
    assert degrade_with_priors(scene, knobs, seed) == expected
    assert degrade_with_priors(scene, SceneKnobs(**asdict(knobs)), seed) == expected


@given(scenes(), SEEDS)
def test_a_full_prior_makes_everything_red(scene: Scene, seed: int) -> None:
    """At 1 every object is red, and as it was in all other respects."""
    changed = degrade_with_priors(scene, SceneKnobs(prior=1.0), seed).objects
    assert [(own.cell, own.size, "red", own.shape) for own in scene.objects] == [
        (own.cell, own.size, own.color, own.shape) for own in changed
    ]


@given(drawn_scenes(at_least=1), SEEDS)
def test_a_full_left_does_not_tell_an_object_from_its_mirror_image(scene: Scene, seed: int) -> None:
    """At 1 a scene of one object is the same as its mirror image."""
    alone = Scene(scene.objects[:1])
    knobs = SceneKnobs(left=1.0)
    assert degrade_with_priors(alone, knobs, seed) == degrade_with_priors(
        mirrored(alone), knobs, seed
    )


@given(scenes(), SEEDS, PROBABILITIES, PROBABILITIES)
def test_a_higher_prior_keeps_what_a_lower_one_did(
    scene: Scene, seed: int, low: float, high: float
) -> None:
    """Objects that are red at the lower setting are so at the higher."""
    low, high = sorted((low, high))
    weak = degrade_with_priors(scene, SceneKnobs(prior=low), seed).objects
    strong = degrade_with_priors(scene, SceneKnobs(prior=high), seed).objects
    reds = {own.cell for own in weak if own.color == "red"}
    assert reds <= {own.cell for own in strong if own.color == "red"}


def test_objects_do_not_share_a_cell() -> None:
    """An object stays on the right where the left is taken."""
    pair = Scene(
        (SceneObject(0, "small", "red", "cross"), SceneObject(2, "large", "blue", "cross"))
    )
    assert degrade_with_priors(pair, SceneKnobs(left=1.0), 0) == pair


def test_a_prior_is_a_probability() -> None:
    """Another number is refused by the name of its knob."""
    with pytest.raises(ValueError, match="left is a probability"):
        SceneKnobs(left=2.0)
