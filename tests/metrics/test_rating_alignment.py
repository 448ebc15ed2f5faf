"""Metrics beside people's scores, and the grades of both sections of a model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.human_ratings import (
    GRADES,
    Grade,
    cross_inconsistency,
    grade_score,
    same_direction,
    sample_correlation,
)


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


@given(st.lists(st.tuples(st.sampled_from(GRADES), st.sampled_from(GRADES)), min_size=1))
def test_every_pair_is_in_one_cell(pairs: list[tuple[Grade, Grade]]) -> None:
    """The cells add up, and exchanging the sections turns the table over."""
    first, second = map(list, zip(*pairs, strict=True))
    table = cross_inconsistency(first, second)
    assert table.total == len(pairs)
    turned = cross_inconsistency(second, first).counts
    assert np.array(turned).T.tolist() == [list(row) for row in table.counts]


def test_correlation_over_samples_has_an_interval_by_item() -> None:
    """1 for the same order; the interval of noisy scores has the value inside."""
    source = np.random.default_rng(0)
    people = source.random(60)
    noisy = people + source.normal(0, 0.3, 60)
    same = sample_correlation(people * 3, people, list(range(60)))
    noise = sample_correlation(noisy, people, list(range(60)))

    assert same.value == pytest.approx(1)
    assert noise.low is not None
    assert noise.high is not None
    assert noise.value is not None
    assert noise.low < noise.value < noise.high < 1
    assert sample_correlation(np.ones(9), people[:9], list(range(9))).value is None
    assert sample_correlation(np.array([]), np.array([]), []).value is None


def test_the_preferred_side() -> None:
    """Ties of the metric are half right, ties of people are left out."""
    metric, people = np.array([0.2, -0.1, 0.0, 0.4]), np.array([1.0, 1.0, -1.0, 0.0])
    estimate = same_direction(metric, people)
    assert (estimate.value, estimate.items) == (0.5, 3)
    assert same_direction(np.array([1.0]), np.array([0.0])).value is None
