"""Decided votes: what an operator may stop at, however often the page is looked at."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.gate.labels.usable import decided

VOTES = st.lists(
    st.tuples(st.sampled_from([f"i{k}" for k in range(80)]), st.sampled_from([0.0, 0.5, 1.0])),
    max_size=200,
)


def test_no_vote_decides_nothing() -> None:
    """The operator's page begins with this."""
    nothing = decided([])
    assert (nothing.decided, nothing.progress) == (False, "undecided (0 items)")


def test_votes_against_a_side_decide() -> None:
    """From 50 items on, not before: what stops sooner overstates too much."""
    votes = [(f"i{k}", 0.0) for k in range(60)]
    assert not decided(votes[:49]).decided
    ended = decided(votes)
    assert (ended.decision, ended.items, ended.stopped_at) == ("regressed", 60, 50)
    assert ended.progress == "decided (60 items)"


def test_votes_for_a_side_decide() -> None:
    """That it is not worse is known after few items that it all wins."""
    ended = decided([(f"i{k}", 1.0) for k in range(50)])
    assert ended.decision == "held"


def test_while_people_vote_nothing_says_for_whom() -> None:
    """The progress is the same for a side that wins and one that loses."""
    lost, won = (decided([(f"i{k}", score) for k in range(60)]) for score in (0.0, 1.0))
    assert lost.progress == won.progress


@given(VOTES)
def test_the_first_vote_on_an_item_counts(votes: list[tuple[str, float]]) -> None:
    """Further votes on items that were voted on change nothing."""
    assert decided([*votes, *((item, 1 - score) for item, score in votes)]) == decided(votes)


@given(VOTES, VOTES)
def test_what_is_decided_stays_so(
    votes: list[tuple[str, float]], more: list[tuple[str, float]]
) -> None:
    """Later votes do not undo a decision at which an operator may have stopped."""
    early = decided(votes)
    late = decided([*votes, *more])
    assert not early.decided or (late.decision, late.stopped_at) == (
        early.decision,
        early.stopped_at,
    )


def test_a_score_that_is_none_is_refused() -> None:
    """Scores of battles lie in [0, 1]."""
    with pytest.raises(ValueError, match="in \\[0, 1\\]"):
        decided([("i", 2.0)])


@pytest.mark.slow
@pytest.mark.parametrize(("win_rate", "wrong"), [(0.45, "held"), (0.5, "regressed")])
def test_looking_after_every_vote_errs_no_more_often_than_alpha(
    win_rate: float, wrong: str
) -> None:
    """Of 400 ratings with 400 votes each, at the edge of each decision, looked at all the time."""
    generator = np.random.default_rng(0)
    chances = [0.85 - win_rate, 0.3, win_rate - 0.15]
    errors = 0
    for _ in range(400):
        scores = generator.choice([0.0, 0.5, 1.0], p=chances, size=400).tolist()
        errors += decided([(f"i{k}", score) for k, score in enumerate(scores)]).decision == wrong
    assert errors <= 400 * 0.05 + 3 * (400 * 0.05 * 0.95) ** 0.5
