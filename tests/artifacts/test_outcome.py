"""Outcomes that are neither text nor image: kinds of failures, masks, boxes and their order."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_cepbench.artifacts import Detection, Detections, Failure, Mask
from pytest_cepbench.artifacts.outcome import (
    CRITERIA,
    OVERALL,
    CriteriaScores,
    CriterionScore,
    read_score,
)
from pytest_cepbench.datasets.shapes.arena import CRITERIA as TRUTH_CRITERIA
from pytest_cepbench.datasets.shapes.arena import Truth

BOX = (1.0, 2.0, 3.0, 4.0)

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6)


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


def test_what_is_no_detection_is_refused() -> None:
    """0 and 1 are scores, nothing beyond them is; sides of a box have places and are in order."""
    assert [Detection("dog", limit, BOX).score for limit in (0.0, 1.0)] == [0.0, 1.0]
    for score in (-0.1, 1.0001, 2.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"score lies in \[0, 1\], got"):
            Detection("dog", score, BOX)
    assert Detection("dog", 0.5, (1, 2, 1, 2)).box == (1, 2, 1, 2)  # a point
    for box in ((3, 2, 1, 4), (1, 4, 3, 2), (float("nan"), 2, 3, 4), (1, 2, float("inf"), 4)):
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


ALL_SEVEN: dict[str, object] = dict.fromkeys(CRITERIA, 7)

RESULTS = st.one_of(
    st.builds(
        CriterionScore,
        st.integers(0, 10),
        st.text(max_size=40),
        st.none() | st.floats(0, 10),
    ),
    st.builds(Failure, st.sampled_from(["no-score", "refused"]), st.text(max_size=20)),
)


def test_the_criteria_are_those_of_the_known_truth() -> None:
    """A judge's scores and the arena's truth have the same seven names in the same order."""
    assert CRITERIA == TRUTH_CRITERIA == tuple(field.name for field in fields(Truth))


@pytest.mark.parametrize(
    "value", [11, -1, 6.5, True, None, "7", [7], float("nan"), float("inf"), 10**30]
)
def test_anything_else_is_a_failure_of_the_criterion(value: Any) -> None:
    """Nothing is clipped, rounded or read out of a text; the failure names the criterion. Whole
    numbers are scores in any type in which JSON readers and arrays give them.
    """
    for score in (0, 10, 7.0, np.int64(3)):
        assert read_score("quality", score) == CriterionScore(int(score))
    result = read_score("quality", value)
    assert isinstance(result, Failure)
    assert result.kind == "no-score"
    assert result.detail.startswith("quality: ")


def test_a_missing_criterion_is_a_failure_of_its_own() -> None:
    """The others keep their scores; a mean over all seven there is none. It is taken of expected
    scores, where there are any. A second reply fills gaps alone: a score that was given stays.
    """
    scores = CriteriaScores.of({"correctness": 8, "richness": 12})
    assert scores.value("correctness") == 8.0
    assert [scores.value(name) for name in ("richness", "quality", OVERALL)] == [None] * 3
    assert len(scores.failures) == 6
    assert list(scores.by_criterion) == list(CRITERIA)
    assert CriteriaScores.of(ALL_SEVEN | {"quality": 0}).value(OVERALL) == 6.0
    soft = CriteriaScores.of(ALL_SEVEN | {"quality": CriterionScore(0, expected=3.5)})
    assert soft.value(OVERALL) == 6.5
    first = CriteriaScores.of({"correctness": 8, "quality": 40})
    second = CriteriaScores.of({"correctness": 1, "quality": 4})
    filled = first.filled_from(second)
    assert [filled.value(name) for name in ("correctness", "quality", "richness")] == [8, 4, None]


@given(st.dictionaries(st.sampled_from(CRITERIA), RESULTS))
def test_what_is_written_is_read_again(results: Any) -> None:
    """Every score and failure, through the text that a store keeps."""
    scores = CriteriaScores(results)
    assert CriteriaScores.from_json(scores.to_json()) == scores


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"size": {"score": 1}}', '{"quality": 7}', '{"quality": {}}',
             '{"quality": {"score": 70, "justification": ""}}',
             '{"quality": {"failure": ["odd", ""]}}', "[" * 100_000]
)  # fmt: skip
def test_other_texts_are_no_scores(text: str) -> None:
    """A store can hold anything under a key."""
    with pytest.raises(ValueError, match=r"\S"):
        CriteriaScores.from_json(text)


@given(st.text())
def test_a_justification_hides_nothing_and_is_short(text: str) -> None:
    """One line of printable characters, however long and whatever it held: without those that a
    terminal obeys, and those that turn or hide text.
    """
    justification = CriterionScore(5, text).justification
    assert len(justification) <= 300
    assert justification == " ".join(justification.split())
    assert all(char.isprintable() for char in justification)
    assert CriterionScore(5, "so\x1b[2J so\u202e\n\x00fine\u200b").justification == "so[2J so fine"
    assert CriterionScore(5, "x" * 999).justification == "x" * 300


def test_a_score_out_of_range_cannot_be_made() -> None:
    """A user's own judge that builds one meets the error where it stands."""
    scores: list[Any] = [11, -1, 2.0, True, "7"]
    for score in scores:
        with pytest.raises(ValueError, match="whole number from 0 to 10"):
            CriterionScore(score)
    for expected in (-0.1, 10.1, float("nan")):  # a mean of such numbers lies on the scale too
        with pytest.raises(ValueError, match="expected score lies in"):
            CriterionScore(5, expected=expected)
    with pytest.raises(ValueError, match="Did you mean 'richness'"):
        CriteriaScores.of({"richnes": 5})  # a typo is not a missing criterion
