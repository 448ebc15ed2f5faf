"""Files of battles and verdicts, in OpenING's format.

A list of `{"data_id", "model_A": {"id", "name"}, "model_B": {"id", "name"}, "winner"}`, or one such
object a line; a list of arranged battles is the same without `winner`. Verdicts of people may have
`errors` beside it, two lists of the kinds that the first and the second answer have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.artifacts.outcome import WINNERS, AnswerError
from pytest_cepbench.datasets.sources.text_files import convert_record, read_json, read_json_lines
from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.files import replace_small
from pytest_cepbench.metrics.battles import JudgedBattle, Pairing


class _Model(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(pattern=r"\S")]
    id: Any = None


class _Verdict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    question: Annotated[str, msgspec.Meta(min_length=1)] = msgspec.field(name="data_id")
    first: _Model = msgspec.field(name="model_A")
    second: _Model = msgspec.field(name="model_B")
    winner: Any
    errors: tuple[tuple[AnswerError, ...], tuple[AnswerError, ...]] = ((), ())


class ModelNames:
    """One spelling of each model: that in which it was read first.

    OpenING's files write `gill` and `GILL` for the same model; ids mean nothing, since two models
    of the released battles share one.
    """

    def __init__(self) -> None:
        self._spellings: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """The spelling for a name."""
        return self._spellings.setdefault(name.casefold(), name)


def read_verdicts(path: Path, names: ModelNames | None = None) -> list[JudgedBattle]:
    """The verdicts of one judge, in the order of the file.

    names: shared by files that are compared.
    Raises DatasetError for a file that cannot be read or holds no verdict, for unknown or missing
    fields, a verdict that is none of the four, a model against itself, and a battle that was judged
    twice in the same order.
    """
    places: dict[tuple[str, str, str], str] = {}
    verdicts = []
    names = names or ModelNames()
    objects: Iterable[tuple[str, Any]]
    if path.suffix == ".jsonl":
        objects = read_json_lines(path)
    else:
        every = convert_record(f"file {str(path)!r}", read_json(path), list[Any])
        objects = ((f"{path}, record {number}", own) for number, own in enumerate(every, 1))
    for place, value in objects:
        record = convert_record(place, value, _Verdict)
        first, second = names(record.first.name), names(record.second.name)
        if first == second:
            raise DatasetError(f"{place}: {first!r} cannot battle against itself")
        winner = record.winner
        if winner not in WINNERS:
            raise DatasetError(f"{place}: winner is {winner!r:.60}: {', '.join(WINNERS)} are known")
        key = (record.question, first, second)
        if key in places:
            raise DatasetError(
                f"{place}: {first!r} against {second!r} in question {record.question!r} was "
                f"judged before, at {places[key]}: keep one of them, and the verdicts of two "
                "judges in files of their own"
            )
        places[key] = place
        verdicts.append(JudgedBattle(*key, winner, record.errors))
    if not verdicts:
        raise DatasetError(f"file {str(path)!r} holds no battle")
    return verdicts


def write_battles(path: Path, battles: Iterable[JudgedBattle | Pairing]) -> None:
    """Write verdicts, or battles to be judged, in order, as the authors' scripts read them.

    path: a list where it ends in `.json`, which the scripts want; one record a line in `.jsonl`.
    The ids follow from the names alone, so that they are the same in every file: the scripts take
    battles of equal ids for one. They count every verdict whole, and `battle_records` those of a
    battle that was judged in both orders half: win rates are the same where all battles were judged
    in one order, or all in both.
    The file is written in one step. Raises DatasetError for no verdicts, a model without a name or
    against itself, and a battle that was judged twice in the same order; WriteError where the file
    cannot be written.
    """
    records: dict[tuple[str, str, str], dict[str, Any]] = {}
    for battle in battles:
        key = (battle.question, battle.first, battle.second)
        if key in records or battle.first == battle.second or not all(map(str.strip, key)):
            raise DatasetError(
                f"{battle.first!r} against {battle.second!r} in question {battle.question!r}: two "
                "models are expected, and one verdict on them in this order"
            )
        first, second = (
            {"id": str(int(digest_text(name)[:12], 16)), "name": name} for name in key[1:]
        )
        records[key] = {"data_id": battle.question, "model_A": first, "model_B": second}
        if isinstance(battle, JudgedBattle):
            records[key]["winner"] = battle.winner
            if any(battle.errors):
                records[key]["errors"] = battle.errors
    if not records:
        raise DatasetError(f"there is no verdict to write to {str(path)!r}")
    if path.suffix == ".jsonl":
        text = "".join(f"{json.dumps(record)}\n" for record in records.values())
    else:
        text = json.dumps(list(records.values()), indent=4)
    try:
        replace_small(path, text.encode("ascii"))
    except OSError as error:
        raise WriteError(f"{path} could not be written: {error.strerror or error}") from error
