"""Files of verdicts: both forms, one spelling of a model, and what is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.datasets.opening.verdict_files import ModelNames, read_verdicts, write_battles
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.metrics.battles import JudgedBattle


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


def test_one_spelling_of_a_model(tmp_path: Path) -> None:
    """The one that is read first, also across files; ids mean nothing."""
    names = ModelNames()
    first = read_verdicts(write(tmp_path, [record(first="gill", second="Anole")]), names)
    second = read_verdicts(write(tmp_path, [record("2", first="anole", second="GILL")]), names)

    assert (first[0].first, first[0].second) == ("gill", "Anole")
    assert (second[0].first, second[0].second) == ("Anole", "gill")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "Expected `array`, got `object`"),
        ([], "holds no battle"),
        (["A"], "record 1: Expected `object`, got `str`"),
        ([record(), record("2", reason="better")], "record 2: .* unknown field `reason`"),
        ([{"data_id": "1"}], "record 1: .* missing required field `model_A`"),
        (
            [record(winner="tie(b)")],
            r"record 1: winner is 'tie\(b\)': A, Tie\(A\), Tie\(B\), B are",
        ),
        ([record(question="")], "data_id: Expected `str` of length >= 1"),
        ([record(second=" ")], r"model_B\.name: a text is expected"),
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


RELEASED = Path(__file__).parents[4] / "shared" / "data" / "opening"


@pytest.mark.skipif(not RELEASED.is_dir(), reason=f"OpenING's verdicts are not in {RELEASED}")
def test_released_verdicts_survive_a_round_trip(tmp_path: Path) -> None:
    """4,300 verdicts read, written and read again: but for ids, the released file."""
    released = RELEASED / "human_verdicts.json"
    battles = read_verdicts(released)
    path = tmp_path / "verdicts.json"
    write_battles(path, battles)

    assert read_verdicts(path) == battles
    written, original = json.loads(path.read_text()), json.loads(released.read_text("utf-8"))
    without_ids = [
        {**item, "model_A": item["model_A"]["name"], "model_B": item["model_B"]["name"]}
        for item in (*written, *original)
    ]
    assert without_ids[: len(written)] == without_ids[len(written) :]


@pytest.mark.parametrize("name", ["verdicts.json", "verdicts.jsonl"])
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    """In both forms, in the order given; a second file takes the place of the first."""
    battles = [
        JudgedBattle("1", "b", "a", "Tie(B)"),
        JudgedBattle("1", "a", "b", "A"),
        JudgedBattle("2", "ä\n", "a", "B"),
    ]
    path = tmp_path / name
    write_battles(path, battles[::-1])
    write_battles(path, battles)

    assert read_verdicts(path) == battles
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "battles",
    [
        [],
        [JudgedBattle("1", "a", "a", "A")],
        [JudgedBattle("1", " ", "a", "A")],
        [JudgedBattle("1", "a", "b", "A"), JudgedBattle("1", "a", "b", "B")],
    ],
)
def test_verdicts_that_are_not_written(tmp_path: Path, battles: list[JudgedBattle]) -> None:
    """What could not be read again is refused, and an earlier file stays."""
    path = tmp_path / "verdicts.json"
    path.write_text("earlier")
    with pytest.raises(DatasetError, match=r"no verdict to write|two models are expected, and one"):
        write_battles(path, battles)
    assert path.read_text() == "earlier"
