"""Scenes and objects: canonical order and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_cepbench.datasets.shapes import Scene, SceneObject

CIRCLE = SceneObject(4, "small", "red", "circle")


def test_order_of_objects_does_not_matter() -> None:
    """Two scenes of the same objects are equal, and list them by cell."""
    other = replace(CIRCLE, cell=1)
    assert Scene((CIRCLE, other)) == Scene((other, CIRCLE))
    assert [thing.cell for thing in Scene((CIRCLE, other)).objects] == [1, 4]


def test_two_objects_in_a_cell_are_refused() -> None:
    """A cell holds one object, so that a place names an object."""
    with pytest.raises(ValueError, match=r"a cell holds one object, got cells \[4, 4\]"):
        Scene((CIRCLE, replace(CIRCLE, color="blue")))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("size", "huge", "'huge' is not one of small, large"),
        ("color", "pink", "'pink' is not one of red"),
        ("shape", "star", "'star' is not one of circle"),
        ("cell", 9, "cell 9 is not in 0..8"),
        ("cell", -1, "cell -1 is not in 0..8"),
    ],
)
def test_objects_outside_of_the_world_are_refused(field: str, value: Any, message: str) -> None:
    """An object that no caption could name cannot be made."""
    with pytest.raises(ValueError, match=message):
        replace(CIRCLE, **{field: value})


def test_rows_and_columns_count_from_the_top_left() -> None:
    """Cell 5 is the last of the middle row."""
    thing = replace(CIRCLE, cell=5)
    assert (thing.row, thing.column) == (1, 2)
