"""Patterns: their closed list, what models are asked about them, and how replies are read."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from pytest_cepbench.artifacts.answer import Repeated, after_reasoning, parse_reply, read_objects
from pytest_cepbench.datasets.sources.text_files import convert_record, read_toml
from pytest_cepbench.errors import DatasetError, UnreadableReplyError
from pytest_cepbench.escapes import quote_toml, visible

MOST_PATTERNS = 32
"""Patterns of a list, and those that a model may name for one image."""

LONGEST_NAME = 200
"""Characters of a name; a model's longer ones, and its reasons and sentences, are cut."""

_LONGEST_SENTENCE = 1000

_LARGEST = 2**20  # bytes

_HEAD = """\
# The patterns of this data set, for people to edit: change names and sentences, take patterns out,
# add others. While this file is there it is not written again; images are annotated with what
# it says. merged_from is for readers: the names that models gave.
"""


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern of the closed list, or one that a model gives.

    name: unique, whatever its case.
    sentence: what it is, or why an image has it; may be empty.
    merged_from: names that models gave, which it takes in.
    """

    name: str
    sentence: str = ""
    merged_from: tuple[str, ...] = ()


def fold_name(name: str) -> str:
    """What names are compared by: no case, single spaces, none around; no stemming."""
    return " ".join(name.split()).casefold()


def read_patterns(path: Path) -> tuple[Pattern, ...]:
    """The patterns of a file.

    Raises DatasetError, in one line, for a file that cannot be read, for fields that are unknown or
    of another type, a name that is empty, there twice, too long or with invisible characters, and
    for none or more than `MOST_PATTERNS`.
    """
    document = read_toml(path, _LARGEST)
    tables = document.get("pattern")
    unknown = document.keys() - {"pattern"}
    if unknown or not isinstance(tables, list) or not tables:
        raise DatasetError(
            f"{str(path)!r}: tables [[pattern]] are expected, each with a name, and nothing else"
        )
    if len(tables) > MOST_PATTERNS:
        raise DatasetError(
            f"{str(path)!r} has {len(tables)} patterns: at most {MOST_PATTERNS} are expected"
        )
    patterns: list[Pattern] = []
    taken: dict[str, int] = {}
    for number, table in enumerate(tables, 1):
        place = f"{str(path)!r}, pattern {number}"
        pattern = convert_record(place, table, Pattern)
        if not pattern.name.strip():
            raise DatasetError(f"{place}: a name is expected, got {pattern.name!r:.60}")
        if len(pattern.name) > LONGEST_NAME or visible(pattern.name, "") != pattern.name:
            raise DatasetError(
                f"{place}: a name has at most {LONGEST_NAME} characters, all of them visible"
            )
        if len(pattern.sentence) > _LONGEST_SENTENCE:
            raise DatasetError(f"{place}: a sentence has at most {_LONGEST_SENTENCE} characters")
        first = taken.setdefault(fold_name(pattern.name), number)
        if first != number:
            raise DatasetError(
                f"{place}: the name {pattern.name!r} is there already, in pattern {first}"
            )
        patterns.append(replace(pattern, name=" ".join(pattern.name.split())))
    return tuple(patterns)


def write_patterns(patterns: Sequence[Pattern]) -> str:
    """The text of a file with these patterns; invisible characters are escaped."""
    blocks = [_HEAD]
    for pattern in patterns:
        merged = ", ".join(map(quote_toml, pattern.merged_from))
        blocks.append(
            f"[[pattern]]\nname = {quote_toml(pattern.name)}\n"
            f"sentence = {quote_toml(pattern.sentence)}\nmerged_from = [{merged}]\n"
        )
    return "\n".join(blocks)


# -- the questions to models of a construction, and the JSON schemas of their replies --------------
# `paper` has the roles, the definition, the tasks, the examples and the forms of reply of
# MMGenBench's prompts (Figures 13 to 15) in this project's words; `neutral` leaves out the role of
# an expert and the examples, and asks for names and reasons in one list, which servers can hold a
# model to.


PROMPTS_VERSION = "patterns/1"
"""Names the texts below and how replies to them are read."""

Style = Literal["neutral", "paper"]

STYLES: tuple[Style, ...] = get_args(Style)

EXAMPLE_NAMES = (
    "Orientation and Direction",
    "Text",
    "Quantity",
    "Geometry",
    "Surreal",
    "State and Condition",
    "Position and Contextual Relationship",
    "Structural and Physical Characteristics",
)
"""Names in the paper's prompt for extraction; the last one in its example of a reply (Figure 13).

