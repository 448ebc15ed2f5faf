"""Knobs: what each makes worse."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.shapes import Degradation, Scene, SceneObject, degrade_scene, is_blank
from pytest_cepbench.datasets.shapes.degrade import KNOB_NAMES
from pytest_cepbench.datasets.shapes.scene import CELLS
from tests.datasets.shapes.strategies import SEEDS, scenes

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


@given(scenes(), SEEDS)
def test_knobs_at_zero_change_nothing(scene: Scene, seed: int) -> None:
    """No knob turned is no distortion, whatever the seed."""
    assert degrade_scene(scene, Degradation(), seed) == scene
    assert not is_blank(Degradation(), seed)


@pytest.mark.parametrize("name", PER_OBJECT)
@given(scene=scenes(), seed=SEEDS, low=PROBABILITIES, high=PROBABILITIES)
def test_a_higher_knob_keeps_what_a_lower_one_did(
    name: str, scene: Scene, seed: int, low: float, high: float
) -> None:
    """Objects that differ at the lower setting are the same, in the same way, at the higher."""
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


@pytest.mark.parametrize("value", [-0.01, 1.01, math.nan, math.inf])
@pytest.mark.parametrize("name", KNOB_NAMES)
def test_what_is_no_probability_is_refused_by_name(name: str, value: float) -> None:
    """The message names the knob, the range and the value."""
    with pytest.raises(ValueError, match=rf"{name} is a probability in \[0, 1\], got {value}"):
        knobs(name, value)
