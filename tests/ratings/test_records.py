"""Records of a study: what a vote has to say, and what votes together say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.ratings.folder import Ratings, Votes, read_votes
from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.records import (
    TASKS,
    Item,
    Part,
    Study,
    Task,
    Vote,
    fault_of,
    record_line,
    un_swapped,
)
from pytest_cepbench.ratings.summary import doubtful_annotators, summarize_people
from pytest_cepbench.ratings.votes import SCALES, BattleVotes, Rule, battle_votes, mirrored
from tests.ratings.studies import cast, make, make_study, side_vote

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts=st.lists(TEXTS, min_size=2, max_size=4), note=TEXTS, skip=TEXTS)
def test_a_vote_is_read_as_it_was_written(texts: list[str], note: str, skip: str) -> None:
    """On one line, with all fields that every record has."""
    vote = Vote(
        task="verify", item="i", annotator="a1", note=note, skip=skip, ticked=tuple(texts[:1]),
        unticked=tuple(texts[1:]), added=(), shown=("second", "first"), ranking=(1, (0, 2)),
    )  # fmt: skip
    line = record_line(vote)
    assert line.count(b"\n") == 1
    assert msgspec.json.decode(line, type=Vote) == vote
    always = "v task item annotator seconds at page browser kind note"
    assert {*always.split()} <= json.loads(line).keys()


@pytest.mark.parametrize(
    ("task", "verdict", "winner", "tie"),
    [
        ("pair", "A", "second", False),
        ("pair", "Tie(A)", "second", True),
        ("pair", "Tie(B)", "first", True),
        ("pair", "B", "first", False),
        ("caption", "C1", "second", None),
        ("caption", "B", "comparable", None),
        ("caption", "C2", "first", None),
    ],
)
def test_sides_are_un_swapped(task: Task, verdict: str, winner: str, tie: bool | None) -> None:
    """Of sides that were shown swapped; shown as they are, the other one wins."""
    assert un_swapped(task, verdict, ("second", "first")) == (winner, tie)
    other = {"first": "second", "second": "first"}.get(winner, winner)
    assert un_swapped(task, verdict, ("first", "second")) == (other, tie)


@pytest.mark.parametrize("task", TASKS)
def test_votes_of_the_pages_have_no_fault_and_equal_marks(task: Task, tmp_path: Path) -> None:
    """And skipped ones neither; those of other tasks and of strangers have.

    Equal answers of two people who see other sides have equal marks; a description has none.
    """
    ratings = make_study(tmp_path, task, count=3)
    item = next(iter(ratings.items.values()))
    vote = make(ratings, item)
    assert fault_of(vote, ratings.study, item) == ""
    assert fault_of(make(ratings, item, skip="broken image"), ratings.study, item) == ""
    stranger = msgspec.structs.replace(vote, annotator="b1")
    assert "none of the study's annotators" in fault_of(stranger, ratings.study, item)
    other = Study(kind="pair" if task != "pair" else "caption", annotators=("a1",))
    assert "the study asks" in fault_of(vote, other, item)
    assert bool(SCALES[task]) == (task != "describe")
    for item in ratings.items.values():
        votes = [make(ratings, item, name) for name in ("a1", "a2")]
        for scale in SCALES[task]:
            first, second = (scale.read(vote) for vote in votes)
            assert first == second
            assert first


@pytest.mark.parametrize(
    ("task", "changes", "fault"),
    [
        ("pair", {"winner": "second"}, "contradict"),
        ("pair", {"tie": True}, "contradict"),
        ("pair", {"verdict": "C1"}, "contradict"),
        ("pair", {"shown": ("first", "first")}, "shown has to be"),
        ("pair", {"shown": ()}, "shown has to be"),
        ("pair", {"kind": "attention"}, "of the kind 'attention', and its item of the kind 'item'"),
        ("caption", {"verdict": "A"}, "contradict"),
        ("grades", {"grades": {"0": "good"}}, "each of the 3 options needs a grade"),
        ("grades", {"ranking": (0, 1)}, "needs one place"),
        ("grades", {"ranking": (0, (1, 1))}, "needs one place"),
        ("grades", {"ranking": (0, 1, 2, 2)}, "needs one place"),
        ("describe", {"text": " \n"}, "at least a word"),
        ("verify", {"ticked": ()}, "either ticked or unticked"),
        ("verify", {"added": ("Color",)}, "not in the closed list"),
        ("verify", {"added": ("Nonsense",)}, "not in the closed list"),
    ],
)
def test_faults_are_told(task: Task, changes: dict[str, Any], fault: str, tmp_path: Path) -> None:
    """What a file that was changed by hand, or another tool, may hold."""
    ratings = make_study(tmp_path, task, count=1)
    item = next(iter(ratings.items.values()))
    vote = msgspec.structs.replace(make(ratings, item), **changes)
    assert fault in fault_of(vote, ratings.study, item)


def votes_on(given_votes: list[Winner], names: tuple[str, str] = ("x", "y")) -> BattleVotes:
    """The votes of so many people on one pair of answers."""
    item = make_item("pair", [Part(text="q")], [[Part(text=name)] for name in names])
    return BattleVotes(item, {f"a{n}": winner for n, winner in enumerate(given_votes)})


@given(
    st.lists(st.sampled_from(WINNERS), min_size=1, max_size=9),
    st.sampled_from(["majority", "shares"]),
    st.text(max_size=5),
)
def test_a_winner_has_more_than_half_in_both_orders(
    given_votes: list[Winner], rule: Rule, name: str
) -> None:
    """Exchanging the answers and every vote exchanges the verdict, also where all is even.

    By shares the most frequent verdict wins; all of one opinion are of it by either rule.
    """
    plain = votes_on(given_votes, (name, name + "b")).verdict(rule)
    turned = votes_on([mirrored(own) for own in given_votes], (name + "b", name)).verdict(rule)
    assert turned == mirrored(plain)

    own = votes_on(given_votes)
    verdict, frequent = own.verdict(), own.verdict("shares")
    assert given_votes.count(frequent) == max(map(given_votes.count, WINNERS))
    half = len(given_votes) / 2
    for side in ("A", "B"):
        assert (verdict == side) == (given_votes.count(side) > half)
    if len(set(given_votes)) == 1:
        assert frequent == verdict == given_votes[0]


def test_even_ties_lean_to_either_side() -> None:
    """Over many pairs the first answer is not favoured."""
    leaning = [votes_on(["A", "B"], (f"x{n}", f"y{n}")).verdict() for n in range(200)]
    assert set(leaning) == {"Tie(A)", "Tie(B)"}
    assert 70 <= leaning.count("Tie(A)") <= 130


def test_only_items_that_were_asked_count(tmp_path: Path) -> None:
    """Neither repeats nor checks nor what was withdrawn; the last answer of each person does.
    Captions are no battles of answers.
    """
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

    ratings = make_study(tmp_path / "captions", "caption", 2)
    with pytest.raises(DatasetError, match="'caption', and 'pair' is expected here"):
        battle_votes(ratings, read_votes(ratings))


def votes_of(*votes: Vote) -> Votes:
    """Votes of any people."""
    names = sorted({vote.annotator for vote in votes})
    return Votes({n: tuple(v for v in votes if v.annotator == n) for n in names})


def checked(ratings: Ratings, item: Item, name: str, *, right: bool) -> Vote:
    """A person's answer to an attention item."""
    winners = ("first", "second")
    winner = winners[(item.known["winner"] == "first") != right]
    return msgspec.structs.replace(make(ratings, item, name, kind="attention"), winner=winner)