All of them are among the ten most frequent patterns that it brought (Figure 12): examples prime.
"""

_ROLES: Mapping[Style, str] = {
    "neutral": "",
    "paper": "You are an expert who looks at images closely and annotates their patterns.\n\n",
}

_DEFINITION = (
    "An image pattern is a visual feature or structure that repeats or is consistent in an image: "
    "colors, shapes, textures, arrangements, or certain objects or symbols."
)

_FORMS: Mapping[Style, str] = {
    "neutral": (
        'Reply with one JSON object and nothing else: {"description": "...", "image_pattern": '
        '[{"name": "...", "reason": "..."}]}.'
    ),
    "paper": (
        'Reply with one JSON object and nothing else: {"description": "...", "image_pattern": '
        '["NAME", ...], "pattern_detail": {"NAME": "reason", ...}}.'
    ),
}

_SUMMARY_FORMS: Mapping[Style, str] = {
    "neutral": (
        'Reply with one JSON object and nothing else: {"image_pattern": [{"name": "...", '
        '"sentence": "...", "merged_from": ["...", ...]}]}, where merged_from lists the given '
        "names that a new one takes in."
    ),
    "paper": (
        'Reply with one JSON object and nothing else: {"image_pattern": ["NAME", ...], '
        '"pattern_detail": {"NAME": "what the pattern is", ...}}.'
    ),
}


def extraction_prompt(style: Style) -> str:
    """The question for a description and for patterns of any name. Source: Figure 13."""
    named = ""
    if style == "paper":
        named = f" Examples of patterns: {', '.join(EXAMPLE_NAMES)}."
    return (
        f"{_ROLES[style]}{_DEFINITION}{named}\n\n"
        "1. Describe the image in detail, with everything that you see in it.\n"
        "2. Name the patterns that the image has, several where it has several, and give a reason "
        "for each.\n\n"
        f"{_FORMS[style]}"
    )


def annotation_prompt(style: Style, patterns: Sequence[Pattern]) -> str:
    """The question for patterns of a closed list. Source: Figure 15."""
    known = "\n".join(
        f"- {pattern.name}: {pattern.sentence}" if pattern.sentence else f"- {pattern.name}"
        for pattern in patterns
    )
    return (
        f"{_ROLES[style]}{_DEFINITION} These are all patterns that count:\n{known}\n\n"
        "1. Describe the image in detail, with everything that you see in it.\n"
        "2. Name those of the patterns above that the image has, several where it has several and "
        "none where it has none, spelled as above, and give a reason for each. Use no other "
        "name.\n\n"
        f"{_FORMS[style]}"
    )


def summary_question(style: Style, counts: Mapping[str, int], most: int) -> str:
    """The question for a short list of patterns, given how often each name occurred.

    most: patterns that are wanted at most. Source: Figure 14.
    """
    given = json.dumps({"frequencies": dict(counts), "most": most}, ensure_ascii=False)
    return (
        f"{_ROLES[style]}These are names of image patterns, and in how many images each was "
        "named:\n"
        f"{given}\n\n"
        f"Summarize them as at most {most} patterns. New names are as short as they can be, and "
        "general enough to take in several of the given ones: do not go by frequency alone. Say in "
        "a sentence what each pattern is.\n\n"
        f"{_SUMMARY_FORMS[style]}"
    )


def repair_prompt(prompt: str, problem: str, reply: str) -> str:
    """The same question once more, with what was wrong with the first reply."""
    return (
        f"{prompt}\n\nAn earlier reply could not be read as JSON: {problem}. It was:\n{reply}\n\n"
        "Reply with the JSON object alone."
    )


def pattern_schema(style: Style, names: Sequence[str] | None = None) -> dict[str, Any]:
    """JSON schema of a description with patterns.

    names: the closed list; None where any name may be given.
    """
    name = {"type": "string"} if names is None else {"type": "string", "enum": list(names)}
    return _reply_schema(style, {"description": _TEXT}, {"name": name, "reason": _TEXT})


def summary_schema(style: Style) -> dict[str, Any]:
    """JSON schema of a summary."""
    merged = {"type": "array", "items": _TEXT}
    return _reply_schema(style, {}, {"name": _TEXT, "sentence": _TEXT, "merged_from": merged})


_TEXT = {"type": "string"}


def _reply_schema(
    style: Style, head: Mapping[str, Any], pattern: Mapping[str, Any]
) -> dict[str, Any]:
    """JSON schema of a reply. head: fields before the patterns. pattern: fields of each."""
    if style == "paper":
        patterns, detail = pattern["name"], {"type": "object", "additionalProperties": _TEXT}
        fields = {**head, _FIELD: {"type": "array", "items": patterns}, _DETAILS: detail}
        return _object(fields)
    return _object({**head, _FIELD: {"type": "array", "items": _object(pattern)}})


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


# -- JSON from models, which is not trusted: one object, of limited size, without hidden characters
# The reply itself is tried first, then the first balanced object in it. What cannot be read is an
# `UnreadableReplyError`, whose words go back to the model once.


LONGEST_DESCRIPTION = 4000

LONGEST_REPLY = 4000
"""Characters that are kept of a reply which could not be read."""

_FIELD, _DETAILS = "image_pattern", "pattern_detail"

_WORDS = ("reason", "sentence", "explanation", "detail")


@dataclass(frozen=True)
class PatternReply:
    """What a reply says: a description, empty where there is none, and patterns, each once."""

    description: str
    patterns: tuple[Pattern, ...]


def read_pattern_reply(text: str) -> PatternReply:
    """The description and the patterns of a reply, at most `MOST_PATTERNS`.

    Patterns stand in `image_pattern`, as names whose reasons are in `pattern_detail`, or as objects
    with `name` and `reason` or `sentence`; words are on one line, and cut at `LONGEST_NAME`.
    Raises UnreadableReplyError.
    """
    reply = after_reasoning(text)
    if reply is None:
        raise UnreadableReplyError("it ends inside its reasoning")
    document = next(iter(read_objects(reply.strip())), None)
    if document is None:
        try:
            other = parse_reply(reply.strip())
        except (ValueError, RecursionError) as error:
            raise UnreadableReplyError(plain_line(str(error)) or "it is no JSON") from error
        raise UnreadableReplyError(f"a JSON object is expected, not {type(other).__name__}")
    repeated = [key for key, value in document.items() if isinstance(value, Repeated)]
    if repeated:
        raise UnreadableReplyError(f"the field {plain_line(repeated[0])!r} is there twice")
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
    patterns: dict[str, Pattern] = {}
    for entry in entries:
        fields = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(fields, Mapping) or not isinstance(fields.get("name"), str):
            raise UnreadableReplyError(
                f"{_FIELD} has an entry that is no name, and no object with a name"
            )
        name = plain_line(fields["name"])
        given = (fields[field] for field in _WORDS if field in fields)
        words = next(given, details.get(fields["name"]))
        merged = fields.get("merged_from", [])
        names = [n for n in merged if isinstance(n, str)] if isinstance(merged, list) else []
        if name:
            sentence = plain_line(words) if isinstance(words, str) else ""
            pattern = Pattern(name, sentence, tuple(map(plain_line, names)))
            patterns.setdefault(name.casefold(), pattern)
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
