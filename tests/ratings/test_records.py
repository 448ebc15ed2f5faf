"""Records of a study: what a vote has to say, what votes together say, and their folder."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts.outcome import WINNERS, Winner
from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.ratings.folder import (
    LineFile,
    Ratings,
    Votes,
    counted_votes,
    read_ratings,
    read_votes,
)
from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.live_study import LiveStudy
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
from tests.interruption import in_child, limit_files
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


# -- the folder of a study, and what of damaged and strange files ----------------------------------


CONTRADICTION = "verdict, shown and winner contradict each other"


@pytest.fixture
def ratings(tmp_path: Path) -> Ratings:
    """A study of pairs for two people."""
    return make_study(tmp_path / "study", "pair", count=4)


def write(ratings: Ratings, *votes: Vote, name: str = "a1") -> Path:
    """A file of votes."""
    path = ratings.vote_path(name)
    path.write_bytes(b"".join(map(record_line, votes)))
    return path


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("study.json", '{"v":2,"kind":"pairs","annotators":["a1"]}', "Invalid enum value"),
        ("study.json", '{"v":9,"kind":"pair","annotators":["a1"]}', "version 9 of .*update"),
        ("study.json", '{"v":1,"kind":"pair","annotators":["a1"]}', "1 of .*: it is older"),
        (
            "study.json",
            '{"v":2,"kind":"pair","annotators":["../a1"]}',
            "study.json: .* letters",
        ),
        ("study.json", "{", "study.json: "),
        ("study.json", '{"x":' + "[" * 100_000, "study.json: "),
        ("sources.jsonl", '{"item":"1"}\n{', "sources.jsonl, line 2: "),
    ],
)
def test_damaged_files_are_named(ratings: Ratings, name: str, text: str, message: str) -> None:
    """With the line where there are several; and so is a folder that has votes alone."""
    with pytest.raises(DatasetError, match="no ratings folder"):
        read_ratings(ratings.path / "votes")
    (ratings.path / name).write_text(text)
    with pytest.raises(DatasetError, match=message):
        _ = read_ratings(ratings.path).sources


def test_images_and_items_are_those_that_were_written(ratings: Ratings) -> None:
    """Another image under a name, a missing one, and items with another word are refused."""
    first, second = sorted((ratings.path / "images").iterdir())[:2]
    second.write_bytes(first.read_bytes())
    with pytest.raises(DatasetError, match="another image than its name says"):
        ratings.image(second.stem)
    first.unlink()
    with pytest.raises(DatasetError, match="cannot be read"):
        ratings.image(first.stem)
    path = ratings.path / "items.jsonl"
    path.write_text(path.read_text().replace("Question 1", "Question 7"))
    with pytest.raises(DatasetError, match="is not the file that the study was written with"):
        read_ratings(ratings.path)


def test_votes_that_do_not_count_are_told(ratings: Ratings) -> None:
    """Unknown items, votes that are none, lines that are no record: counted, with one line each."""
    items = list(ratings.items.values())
    good = make(ratings, items[0])
    unknown = msgspec.structs.replace(good, item="f" * 64)
    invalid = msgspec.structs.replace(good, winner="second")
    newer = msgspec.structs.replace(good, v=3)
    path = write(ratings, good, unknown, invalid, newer)
    nested = record_line(good).rstrip()[:-1] + b',"x":' + b"[" * 100_000 + b"\n"
    path.write_bytes(
        path.read_bytes() + b'["no record"]\n\xff\n\n' + nested + record_line(good)[:40]
    )
    votes = read_votes(ratings)
    assert votes.records == {"a1": (good,)}
    assert votes.remarks == (
        "4 records of votes that cannot be read are left out, such as one cut off in a crash",
        "1 records of votes for items that the study does not have are left out",
        f"2 records of votes that answer no question are left out ({CONTRADICTION})",
    )


def test_a_server_refuses_a_file_under_another_name(ratings: Ratings) -> None:
    """It would begin a second file of the same person, which nothing reads, such as a copy that was
    made by hand: both are named.
    """
    write(ratings, make(ratings, next(iter(ratings.items.values()))), name="x")
    assert read_votes(ratings).records.keys() == {"a1"}
    with pytest.raises(DatasetError, match=r"x.jsonl has votes of 'a1': move them to a1.jsonl"):
        LiveStudy(ratings)
    assert not ratings.vote_path("a1").exists()
    ratings.vote_path("x").rename(ratings.vote_path("a1"))
    LiveStudy(ratings).close()
    assert read_votes(ratings).records.keys() == {"a1"}
    path = ratings.vote_path("a1")
    path.with_name("a1 (copy).jsonl").write_bytes(path.read_bytes())
    with pytest.raises(DatasetError, match=r"a1 \(copy\).jsonl and .*a1.jsonl both have votes"):
        read_votes(ratings)


def test_what_is_no_regular_file_is_refused(ratings: Ratings) -> None:
    """A named pipe would block for ever, a link may lead anywhere."""
    os.mkfifo(ratings.vote_path("a1"))
    with pytest.raises(DatasetError, match="named pipe"):
        read_votes(ratings)
    ratings.vote_path("a1").unlink()
    ratings.vote_path("a1").symlink_to(ratings.path / "study.json")
    with pytest.raises(DatasetError, match="cannot be read"):
        read_votes(ratings)
    with pytest.raises(WriteError, match="could not be opened for writing"):
        LineFile(ratings.vote_path("a1"))


@given(moves=st.lists(st.sampled_from(["A", "B", "undo", "skip"]), max_size=8))
def test_the_last_answer_that_was_not_withdrawn_counts(moves: Sequence[str]) -> None:
    """As on a stack: an undo takes the answer before it away, also a skip; none more than once."""
    stack: list[str] = []
    votes = []
    for move in moves:
        fields = {"undo": True} if move == "undo" else {"verdict": move}
        votes.append(Vote(task="pair", item="i", annotator="a1", **fields))
        if move != "undo":
            stack.append(move)
        elif stack:
            stack.pop()
    assert [vote.verdict for vote in counted_votes(votes).values()] == stack[-1:]
    # A repeat is no second answer to the item, and one person's is not another's.
    others = [msgspec.structs.replace(v, kind="repeat") for v in votes]
    others += [msgspec.structs.replace(v, annotator="a2") for v in votes]
    assert len(counted_votes([*votes, *others])) == 3 * len(stack[-1:])


def test_a_cut_line_and_a_write_that_fails_spoil_nothing(ratings: Ratings) -> None:
    """The next vote begins on a line of its own, so that it can be read.

    At the limit of a file's size no part of a vote is written, and what was there stays.
    """
    item = next(iter(ratings.items.values()))
    vote = make(ratings, item)
    path = write(ratings, vote)
    path.write_bytes(path.read_bytes() + b'{"v":1,"task":"pa')
    file = LineFile(path)
    file.append(record_line(vote))
    file.append(record_line(vote))
    file.close()
    lines = path.read_bytes().split(b"\n")
    assert lines[1] == b'{"v":1,"task":"pa'
    votes = read_votes(ratings)
    assert len(votes.records["a1"]) == 3
    (remark,) = votes.remarks
    assert remark.startswith("1 records of votes that cannot be read are left out")

    path.unlink()
    line = record_line(Vote(task="pair", item="i" * 64, annotator="a1"))

    def fill() -> None:
        limit_files(1000)
        file = LineFile(path)
        for _ in range(1000 // len(line)):
            file.append(line)
        with pytest.raises(WriteError, match="it is as it was before"):
            file.append(line)

    assert in_child(fill) == 0
    assert path.read_bytes() == line * (1000 // len(line))
