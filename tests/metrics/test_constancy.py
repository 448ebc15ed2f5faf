"""Answers that stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_cepbench.metrics.constancy import (
    MostFrequentAnswer,
    most_common,
    spread_of_directions,
    spread_of_vectors,
)


def test_spreads_of_vectors() -> None:
    """Equal ones have none, also in half precision, and for numbers that a mean would round.

    Of thousands the last may be the one that differs. A cosine cannot see that a vector is twice as
    long; a distance can.
    """
    for kind in (np.float16, np.float32, np.float64):
        rows = np.full((7, 5), 0.1, dtype=kind)
        assert spread_of_directions(rows) == pytest.approx(0.0, abs=1e-15)
        assert spread_of_vectors(rows) == 0.0
    ones = np.ones((2501, 4))
    ones[-1, 0] = 1.5
    assert spread_of_vectors(ones) == pytest.approx(0.25)
    assert spread_of_directions(ones) > 0.1
    longer = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    assert spread_of_directions(longer) < 1e-15
    assert spread_of_vectors(longer) == pytest.approx(2.0)


def test_answers_are_counted_once_for_each_input() -> None:
    """An input that comes again adds nothing: 24 samples of one image are no 24 images."""
    common = most_common([("a", 1), ("a", 1), ("b", 1), ("c", 2)])
    assert common == MostFrequentAnswer(answer=1, count=2, of=3)
    assert most_common([]) is None


@pytest.mark.parametrize(
    ("alike", "of", "constant", "text"),
    [
        (24, 24, True, "all 24"),
        (23, 24, True, "23 of 24"),
        (22, 24, True, "22 of 24"),
        (21, 24, False, "21 of 24"),
        (4, 4, True, "all 4"),
        (3, 3, False, "all 3"),
    ],
)
def test_nearly_all_answers_alike_are_constant(
    alike: int, of: int, constant: bool, text: str
) -> None:
    """More than nine in ten, of four different inputs or more."""
    answers = [(i, "same" if i < alike else i) for i in range(of)]
    common = most_common(answers)
    assert common is not None
    assert common.constant is constant
    assert str(common) == text
