"""The folder of a study: what is read of it, and what of damaged and strange files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.ratings.folder import (
    LineFile,
    Ratings,
    counted_votes,
    read_ratings,
    read_votes,
)
from pytest_cepbench.ratings.live_study import LiveStudy
from pytest_cepbench.ratings.records import Vote, VoteKind, record_line
from tests.interruption import in_child, limit_files
from tests.ratings.studies import make, make_study

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


OTHERS: list[tuple[str, VoteKind]] = [("a1", "repeat"), ("a2", "item")]


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
    others = [msgspec.structs.replace(v, annotator=a, kind=k) for v in votes for a, k in OTHERS]
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
