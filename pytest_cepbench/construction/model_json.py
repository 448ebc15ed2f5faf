"""JSON from models, which is not trusted: one object, of limited size, without hidden characters.

The reply itself is tried first, then the first balanced object in it. What cannot be read is a
an `UnreadableReplyError`, whose words go back to the model once.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_cepbench.artifacts.answer import Repeated, after_reasoning, parse_reply, read_objects
from pytest_cepbench.construction.pattern_list import MOST_PATTERNS
from pytest_cepbench.errors import UnreadableReplyError

LONGEST_NAME = 200
"""Characters of a name, a reason or a sentence; what is longer is cut."""

LONGEST_DESCRIPTION = 4000

LONGEST_REPLY = 4000
"""Characters that are kept of a reply which could not be read."""

_FIELD, _DETAILS = "image_pattern", "pattern_detail"

_WORDS = ("reason", "sentence", "explanation", "detail")


@dataclass(frozen=True)
class NamedPattern:
    """A pattern as a model gives it.

    name, words: on one line, cut at `LONGEST_NAME`; words are a reason or a sentence, or empty.
    merged_from: names that it takes in.
    """

    name: str
    words: str = ""
    merged_from: tuple[str, ...] = ()


@dataclass(frozen=True)
class PatternReply:
    """What a reply says: a description, empty where there is none, and patterns, each once."""

    description: str
    patterns: tuple[NamedPattern, ...]


def read_pattern_reply(text: str) -> PatternReply:
    """The description and the patterns of a reply, at most `MOST_PATTERNS`.

    Patterns stand in `image_pattern`, as names whose reasons are in `pattern_detail`, or as objects
    with `name` and `reason` or `sentence`. Raises UnreadableReplyError.
    """
    document = _read_object(text)
    if _FIELD not in document:
        raise UnreadableReplyError(f"it has no field {_FIELD}")
    entries, details = document[_FIELD], document.get(_DETAILS, {})
    if not isinstance(entries, list):
        raise UnreadableReplyError(f"{_FIELD} is no list")
    if not isinstance(details, Mapping):
        raise UnreadableReplyError(f"{_DETAILS} is no object")
    description = document.get("description", "")
    if not isinstance(description, str):
        raise UnreadableReplyError("description is no text")
    patterns: dict[str, NamedPattern] = {}
    for entry in entries:
        pattern = _pattern(entry, details)
        if pattern.name:
            patterns.setdefault(pattern.name.casefold(), pattern)
    return PatternReply(
        plain_line(description, LONGEST_DESCRIPTION), tuple(patterns.values())[:MOST_PATTERNS]
    )


def plain_line(text: str, most: int = LONGEST_NAME) -> str:
    """A model's words on one line, without control characters and those without width, cut."""
    spaced = "".join(
        " " if char.isspace() else char
        for char in text[: 4 * most]
        if char.isspace() or not unicodedata.category(char).startswith("C")
    )
    return " ".join(spaced.split())[:most].rstrip()


def _read_object(text: str) -> Mapping[str, Any]:
    reply = after_reasoning(text)
    if reply is None:
        raise UnreadableReplyError("it ends inside its reasoning")
    document = next(iter(read_objects(reply.strip())), None)
    if document is None:
        raise UnreadableReplyError(_why(reply.strip()))
    repeated = [key for key, value in document.items() if isinstance(value, Repeated)]
    if repeated:
        raise UnreadableReplyError(f"the field {plain_line(repeated[0])!r} is there twice")
    return document


def _why(reply: str) -> str:
    try:
        document = parse_reply(reply)
    except (ValueError, RecursionError) as error:
        return plain_line(str(error)) or "it is no JSON"
    return f"a JSON object is expected, not {type(document).__name__}"


def _pattern(entry: Any, details: Mapping[str, Any]) -> NamedPattern:
    """Raises UnreadableReplyError for what is neither a name nor an object with one."""
    if isinstance(entry, str):
        words = details.get(entry, "")
        return NamedPattern(plain_line(entry), _text(words))
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise UnreadableReplyError(
            f"{_FIELD} has an entry that is no name, and no object with a name"
        )
    words = next((entry[field] for field in _WORDS if field in entry), details.get(entry["name"]))
    merged = entry.get("merged_from", [])
    names = [name for name in merged if isinstance(name, str)] if isinstance(merged, list) else []
    return NamedPattern(plain_line(entry["name"]), _text(words), tuple(map(plain_line, names)))


def _text(words: Any) -> str:
    return plain_line(words) if isinstance(words, str) else ""
