"""The scores of a case's samples, from its measurement and its differences."""

from __future__ import annotations

import pytest

from pytest_cepbench.report.chain_pairs import SampleValue, sample_values
from tests.report.results import FULL, MEASURED, replace

SCORES = {"red": {"a": 0.5, "b": 0.75}, "round": {"a": 0.5, "c": 0.25}}

COMPARED = replace(
    FULL, measured=replace(MEASURED, scores=SCORES), differences={"b": 0.25, "a": -0.25}
)


def test_worst_first() -> None:
    """With all categories of a sample; those that were not compared stand at the end."""
    assert sample_values(COMPARED) == [
        SampleValue("a", ("red", "round"), 0.5, 0.75, -0.25),
        SampleValue("b", ("red",), 0.75, 0.5, 0.25),
        SampleValue("c", ("round",), 0.25, None, None),
    ]


def test_distances_are_better_when_they_are_small() -> None:
    """The baseline of a positive difference is the larger one."""
    first, second, _ = sample_values(replace(COMPARED, higher_is_better=False))
    assert (first.value, first.baseline) == (0.5, 0.25)
    assert (second.value, second.baseline) == (0.75, 1.0)


def test_battles_are_against_one_half() -> None:
    """The record of a battle has one half for each sample, whatever the new answer scored."""
    even = replace(MEASURED, scores={"art": {"q": 0.5}}, answers={"q": "d" * 64})
    (value,) = sample_values(replace(FULL, measured=even, differences={"q": -0.375}))
    assert value == SampleValue("q", ("art",), 0.125, 0.5, -0.375)


@pytest.mark.parametrize(
    ("measured", "differences"),
    [(None, {}), (replace(MEASURED, sizes={"color": 9}), {})],
    ids=["not measured", "a score of a set"],
)
def test_no_sample_has_a_score(measured: object, differences: dict[str, float]) -> None:
    """Where the report has none, and where one score is that of a whole set."""
    assert sample_values(replace(FULL, measured=measured, differences=differences)) == []


def test_differences_without_scores() -> None:
    """Reports of before a measurement was kept have differences alone."""
    (value,) = sample_values(replace(FULL, measured=None, differences={"a": -0.25}))
    assert value == SampleValue("a", (), None, None, -0.25)
