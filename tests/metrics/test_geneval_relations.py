"""Where a box lies to another: by hand, against a plain reference, by properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_cepbench.metrics.geneval import relations

Box = tuple[float, float, float, float]

COORDINATES = st.floats(0, 1000).map(lambda x: round(x, 2))


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    """Boxes of an image, empty ones too."""
    left, right = sorted((draw(COORDINATES), draw(COORDINATES)))
    top, bottom = sorted((draw(COORDINATES), draw(COORDINATES)))
    return left, top, right, bottom


def around(x: float, y: float, side: float = 20.0) -> Box:
    """A square box around a center."""
    return x - side / 2, y - side / 2, x + side / 2, y + side / 2


HERE = around(500, 500)


def reference(subject: Box, target: Box, share: float, least: float) -> set[str]:
    """The rule in vectors: offset of the centers, less the margin, over the offset's length."""
    a, b = np.array(subject).reshape(2, 2), np.array(target).reshape(2, 2)
    offset = a.mean(axis=0) - b.mean(axis=0)
    margin = share * ((a[1] - a[0]) + (b[1] - b[0]))
    revised = np.where(np.abs(offset) > margin, offset - np.sign(offset) * margin, 0.0)
    if (np.abs(revised) < 1e-3).all():
        return set()
    x, y = revised / np.linalg.norm(offset)
    # On the threshold itself the last bit of the distance decides.
    assume(min(abs(abs(x) - least), abs(abs(y) - least)) > 1e-12)
    names = {"left of": x < -least, "right of": x > least, "above": y < -least, "below": y > least}
    return {name for name, holds in names.items() if holds}


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (around(400, 500), {"left of"}),
        (around(600, 500), {"right of"}),
        (around(500, 400), {"above"}),
        (around(500, 600), {"below"}),
    ],
)
def test_the_four_sides(subject: Box, expected: set[str]) -> None:
    """Y grows downward."""
    assert relations(subject, HERE) == expected


def test_a_diagonal_has_two_relations() -> None:
    """At 45 degrees each direction has 0.71 of the distance, less the margin: above 0.5."""
    assert relations(around(400, 400), HERE) == {"left of", "above"}
    assert relations(around(600, 400), HERE) == {"right of", "above"}


def test_a_steep_offset_has_one_relation() -> None:
    """Twenty degrees off the vertical: the sine is 0.34."""
    assert relations(around(500 + 36.4, 600), HERE) == {"below"}


def test_a_close_diagonal_has_none() -> None:
    """Large boxes take so much margin that neither direction keeps half of the distance."""
    # 14 - 0.1 * 40 = 10 of 19.8 along each axis; with boxes of 25, 14 - 5 = 9.
    assert relations(around(514, 514), HERE) == {"right of", "below"}
    assert relations(around(514, 514, 25), around(500, 500, 25)) == frozenset()


def test_boxes_within_the_margin_have_none() -> None:
    """Centers less than a tenth of the summed sizes apart are in the same place."""
    assert relations(HERE, HERE) == frozenset()
    assert relations(around(504, 500), HERE) == frozenset()
    assert relations(around(504.0005, 500), HERE) == frozenset()


def test_just_beyond_the_margin_the_whole_distance_counts() -> None:
    """What is left of the offset is weighed against all of it: twice the margin is needed."""
    assert relations(around(507.9, 500), HERE) == frozenset()
    assert relations(around(508.1, 500), HERE) == {"right of"}


def test_touching_boxes_are_apart_enough() -> None:
    """Side by side, each 20 wide: 20 - 4 of 20."""
    assert relations(around(520, 500), HERE) == {"right of"}


@given(boxes(), boxes(), st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from([0.3, 0.5, 0.7]))
def test_relations_are_the_reference_rule(
    subject: Box, target: Box, share: float, least: float
) -> None:
    """On any boxes, thresholds included."""
    result = relations(subject, target, position_threshold=share, min_offset=least)
    assert result == reference(subject, target, share, least)


@given(boxes(), boxes())
def test_the_other_way_round_is_the_opposite(subject: Box, target: Box) -> None:
    """Right of what is left of it."""
    opposite = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
    assert {opposite[relation] for relation in relations(subject, target)} == relations(
        target, subject
    )


def test_the_released_mgg_code_finds_more() -> None:
    """Six pixels to the left, net of the margin, are "left of" beside 300 above."""
    subject = around(500 - 6 - 4, 200)
    assert relations(subject, HERE) == {"above"}
    assert relations(subject, HERE, in_pixels=True) == {"above", "left of"}


def test_the_released_mgg_code_compares_pixels_with_one_half() -> None:
    """Strictly more than half a pixel beyond the margin."""
    assert relations(around(504.5, 500), HERE, in_pixels=True) == frozenset()
    assert relations(around(504.75, 500), HERE, in_pixels=True) == {"right of"}


@given(boxes(), boxes())
def test_the_released_mgg_code_never_finds_less(subject: Box, target: Box) -> None:
    """Half of a distance of a pixel or more is at least half a pixel."""
    across = (subject[0] + subject[2] - target[0] - target[2]) / 2
    down = (subject[1] + subject[3] - target[1] - target[3]) / 2
    assume(np.hypot(across, down) >= 1)
    assert relations(subject, target) <= relations(subject, target, in_pixels=True)
