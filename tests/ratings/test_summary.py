"""How a study stands: checks failed, repeats, seconds, agreement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_cepbench.ratings.folder import Ratings, Remarks, Votes
from pytest_cepbench.ratings.records import TASKS, Task, Vote
from pytest_cepbench.ratings.summary import doubtful_annotators, summarize_people
from pytest_cepbench.ratings.votes import SCALES
from tests.ratings.studies import make_study
from tests.ratings.voted import make


def votes_of(*votes: Vote) -> Votes:
    """Votes of any people."""
    names = sorted({vote.annotator for vote in votes})
    return Votes({n: tuple(v for v in votes if v.annotator == n) for n in names}, Remarks())


def verdicts(ratings: Ratings, given: dict[str, str], **fields: Any) -> list[Vote]:
    """One person's winners: `1` for the first option, `2` for the second, `=` for a tie."""
    found = []
    items = [item for item in ratings.items.values() if item.kind == "item"]
    for name, row in given.items():
        for item, mark in zip(items, row, strict=False):
            if mark == " ":
                continue
            vote = make(ratings, item, name, **fields)
            winner = "first" if mark in "1=" else "second"
            found.append(msgspec.structs.replace(vote, winner=winner, tie=mark == "="))
    return found


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
        other = {"first": "second", "second": "first"}
        winner = item.known["winner"] if right else other[item.known["winner"]]
        vote = make(ratings, item, kind="attention")
        votes.append(msgspec.structs.replace(vote, winner=winner))
    first, second = summarize_people(ratings, votes_of(*votes))
    assert (first.votes, first.skipped, first.seconds) == (3, 1, 4)
    assert first.attention == (1, 2)
    assert first.repeats == (1, 2)
    assert (second.votes, second.seconds) == (0, None)


def test_careless_raters_are_doubted(tmp_path: Path) -> None:
    """Who fails known items, and who agrees with nobody; one failure and few items say nothing."""
    ratings = make_study(tmp_path, "pair", count=12, annotators=4, attention=0.3)
    given = {"a1": "121212121212", "a2": "12121212121=", "a3": "212121212121", "a4": "1122"}
    votes = verdicts(ratings, given)
    checks = [item for item in ratings.items.values() if item.kind == "attention"]
    other = {"first": "second", "second": "first"}
    for name, right in (("a1", True), ("a4", False)):
        for number, item in enumerate(checks[:2]):
            known = item.known["winner"]
            winner = known if right or number else other[known]
            vote = make(ratings, item, name, kind="attention")
            votes.append(msgspec.structs.replace(vote, winner=winner))
    doubts = doubtful_annotators(ratings, votes_of(*votes))
    assert doubts.keys() == {"a3", "a4"}
    assert doubts["a4"] == "right on 1 of 2 items whose answer is known"
    assert doubts["a3"].startswith("agrees with nobody (alpha -")
    few = [vote for vote in votes if vote.annotator != "a4"][:25]
    assert doubtful_annotators(ratings, votes_of(*few)) == {}


@pytest.mark.parametrize("task", TASKS)
def test_equal_answers_have_equal_marks(task: Task, tmp_path: Path) -> None:
    """Of two people who see other sides; a description has none."""
    ratings = make_study(tmp_path, task, count=3)
    assert bool(SCALES[task]) == (task != "describe")
    for item in ratings.items.values():
        votes = [make(ratings, item, name) for name in ("a1", "a2")]
        for scale in SCALES[task]:
            first, second = (scale.read(vote) for vote in votes)
            assert first == second
            assert first


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
