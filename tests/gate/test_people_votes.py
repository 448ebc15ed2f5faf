"""Decided votes: what an operator may stop at, however often the page is looked at."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.people_votes import decided

VOTES = st.lists(
    st.tuples(st.sampled_from([f"i{k}" for k in range(80)]), st.sampled_from([0.0, 0.5, 1.0])),
    max_size=200,
)


def test_no_vote_decides_nothing() -> None:
    """The operator's page begins with this."""
    nothing = decided([])
    assert (nothing.decided, nothing.items, nothing.sentence) == (False, 0, "no vote yet")


@pytest.mark.parametrize(("score", "winner"), [(1.0, "first"), (0.0, "second")])
def test_votes_for_one_side_decide(score: float, winner: str) -> None:
    """From 50 items on, not before."""
    votes = [(f"i{k}", score) for k in range(50)]
    assert not decided(votes[:49]).decided
    ended = decided(votes)
    assert ended.winner == winner
    assert ended.sentence.startswith(f"decided: the {winner} side is better")
    assert "overstates" in ended.sentence


def test_ties_decide_nothing() -> None:
    """Two hundred of them say that neither side is better."""
    assert not decided([(f"i{k}", 0.5) for k in range(200)]).decided


@given(VOTES)
def test_the_first_vote_on_an_item_counts(votes: list[tuple[str, float]]) -> None:
    """Further votes on items that were voted on change nothing."""
    assert decided([*votes, *((item, 1 - score) for item, score in votes)]) == decided(votes)


@given(VOTES)
def test_sides_are_treated_alike(votes: list[tuple[str, float]]) -> None:
    """With the sides exchanged the other one wins."""
    swapped = decided([(item, 1 - score) for item, score in votes])
    names = {"first": "second", "second": "first", "": ""}
    assert names[swapped.winner] == decided(votes).winner


def test_a_score_that_is_none_is_refused() -> None:
    """Scores of battles lie in [0, 1]."""
    with pytest.raises(ValueError, match="in \\[0, 1\\]"):
        decided([("i", 2.0)])


@pytest.mark.slow
def test_looking_after_every_vote_errs_no_more_often_than_alpha() -> None:
    """Of 200 ratings of equal sides with 300 votes each, few are decided at any look."""
    generator = np.random.default_rng(0)
    wrong = 0
    for _ in range(200):
        scores = generator.choice([0.0, 0.5, 1.0], size=300)
        votes = [(f"i{k}", float(score)) for k, score in enumerate(scores)]
        # What any earlier look rejected stays rejected, so the last one sees all of them.
        wrong += decided(votes, 0.05).decided
    assert wrong <= 200 * 0.1 + 3 * (200 * 0.1 * 0.9) ** 0.5