def test_people_are_summed_up(tmp_path: Path) -> None:
    """Judged and skipped items, failed attention, equal repeats, the median of seconds."""
    ratings = make_study(tmp_path, "pair", count=4, attention=0.4)
    items = list(ratings.items.values())
    own = [item for item in items if item.kind == "item"]
    checks = [item for item in items if item.kind == "attention"]
    votes = [make(ratings, item) for item in own[:3]]
    votes = [msgspec.structs.replace(v, seconds=s) for v, s in zip(votes, (9, 2, 4), strict=True)]
    votes.append(make(ratings, own[3], skip="other"))
    votes.append(make(ratings, own[0], kind="repeat"))
    equal = make(ratings, own[1], kind="repeat")
    votes.append(msgspec.structs.replace(equal, winner="second"))
    for item, right in zip(checks, (True, False), strict=True):
        votes.append(checked(ratings, item, "a1", right=right))
    first, second = summarize_people(ratings, votes_of(*votes))
    assert (first.votes, first.skipped, first.seconds) == (3, 1, 4)
    assert first.attention == (1, 2)
    assert first.repeats == (1, 2)
    assert (second.votes, second.seconds) == (0, None)


def test_careless_raters_are_doubted(tmp_path: Path) -> None:
    """Who fails known items, and who agrees with nobody; one failure and few items say nothing."""
    ratings = make_study(tmp_path, "pair", count=12, annotators=4, attention=0.3)
    given = {"a1": "121212121212", "a2": "12121212121=", "a3": "212121212121", "a4": "1122"}
    items = [item for item in ratings.items.values() if item.kind == "item"]
    votes = []
    for name, row in given.items():
        # `1` for the first option, `2` for the second, `=` for a tie
        for item, mark in zip(items, row, strict=False):
            winner = "first" if mark in "1=" else "second"
            vote = make(ratings, item, name)
            votes.append(msgspec.structs.replace(vote, winner=winner, tie=mark == "="))
    checks = [item for item in ratings.items.values() if item.kind == "attention"]
    for name, right in (("a1", True), ("a4", False)):
        for number, item in enumerate(checks[: 4 if right else 2]):  # three of four are enough
            votes.append(checked(ratings, item, name, right=bool(number)))
    doubts = doubtful_annotators(ratings, votes_of(*votes))
    assert doubts.keys() == {"a3", "a4"}
    assert doubts["a4"] == "right on 1 of 2 items whose answer is known"
    assert doubts["a3"].startswith("agrees with nobody (alpha -")
    few = [vote for vote in votes if vote.annotator != "a4"][: 24 + 10]  # ten items are shared
    assert doubtful_annotators(ratings, votes_of(*few)).keys() == {"a3"}
    assert doubtful_annotators(ratings, votes_of(*few[:-1])) == {}


