"""Outcomes that are neither text nor image: kinds of failures, masks, boxes and their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.artifacts import Detection, Detections, Failure, Mask
from pytest_cepbench.artifacts.outcome import FAILURE_KINDS

BOX = (1.0, 2.0, 3.0, 4.0)

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6)


@pytest.mark.parametrize("kind", sorted(FAILURE_KINDS))
def test_every_known_kind_can_be_told(kind: Any) -> None:
    """A failure is its kind and detail, and equal to another of the same."""
    assert Failure(kind, "why") == Failure(kind, "why") != Failure(kind)


def test_an_unknown_kind_is_refused_where_it_is_made() -> None:
    """A plug-in that invents a kind hears of it at once, with the nearest known one."""
    kind: Any = "empty-txt"
    with pytest.raises(ValueError, match=r"'empty-txt'\. Did you mean 'empty-text'"):
        Failure(kind)


@given(hnp.arrays(np.bool_, SHAPES))
def test_a_mask_gives_back_its_pixels(inside: npt.NDArray[np.bool_]) -> None:
    """Runs alternate from outside the object, and none but the first is empty."""
    mask = Mask.from_array(inside)
    assert (mask.height, mask.width) == inside.shape
    assert mask.to_array().tolist() == inside.tolist()
    assert all(mask.runs[1:])
    assert (mask.runs[0] == 0) == bool(inside[0, 0])


@pytest.mark.parametrize("runs", [(), (5,), (7,), (7, -1), (-1, 7)])
def test_runs_that_do_not_fill_the_image_are_refused(runs: tuple[int, ...]) -> None:
    """Fewer or more pixels than 2 x 3, or a run of less than none."""
    with pytest.raises(ValueError, match=r"do not fit 2 x 3"):
        Mask(2, 3, runs)


@pytest.mark.parametrize("score", [-0.1, 1.0001, 2.0, float("nan"), float("inf")])
def test_a_score_is_a_share(score: float) -> None:
    """0 and 1 are scores, nothing beyond them is."""
    assert [Detection("dog", limit, BOX).score for limit in (0.0, 1.0)] == [0.0, 1.0]
    with pytest.raises(ValueError, match=r"score lies in \[0, 1\], got"):
        Detection("dog", score, BOX)


@pytest.mark.parametrize(
    "box", [(3, 2, 1, 4), (1, 4, 3, 2), (float("nan"), 2, 3, 4), (1, 2, float("inf"), 4)]
)
def test_what_is_no_box_is_refused(box: tuple[float, float, float, float]) -> None:
    """Sides in the wrong order or without a place; a box of a line or a point is one."""
    assert Detection("dog", 0.5, (1, 2, 1, 2)).box == (1, 2, 1, 2)
    with pytest.raises(ValueError, match="a box is left, top, right, bottom in pixels, got"):
        Detection("dog", 0.5, box)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.text(max_size=3))))
def test_detections_come_by_confidence(scored: list[tuple[float, str]]) -> None:
    """Highest first; equally confident ones stay in the detector's order."""
    detections = [Detection(query, score, BOX) for score, query in scored]
    expected = [
        detection
        for score in (1.0, 0.5, 0.25, 0.0)
        for detection in detections
        if detection.score == score
    ]
    assert list(Detections.sort(detections).found) == expected
