"""Rank intervals: certain and uncertain differences, and how often all of them are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_cepbench.metrics.pair_models import RankInterval, max_t_intervals, ranks_of


def rank_intervals(values: Any, covariance: Any) -> tuple[RankInterval, ...]:
    """Ranks of normal estimates."""
    return ranks_of(values, max_t_intervals(covariance))


def test_models_far_apart_have_one_rank_each() -> None:
    """By value, highest first."""
    ranks = rank_intervals(np.array([0.0, 10.0, 5.0]), np.eye(3))

    assert ranks == (RankInterval(3, 3), RankInterval(1, 1), RankInterval(2, 2))


def test_models_that_are_not_told_apart_share_their_ranks() -> None:
    """The first is surely better than the last alone."""
    ranks = rank_intervals(np.array([5.0, 2.5, 0.0]), np.eye(3))

    assert ranks == (RankInterval(1, 2), RankInterval(1, 3), RankInterval(2, 3))


def test_common_errors_do_not_matter() -> None:
    """What moves all models alike leaves their differences sure: that is what pairing is for."""
    common = np.full((3, 3), 25.0)
    apart = np.array([0.0, 1.0, 2.0])

    assert rank_intervals(apart, common + 0.01 * np.eye(3)) == (
        RankInterval(3, 3),
        RankInterval(2, 2),
        RankInterval(1, 1),
    )
    assert set(rank_intervals(apart, 25 * np.eye(3))) == {RankInterval(1, 3)}


def test_no_error_at_all() -> None:
    """Equal values share ranks; any difference counts."""
    ranks = rank_intervals(np.array([1.0, 1.0, 0.5]), np.zeros((3, 3)))

    assert ranks == (RankInterval(1, 2), RankInterval(1, 2), RankInterval(3, 3))


def test_one_model() -> None:
    """It is the first."""
    assert rank_intervals(np.array([1.0]), np.eye(1)) == (RankInterval(1, 1),)


def test_critical_values() -> None:
    """Of 3 models Tukey's studentized range, 3.314, for errors of root 2."""
    half = max_t_intervals(np.eye(3))

    assert half[0, 1] == pytest.approx(3.314, abs=0.05)


@pytest.mark.slow
def test_all_intervals_are_right_at_once() -> None:
    """Of 400 draws of five equal models, about 5 % call any two of them different."""
    rng = np.random.default_rng(0)
    wrong = sum(
        any(rank != RankInterval(1, 5) for rank in rank_intervals(values, np.eye(5)))
        for values in rng.normal(size=(400, 5))
    )

    assert 8 <= wrong <= 34
