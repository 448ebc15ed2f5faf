"""Votes on pairs as verdicts on battles: the same whatever the order, and never made up."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.ratings.folder import read_votes
from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.records import Part
from pytest_cepbench.ratings.votes import BattleVotes, Rule, battle_votes, mirrored
from tests.ratings.studies import make_study
from tests.ratings.voted import cast, side_vote

winners = st.lists(st.sampled_from(WINNERS), min_size=1, max_size=9)

rules = st.sampled_from(["majority", "shares"])


def votes_on(given_votes: list[Winner], names: tuple[str, str] = ("x", "y")) -> BattleVotes:
    """The votes of so many people on one pair of answers."""
    item = make_item("pair", [Part(text="q")], [[Part(text=name)] for name in names])
    return BattleVotes(item, {f"a{n}": winner for n, winner in enumerate(given_votes)})


@given(winners, rules, st.text(max_size=5))
def test_both_orders_have_the_same_winner(given_votes: list[Winner], rule: Rule, name: str) -> None:
    """Exchanging the answers and every vote exchanges the verdict, also where all is even."""
    plain = votes_on(given_votes, (name, name + "b")).verdict(rule)
    turned = votes_on([mirrored(own) for own in given_votes], (name + "b", name)).verdict(rule)
    assert turned == mirrored(plain)


@given(winners)
def test_a_winner_has_more_than_half(given_votes: list[Winner]) -> None:
    """And all of one opinion are of that opinion, by either rule."""
    own = votes_on(given_votes)
    verdict = own.verdict()
    half = len(given_votes) / 2
    for side in ("A", "B"):
        assert (verdict == side) == (given_votes.count(side) > half)
    if len(set(given_votes)) == 1:
        assert own.verdict("shares") == verdict == given_votes[0]


@given(winners)
def test_shares_are_probabilities(given_votes: list[Winner]) -> None:
    """They sum to 1, the verdict is a likeliest one, and the score is their mean."""
    own = votes_on(given_votes)
    assert sum(own.shares) == pytest.approx(1)
    assert own.shares[WINNERS.index(own.verdict("shares"))] == max(own.shares)
    worth = {"A": 1.0, "Tie(A)": 0.5, "Tie(B)": 0.5, "B": 0.0}
    assert own.score == pytest.approx(sum(worth[w] for w in given_votes) / len(given_votes))


def test_even_ties_lean_to_either_side() -> None:
    """Over many pairs the first answer is not favoured."""
    leaning = [votes_on(["A", "B"], (f"x{n}", f"y{n}")).verdict() for n in range(200)]
    assert set(leaning) == {"Tie(A)", "Tie(B)"}
    assert 70 <= leaning.count("Tie(A)") <= 130


def test_only_items_that_were_asked_count(tmp_path: Path) -> None:
    """Neither repeats nor checks nor what was withdrawn; the last answer of each person does."""
    ratings = make_study(tmp_path / "study", "pair", 4, attention=0.5)
    first, second, *_ = [item for item in ratings.items.values() if item.kind == "item"]
    check = next(item for item in ratings.items.values() if item.kind == "attention")
    cast(
        ratings,
        side_vote(first, "a1", "B"),
        side_vote(first, "a1", "A"),
        side_vote(first, "a1", "B", kind="repeat"),
        side_vote(second, "a1", "A"),
        msgspec.structs.replace(side_vote(second, "a1", "A"), undo=True),
        side_vote(check, "a1", "A", kind="attention"),
    )
    judged = battle_votes(ratings, read_votes(ratings))
    assert {item: dict(own.winners) for item, own in judged.items()} == {first.item: {"a1": "A"}}


def test_other_kinds_have_no_battles(tmp_path: Path) -> None:
    """Captions are no battles of answers."""
    ratings = make_study(tmp_path / "study", "caption", 2)
    with pytest.raises(DatasetError, match="'caption', and 'pair' is expected here"):
        battle_votes(ratings, read_votes(ratings))
