"""Agreement of metrics with people: choices, grades and scores."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.human_ratings import (
    GRADES,
    Choice,
    Grade,
    HumanAgreement,
    alignment,
    cross_inconsistency,
    grade_score,
    predicted_choice,
    same_direction,
    sample_correlation,
)
from tests.optional import known

THOUSANDTHS = st.integers(-1000, 1000)
CHOICES = st.sampled_from(["C1", "B", "C2"])


@given(THOUSANDTHS, THOUSANDTHS)
def test_the_margin_is_exact_on_printed_scores(first: int, second: int) -> None:
    """Scores of three digits are compared as whole thousandths: exactly ten apart is still B.

    In floats four of five such pairs differ by more than 0.01.
    """
    expected = "B" if abs(first - second) <= 10 else "C1" if first > second else "C2"
    assert predicted_choice(first / 1000, second / 1000) == expected
    for numbers, message in (((first, math.nan), "finite"), ((0.5, 0.4, -0.01), "at least 0")):
        with pytest.raises(ValueError, match=message):
            predicted_choice(*numbers)


ITEMS = st.lists(st.tuples(CHOICES, st.lists(CHOICES, min_size=1, max_size=9)), max_size=8)


@given(ITEMS)
def test_agreement_is_counted_vote_by_vote_and_item_by_item(
    items: list[tuple[Choice, list[Choice]]],
) -> None:
    """Items without a majority are counted, and are not in the agreement with majorities."""
    agreement = alignment([item[0] for item in items], [item[1] for item in items])

    right = sum(Counter(votes)[choice] for choice, votes in items)
    assert agreement.items == len(items)
    assert agreement.votes == HumanAgreement(right, sum(len(votes) for _, votes in items))
    halves = [(Counter(votes)[choice] * 2 > len(votes)) for choice, votes in items]
    assert agreement.majorities.right == sum(halves)
    decided = sum(2 * max(Counter(votes).values()) > len(votes) for _, votes in items)
    assert (agreement.majorities.total, agreement.without_majority) == (
        decided,
        len(items) - decided,
    )


@pytest.mark.parametrize(
    ("predictions", "votes", "message"),
    [
        (["C1"], [], "one prediction per item, got 1 for 0 items"),
        (["C1"], [[]], "item 0: expected votes of"),
        (["C1", "C1"], [["C1"], ["c1"]], r"item 1: .*'c1'"),
        (["tie"], [["B"]], "item 0: .*'tie'"),
    ],
)
def test_unknown_choices_are_refused(
    predictions: list[Choice], votes: list[list[Choice]], message: str
) -> None:
    """A label that is spelt differently would silently count as disagreement."""
    with pytest.raises(ValueError, match=message):
        alignment(predictions, votes)


def test_nine_cells() -> None:
    """Understanding by row, generation by column."""
    understanding: list[Grade] = ["good", "good", "poor", "medium"]
    generation: list[Grade] = ["good", "poor", "poor", "good"]
    table = cross_inconsistency(understanding, generation)

    assert table.counts == ((1, 0, 0), (0, 0, 1), (1, 0, 1))
    assert (table.total, table.inconsistent) == (4, 0.5)
    assert cross_inconsistency([], []).inconsistent is None
    assert [grade_score(grade) for grade in GRADES] == [0, 0.5, 1]
    with pytest.raises(ValueError, match=r"shorter|longer"):
        cross_inconsistency(["good"], [])


def test_correlation_over_samples_has_an_interval_by_item() -> None:
    """1 for the same order, which is not certain; that of noisy scores has the value inside."""
    source = np.random.default_rng(0)
    people = source.random(60)
    noisy = people + source.normal(0, 0.3, 60)
    same = sample_correlation(people * 3, people, list(range(60)))
    noise = sample_correlation(noisy, people, list(range(60)))

    assert same.value == pytest.approx(1)
    assert same.low is None
    assert known(noise.low) < known(noise.value) < known(noise.high) < 1
    assert sample_correlation(np.ones(9), people[:9], list(range(9))).value is None
    assert sample_correlation(np.array([]), np.array([]), []).value is None


def test_the_preferred_side() -> None:
    """Ties of the metric are half right, ties of people are left out."""
    metric, people = np.array([0.2, -0.1, 0.0, 0.4]), np.array([1.0, 1.0, -1.0, 0.0])
    estimate = same_direction(metric, people)
    assert (estimate.value, estimate.items) == (0.5, 3)
    assert same_direction(np.array([1.0]), np.array([0.0])).value is None
