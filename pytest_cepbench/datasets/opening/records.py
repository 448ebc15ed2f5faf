"""One record of OpenING: a question, and the answer to it of people or of a model.

`{"total_uid", "meta_task_id", "meta_task_name", "subtask_id", "subtask_name", "data_id",
"conversations": [{"input": [step, ...]}, {"output": [step, ...]}]}`, where a step is
`{"image": path or null, "text"}`. The questions are records of one line each; a model's answer is
the question's record with its own output, perhaps without `total_uid`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.errors import DatasetError

IMAGE_MARKER = "<image>"
"""Stands in a text where the image of its step belongs."""

BEGIN_MARKER = "<BEGIN>"
"""Stands once in each question, between the task's prompt and the annotator's own text."""

ID_FIELDS = ("meta_task_id", "meta_task_name", "subtask_id", "subtask_name", "data_id")
"""The fields of a record beside `total_uid` and `conversations`, all of them texts."""

_UID, _CONVERSATIONS = "total_uid", "conversations"

_DIGITS = {"meta_task_id": 2, "subtask_id": 2, "data_id": 3}
"""Fields whose numbers are a record's id, and the digits that each has there."""

_STEP_FIELDS = {"image", "text"}


@dataclass(frozen=True)
class RecordedPart:
    """One step of an input or an output as it is written.

    text: with its markers.
    image: the name that it gives its image; None where it has none.
    """

    text: str
    image: str | None


@dataclass(frozen=True)
class Record:
    """A record whose fields are checked.

    place: file and line, for messages.
    uid: id of the question, seven digits: meta-topic, task in it, instance.
    fields: `ID_FIELDS` and their texts.
    question: its input.
    answer: its output.
    """

    place: str
    uid: str
    fields: Mapping[str, str]
    question: tuple[RecordedPart, ...]
    answer: tuple[RecordedPart, ...]


def parse_record(place: str, value: Any) -> Record:
    """The record in a JSON value.

    place: file and line, for messages.
    Raises DatasetError for missing and unknown fields, wrong types, and ids that contradict one
    another.
    """
    if not isinstance(value, dict):
        raise DatasetError(f"{place}: an object is expected, got {type(value).__name__}")
    _check_fields(place, value, {*ID_FIELDS, _CONVERSATIONS}, {_UID})
    fields = {name: _text(place, name, value[name]) for name in ID_FIELDS}
    uid = "".join(
        f"{_number(place, name, fields[name], digits):0{digits}}"
        for name, digits in _DIGITS.items()
    )
    given = value.get(_UID, uid)
    if given != uid:
        raise DatasetError(
            f"{place}: {_UID} is {given!r:.60}, and its ids give {uid!r}: they name one instance"
        )
    conversations = value[_CONVERSATIONS]
    if not isinstance(conversations, list) or len(conversations) != 2:
        raise DatasetError(
            f'{place}: {_CONVERSATIONS} is expected to be [{{"input": ...}}, {{"output": ...}}]'
        )
    question, answer = (
        _parts(place, side, conversation)
        for side, conversation in zip(("input", "output"), conversations, strict=True)
    )
    return Record(place, uid, fields, question, answer)


def _parts(place: str, side: str, conversation: Any) -> tuple[RecordedPart, ...]:
    if not isinstance(conversation, dict):
        raise DatasetError(f'{place}: {{"{side}": [...]}} is expected, got {conversation!r:.60}')
    _check_fields(place, conversation, {side})
    steps = conversation[side]
    if not isinstance(steps, list):
        raise DatasetError(f"{place}: {side} is expected to be a list of steps, got {steps!r:.60}")
    return tuple(_part(f"{place}, {side} {number}", step) for number, step in enumerate(steps, 1))


def _part(place: str, step: Any) -> RecordedPart:
    if not isinstance(step, dict):
        raise DatasetError(f'{place}: a step is {{"image": ..., "text": ...}}, got {step!r:.60}')
    _check_fields(place, step, _STEP_FIELDS)
    image = step["image"]
    return RecordedPart(
        _text(place, "text", step["text"]),
        None if image is None else _text(place, "image", image),
    )


def _check_fields(
    place: str, value: Mapping[str, Any], needed: set[str], allowed: set[str] | None = None
) -> None:
    missing = needed - value.keys()
    unknown = value.keys() - needed - (allowed or set())
    if missing or unknown:
        what = "has no field" if missing else "has an unknown field"
        names = ", ".join(f"{name!r:.60}" for name in sorted(missing or unknown)[:5])
        raise DatasetError(f"{place}: {what} {names}")


def _text(place: str, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise DatasetError(f"{place}: {name} is expected to be a text, got {value!r:.60}")
    return value


def _number(place: str, name: str, text: str, digits: int) -> int:
    if not re.fullmatch(rf"[0-9]{{1,{digits}}}", text):
        raise DatasetError(
            f"{place}: {name}: a number of at most {digits} digits is expected, got {text!r:.60}"
        )
    return int(text)
