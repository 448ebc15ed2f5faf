"""Files of verdicts: both forms, one spelling of a model, and what is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.datasets.opening.verdict_files import ModelNames, read_battles, read_verdicts
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.arena import JudgedBattle, Pairing


def record(
    question: object = "0101001", first: object = "a", second: object = "b", **more: Any
) -> Any:
    """One record as the released files have it."""
    return {
        "data_id": question,
        "model_A": {"id": "0", "name": first},
        "model_B": {"id": "1", "name": second},
        "winner": "A",
    } | more


def write(folder: Path, content: Any, name: str = "verdicts.json") -> Path:
    """A file of records."""
    path = folder / name
    if name.endswith(".jsonl"):
        path.write_text("".join(f"{json.dumps(line)}\n" for line in content), "utf-8")
    else:
        path.write_text(json.dumps(content), "utf-8")
    return path


@pytest.mark.parametrize("name", ["verdicts.json", "verdicts.jsonl"])
def test_both_forms(tmp_path: Path, name: str) -> None:
    """A list, or one object a line, in the order of the file."""
    content = [record(), record(first="b", second="a", winner="Tie(B)"), record("0101002")]

    assert read_verdicts(write(tmp_path, content, name)) == [
        JudgedBattle("0101001", "a", "b", "A"),
        JudgedBattle("0101001", "b", "a", "Tie(B)"),
        JudgedBattle("0101002", "a", "b", "A"),
    ]


def test_one_spelling_of_a_model(tmp_path: Path) -> None:
    """The one that is read first, also across files; ids mean nothing."""
    names = ModelNames()
    first = read_verdicts(write(tmp_path, [record(first="gill", second="Anole")]), names)
    second = read_verdicts(write(tmp_path, [record("2", first="anole", second="GILL")]), names)

    assert (first[0].first, first[0].second) == ("gill", "Anole")
    assert (second[0].first, second[0].second) == ("Anole", "gill")


def test_arranged_battles(tmp_path: Path) -> None:
    """Without winners, or with them."""
    arranged = record()
    del arranged["winner"]

    assert read_battles(write(tmp_path, [arranged, record("2")])) == [
        Pairing("0101001", "a", "b"),
        Pairing("2", "a", "b"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "a list of battles is expected, got dict"),
        ([], "holds no battle"),
        (["A"], "record 1: an object is expected, got str"),
        ([record(), record("2", reason="better")], "record 2: has an unknown field 'reason'"),
        ([{"data_id": "1"}], "record 1: has no field 'model_A', 'model_B', 'winner'"),
        (
            [record(winner="tie(b)")],
            r"record 1: winner is 'tie\(b\)': A, Tie\(A\), Tie\(B\), B are",
        ),
        ([record(winner=["A"])], r"winner is \['A'\]"),
        ([record(question=7)], "data_id is expected to be the id of a question, got 7"),
        ([record(question="")], "data_id is expected"),
        ([record(first=None)], "model_A is expected to be .* got {'id': '0', 'name': None}"),
        ([record(model_B="b")], "model_B is expected to be .* got 'b'"),
        ([record(second=" ")], "model_B is expected"),
        ([record(first="GILL", second="gill")], "'GILL' cannot battle against itself"),
        (
            [record(), record("2"), record(winner="B")],
            "record 3: 'a' against 'b' in question '0101001' was judged before, at .*record 1",
        ),
    ],
)
def test_refused(tmp_path: Path, content: Any, message: str) -> None:
    """Each with file and record."""
    path = write(tmp_path, content)
    with pytest.raises(DatasetError, match=message) as raised:
        read_verdicts(path)
    assert str(path) in str(raised.value)


def test_a_line_that_is_no_object(tmp_path: Path) -> None:
    """Named by its number."""
    path = write(tmp_path, [record(), 3], "verdicts.jsonl")
    with pytest.raises(DatasetError, match="line 2: an object is expected, got int"):
        read_verdicts(path)


def test_no_file(tmp_path: Path) -> None:
    """The path is named."""
    with pytest.raises(DatasetError, match=r"nowhere\.json' cannot be read: No such file"):
        read_verdicts(tmp_path / "nowhere.json")
