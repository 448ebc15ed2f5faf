"""Which detections the rules look at: thresholds, limits, overlaps."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import pytest

from pytest_cepbench.artifacts import Detection
from pytest_cepbench.metrics.geneval import judge
from pytest_cepbench.metrics.geneval_prompts import (
    Clause,
    Exclusion,
    Prompt,
    SelectionSettings,
    keep_objects,
)
from tests.metrics.geneval_scenes import (
    DOG,
    RED_DOG,
    counting,
    many,
    right,
    seen,
)


@pytest.mark.parametrize(("score", "expected"), [(0.3, False), (0.3000001, True), (0.0, False)])
def test_scores_must_exceed_the_threshold(score: float, expected: bool) -> None:
    """Strictly."""
    assert right(DOG, {"dog": many("dog", score)}) is expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((0.95, 0.91), True),
        ((0.95, 0.9), False),
        ((0.95, 0.91, 0.9, 0.5), True),
        ((0.95, 0.92, 0.91), False),
        ((0.95,), False),
        ((), False),
    ],
)
def test_counting_is_exact_among_the_sure(scores: tuple[float, ...], expected: bool) -> None:
    """Only detections above 0.9 count, for too few and for too many."""
    assert right(counting(2), {"dog": many("dog", *scores)}) is expected


def test_too_many_is_said() -> None:
    """With the number that was found."""
    outcome = judge(counting(2), {"dog": many("dog", 0.95, 0.92, 0.91)}, {})
    assert outcome.reasons == ("fewer than 3 dog expected, 3 found",)


def test_the_counting_threshold_is_for_counting_alone() -> None:
    """The same clauses under another task are judged above 0.3."""
    prompt = Prompt("two_object", (Clause("dog", 2),), (Exclusion("dog", 3),))
    assert right(prompt, {"dog": many("dog", 0.5, 0.4)})
    assert not right(prompt, {"dog": many("dog", 0.5, 0.4, 0.31)})


def test_no_more_than_sixteen_are_looked_at() -> None:
    """Seventeen sure dogs are sixteen: a limit of the rules that is kept."""
    crowd = {"dog": many("dog", *[0.95] * 17)}
    assert right(counting(16), crowd)
    assert not right(counting(17), crowd)
    assert right(counting(17), crowd, SelectionSettings(max_objects=17))


def test_the_order_given_does_not_matter() -> None:
    """Detections are sorted by score before any is looked at."""
    sure, unsure = seen("dog", 0.9, color="red"), seen("dog", 0.5, color="blue")
    assert right(RED_DOG, {"dog": [unsure, sure]})
    assert right(RED_DOG, {"dog": [sure, unsure]})


@pytest.mark.parametrize("beside", [(), (0.9,), (0.4, 0.9), (0.9, 0.4, 0.95, 0.35)])
def test_equally_sure_ones_stay_in_the_order_of_the_detector(beside: tuple[float, ...]) -> None:
    """The same on every machine, whatever else is found: an unstable sort has no fixed first."""
    equal = [seen("dog", 0.6, 100 * place) for place in range(5)]
    others = [seen("dog", score, 1000 + 100 * place) for place, score in enumerate(beside)]
    mixed = [
        detection
        for pair in zip_longest(equal, others)
        for detection in pair
        if detection is not None
    ]
    kept = keep_objects(DOG, {"dog": mixed}, SelectionSettings())["dog"]
    assert [detection for detection in kept if detection.score == 0.6] == equal


@pytest.mark.parametrize(
    ("max_overlap", "expected"), [(1.0, 3), (0.75, 2), (0.5, 2), (0.05, 1), (0.0, 1)]
)
def test_overlapping_boxes_are_dropped_only_below_a_limit_of_1(
    max_overlap: float, expected: int
) -> None:
    """Boxes of 20 pixels, 2 apart: 21 * 19 of 2 * 21 * 21 - 21 * 19 is 0.83; 12 apart, 0.27."""
    result = {"dog": [seen("dog", 0.9, 100), seen("dog", 0.8, 102), seen("dog", 0.7, 112)]}
    assert right(counting(expected), result, _overlapping(max_overlap))


def test_boxes_that_overlap_as_much_as_the_limit_are_dropped() -> None:
    """What stays overlaps by less: the same box twice is one even at 0.99, and two at 1."""
    result = {"dog": [seen("dog", 0.9), seen("dog", 0.8)]}
    assert right(counting(1), result, _overlapping(0.99))
    assert right(counting(2), result, _overlapping(1.0))
    # 10 by 10 pixels, 5 apart: 50 of 150.
    half = [Detection("dog", 0.9, (0, 0, 9, 9)), Detection("dog", 0.8, (5, 0, 14, 9))]
    assert right(counting(1), {"dog": half}, _overlapping(50 / 150))
    assert right(counting(2), {"dog": half}, _overlapping(0.34))


def test_what_a_dropped_box_overlaps_is_kept() -> None:
    """Greedy, from the surest: a box is dropped for a kept one alone."""
    result = {"dog": [seen("dog", 0.9, 100), seen("dog", 0.8, 108), seen("dog", 0.7, 116)]}
    assert right(counting(2), result, _overlapping(0.4))


def test_the_limit_comes_before_the_overlap() -> None:
    """What the sixteen surest are is settled first, even where some of them are the same dog."""
    result = {"dog": [seen("dog", 0.9), seen("dog", 0.8), seen("dog", 0.7, 300)]}
    limited = SelectionSettings(counting_threshold=0.3, max_overlap=0.5, max_objects=2)
    assert right(counting(1), result, limited)


def _overlapping(max_overlap: float) -> SelectionSettings:
    return SelectionSettings(counting_threshold=0.3, max_overlap=max_overlap)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.5}, r"threshold lies in \[0, 1\], got 1.5"),
        ({"counting_threshold": -0.1}, r"counting_threshold lies in \[0, 1\], got -0.1"),
        ({"max_overlap": float("nan")}, r"max_overlap lies in \[0, 1\], got nan"),
        ({"position_threshold": -1.0}, "position_threshold is not negative, got -1.0"),
        ({"min_offset": float("nan")}, "min_offset is not negative, got nan"),
        ({"max_objects": 0}, "max_objects is at least 1, got 0"),
        ({"variant": "mgg"}, "unknown variant 'mgg'. Known: geneval, mgg-code"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any], message: str) -> None:
    """Before anything is judged by them."""
    with pytest.raises(ValueError, match=message):
        SelectionSettings(**options)
