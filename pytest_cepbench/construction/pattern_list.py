"""The closed list of patterns: `patterns.toml`, which a summary proposes and people edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import DatasetError
from pytest_cepbench.escapes import quote_toml, visible
from pytest_cepbench.files import parse_toml, read_regular

MOST_PATTERNS = 32
"""Patterns of a list, and those that a model may name for one image."""

_LONGEST_NAME = 200
_LONGEST_SENTENCE = 1000

_LARGEST = 2**20  # bytes

_FIELDS = {"name", "sentence", "merged_from"}

_HEAD = """\
# The patterns of this data set, for people to edit: change names and sentences, take patterns out,
# add others. While this file is there it is not written again; images are annotated with what
# it says. merged_from is for readers: the names that models gave.
"""


@dataclass(frozen=True)
class Pattern:
    """A pattern of the closed list.

    name: unique, whatever its case. sentence: what it is; may be empty.
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
    try:
        document = parse_toml(read_regular(path, _LARGEST))
    except OSError as error:
        raise DatasetError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DatasetError(f"{str(path)!r} is no TOML: {error}") from error
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
        pattern = _pattern(place, table)
        first = taken.setdefault(fold_name(pattern.name), number)
        if first != number:
            raise DatasetError(
                f"{place}: the name {pattern.name!r} is there already, in pattern {first}"
            )
        patterns.append(pattern)
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


def _pattern(place: str, table: Any) -> Pattern:
    if not isinstance(table, dict):
        raise DatasetError(f"{place}: a table [[pattern]] is expected, got {table!r:.60}")
    unknown = sorted(table.keys() - _FIELDS)
    if unknown:
        raise DatasetError(
            f"{place}: unknown field {unknown[0]!r:.60}; known: {', '.join(sorted(_FIELDS))}"
        )
    name, sentence = table.get("name"), table.get("sentence", "")
    merged = table.get("merged_from", [])
    if not isinstance(name, str) or not name.strip():
        raise DatasetError(f"{place}: a name is expected, got {name!r:.60}")
    if len(name) > _LONGEST_NAME or visible(name, "") != name:
        raise DatasetError(
            f"{place}: a name has at most {_LONGEST_NAME} characters, all of them visible"
        )
    if not isinstance(sentence, str) or len(sentence) > _LONGEST_SENTENCE:
        raise DatasetError(f"{place}: sentence is a text of at most {_LONGEST_SENTENCE} characters")
    if not isinstance(merged, list) or not all(isinstance(text, str) for text in merged):
        raise DatasetError(f"{place}: merged_from is a list of texts, got {merged!r:.60}")
    return Pattern(" ".join(name.split()), sentence, tuple(merged))
