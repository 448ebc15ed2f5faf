"""Ranks as leaderboards print them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.correlation import rank_table, shared_ranks

VALUES = st.lists(st.integers(-5, 5).map(lambda i: i / 4), min_size=1, max_size=12)


@given(values=VALUES, higher_is_better=st.booleans())
def test_a_shared_rank_is_one_more_than_the_models_ahead(
    values: list[float], *, higher_is_better: bool
) -> None:
    """So ties share the best of their ranks, and as many ranks are left out after them."""
    ranks = shared_ranks(values, higher_is_better=higher_is_better)
    for value, rank in zip(values, ranks, strict=True):
        ahead = sum((o > value) if higher_is_better else (o < value) for o in values)
        assert rank == ahead + 1


def test_two_at_rank_two_are_followed_by_rank_four() -> None:
    """The rule of GenCeption's Table 4."""
    assert shared_ranks([0.435, 0.427, 0.428, 0.428], higher_is_better=True) == (1, 4, 2, 2)


def test_numbers_that_look_the_same_rank_the_same() -> None:
    """Only when digits are given; otherwise the last bit decides."""
    scores = [0.3571, 0.3574, 0.4]
    assert shared_ranks(scores, higher_is_better=True, decimals=3) == (2, 2, 1)
    assert shared_ranks(scores, higher_is_better=True) == (3, 2, 1)


def test_every_benchmark_ranks_in_its_own_direction() -> None:
    """Distances rank from the smallest."""
    scores = {"SIM": [0.5, 0.6, 0.7], "FID": [1.5, 1.6, 1.4]}
    ranks = rank_table(scores, {"SIM": True, "FID": False})
    assert ranks == {"SIM": (3, 2, 1), "FID": (2, 3, 1)}


def test_a_benchmark_without_a_direction_is_refused() -> None:
    """No direction is guessed: the wrong one turns a ranking round."""
    with pytest.raises(ValueError, match="no direction is given for FID"):
        rank_table({"SIM": [0.5], "FID": [1.5]}, {"SIM": True})


def test_benchmarks_of_other_models_are_refused() -> None:
    """A model that was left out of one column would shift all those after it."""
    with pytest.raises(ValueError, match="one value per model on every benchmark"):
        rank_table({"SIM": [0.5, 0.6], "FID": [1.5]}, {"SIM": True, "FID": False})


@pytest.mark.parametrize("values", [[0.5, float("nan")], [float("inf")], [[0.5, 0.6]]])
def test_what_cannot_be_ranked_is_refused(values: list[float]) -> None:
    """NaN has no place in an order, and a table is not a column."""
    with pytest.raises(ValueError, match="finite numbers to rank"):
        shared_ranks(values, higher_is_better=True)