def test_marks_are_numbers() -> None:
    """Equal options share the mean of their ranks; a name is ticked or not."""
    (_, ranked), (names,) = SCALES["grades"], SCALES["verify"]
    vote = Vote(
        task="grades", item="i", annotator="a1", ranking=(1, (0, 2), 3), ticked=("red",),
        unticked=("blue", "green"),
    )  # fmt: skip
    assert ranked.read(vote) == {"1": 1.0, "0": 2.5, "2": 2.5, "3": 4.0}
    assert names.read(vote) == {"red": 1.0, "blue": 0.0, "green": 0.0}


@pytest.mark.parametrize("task", TASKS)
def test_hidden_items_are_counted(task: Task, tmp_path: Path) -> None:
    """Ties count for the side they lean to; what was skipped is neither passed nor failed."""
    ratings = make_study(tmp_path, task, count=6, attention=0.5)
    own = [item for item in ratings.items.values() if item.kind == "item"]
    checks = [item for item in ratings.items.values() if item.kind == "attention"]
    votes = [make(ratings, item, name) for item in own for name in ("a1", "a2")]
    again = [make(ratings, item, kind="repeat") for item in own[:3]]
    if task == "pair":
        again[0] = msgspec.structs.replace(again[0], verdict=f"Tie({again[0].verdict})", tie=True)
    votes += [*again, make(ratings, own[3], kind="repeat", skip="other")]
    if checks:
        votes.append(make(ratings, checks[0], kind="attention", skip="broken image"))
        votes.append(make(ratings, checks[1], kind="attention"))
    first, _ = summarize_people(ratings, votes_of(*votes))
    assert first.attention[1] == (1 if checks else 0)
    assert first.repeats == ((0, 0) if task == "describe" else (3, 3))
