"""Patterns: their closed list, what models are asked about them, and how replies are read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from pytest_cepbench.artifacts.answer import Repeated, after_reasoning, parse_reply, read_objects
from pytest_cepbench.datasets.sources.text_files import convert_record, read_toml
from pytest_cepbench.errors import DatasetError, UnreadableReplyError
from pytest_cepbench.escapes import plain_line, quote_toml, visible

MOST_PATTERNS = 32
"""Patterns of a list, and those that a model may name for one image."""

LONGEST_NAME = 200
"""Characters of a name; a model's longer ones, and its reasons and sentences, are cut."""

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

    name: Annotated[str, msgspec.Meta(pattern=r"\S")]
    sentence: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    merged_from: tuple[str, ...] = ()


def fold_name(name: str) -> str:
    """What names are compared by: no case, single spaces, none around; no stemming."""
    return " ".join(name.split()).casefold()


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    pattern: Annotated[list[Pattern], msgspec.Meta(min_length=1, max_length=MOST_PATTERNS)]


def read_patterns(path: Path) -> tuple[Pattern, ...]:
    """The patterns of a file.

    Raises DatasetError, in one line, for a file that cannot be read, for fields that are unknown or
    of another type, a name that is empty, there twice, too long or with invisible characters, and
    for none or more than `MOST_PATTERNS`.
    """
    document = convert_record(repr(str(path)), read_toml(path, _LARGEST), _Document)
    taken: dict[str, int] = {}
    for number, pattern in enumerate(document.pattern, 1):
        place = f"{str(path)!r}, pattern {number}"
        if len(pattern.name) > LONGEST_NAME or visible(pattern.name, "") != pattern.name:
            raise DatasetError(
                f"{place}: a name has at most {LONGEST_NAME} characters, all of them visible"
            )
        first = taken.setdefault(fold_name(pattern.name), number)
        if first != number:
            raise DatasetError(
                f"{place}: the name {pattern.name!r} is there already, in pattern {first}"
            )
    return tuple(replace(own, name=" ".join(own.name.split())) for own in document.pattern)


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
# The tasks of MMGenBench's prompts (Figures 13 to 15) in this project's words, without the role of
# an expert and the paper's examples: examples prime. Names and reasons are one list, which servers
# can hold a model to.


PROMPTS_VERSION = "patterns/1"
"""Names the texts below and how replies to them are read."""

_DEFINITION = (
    "An image pattern is a visual feature or structure that repeats or is consistent in an image: "
    "colors, shapes, textures, arrangements, or certain objects or symbols."
)

_FORM = (
    'Reply with one JSON object and nothing else: {"description": "...", "image_pattern": '
    '[{"name": "...", "reason": "..."}]}.'
)

_DESCRIBE = "1. Describe the image in detail, with everything that you see in it.\n"

EXTRACTION_PROMPT = (
    f"{_DEFINITION}\n\n{_DESCRIBE}"
    "2. Name the patterns that the image has, several where it has several, and give a reason "
    f"for each.\n\n{_FORM}"
)
"""The question for a description and for patterns of any name. Source: Figure 13."""


def annotation_prompt(patterns: Sequence[Pattern]) -> str:
    """The question for patterns of a closed list. Source: Figure 15."""
    known = "\n".join(
        f"- {pattern.name}: {pattern.sentence}" if pattern.sentence else f"- {pattern.name}"
        for pattern in patterns
    )
    return (
        f"{_DEFINITION} These are all patterns that count:\n{known}\n\n{_DESCRIBE}"
        "2. Name those of the patterns above that the image has, several where it has several and "
        "none where it has none, spelled as above, and give a reason for each. Use no other "
        f"name.\n\n{_FORM}"
    )


def summary_question(counts: Mapping[str, int], most: int) -> str:
    """The question for a short list of patterns, given how often each name occurred.

    most: patterns that are wanted at most. Source: Figure 14.
    """
    given = json.dumps({"frequencies": dict(counts), "most": most}, ensure_ascii=False)
    return (
        "These are names of image patterns, and in how many images each was named:\n"
        f"{given}\n\n"
        f"Summarize them as at most {most} patterns. New names are as short as they can be, and "
        "general enough to take in several of the given ones: do not go by frequency alone. Say in "
        "a sentence what each pattern is.\n\n"
        'Reply with one JSON object and nothing else: {"image_pattern": [{"name": "...", '
        '"sentence": "...", "merged_from": ["...", ...]}]}, where merged_from lists the given '
        "names that a new one takes in."
    )


def repair_prompt(prompt: str, problem: str, reply: str) -> str:
    """The same question once more, with what was wrong with the first reply."""
    return (
        f"{prompt}\n\nAn earlier reply could not be read as JSON: {problem}. It was:\n{reply}\n\n"
        "Reply with the JSON object alone."
    )


def pattern_schema(names: Sequence[str] | None = None) -> dict[str, Any]:
    """JSON schema of a description with patterns.

    names: the closed list; None where any name may be given.
    """
    name = _TEXT if names is None else {"type": "string", "enum": list(names)}
    patterns = {"type": "array", "items": _object({"name": name, "reason": _TEXT})}
    return _object({"description": _TEXT, _FIELD: patterns})


def summary_schema() -> dict[str, Any]:
    """JSON schema of a summary."""
    merged = {"type": "array", "items": _TEXT}
    pattern = _object({"name": _TEXT, "sentence": _TEXT, "merged_from": merged})
    return _object({_FIELD: {"type": "array", "items": pattern}})


_TEXT = {"type": "string"}


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

_FIELD = "image_pattern"


class _Named(msgspec.Struct):
    name: str
    reason: str = ""
    sentence: str = ""
    merged_from: tuple[Any, ...] = ()


class _Reply(msgspec.Struct):
    image_pattern: list[str | _Named]
    description: str = ""


@dataclass(frozen=True)
class PatternReply:
    """What a reply says: a description, empty where there is none, and patterns, each once."""

    description: str
    patterns: tuple[Pattern, ...]


def read_pattern_reply(text: str) -> PatternReply:
    """The description and the patterns of a reply, at most `MOST_PATTERNS`.

    Patterns stand in `image_pattern`, as names or as objects with `name` and `reason` or
    `sentence`; words are on one line, and cut at `LONGEST_NAME`. Raises UnreadableReplyError.
    """
    reply = after_reasoning(text)
    if reply is None:
        raise UnreadableReplyError("it ends inside its reasoning")
    document = next(iter(read_objects(reply.strip())), None)
    try:
        if document is None:
            document = parse_reply(reply.strip())
        if not isinstance(document, dict):
            what = type(document).__name__
            raise UnreadableReplyError(f"a JSON object is expected, not {what}")
        repeated = [key for key, own in document.items() if isinstance(own, Repeated)]
        if repeated:
            raise UnreadableReplyError(f"the field {plain_line(repeated[0])!r} is there twice")
        read = msgspec.convert(document, _Reply)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise UnreadableReplyError(plain_line(str(error)) or "it is no JSON object") from error
    patterns: dict[str, Pattern] = {}
    for entry in read.image_pattern:
        own = _Named(entry) if isinstance(entry, str) else entry
        if name := plain_line(own.name):
            merged = tuple(plain_line(n) for n in own.merged_from if isinstance(n, str))
            pattern = Pattern(name, plain_line(own.reason or own.sentence), merged)
            patterns.setdefault(name.casefold(), pattern)
    return PatternReply(
        plain_line(read.description, LONGEST_DESCRIPTION), tuple(patterns.values())[:MOST_PATTERNS]
    )
