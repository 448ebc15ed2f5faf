"""Messages on keys and words of suite files that are not known, with the nearest that is."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from pytest_cepbench.errors import did_you_mean

_UNKNOWN_KEY = re.compile(
    r"Object contains unknown field `(?P<given>.*?)`(?: - at `\$(?P<path>.*)`)?"
)

_UNKNOWN_WORD = re.compile(r"Invalid enum value '(?P<given>.*?)'(?: - at `\$(?P<path>.*)`)?")


def explain_mismatch(error: Exception, table: type) -> str:
    """The message of a table that does not fit its type, with the nearest key or word that would.

    error: what reading TOML or converting it raised. table: the msgspec type that was expected.
    """
    text = str(error)
    for pattern, known_at in ((_UNKNOWN_KEY, _keys_of), (_UNKNOWN_WORD, _words_of)):
        match = pattern.fullmatch(text)
        if match is not None:
            return (
                f"{text}.{did_you_mean(match['given'], known_at(_type_at(table, match['path'])))}"
            )
    return text


def _type_at(table: Any, path: str | None) -> Any:
    """The type at a path such as `.gate.bounds` or `.cases[...].gate`, as msgspec writes it."""
    for key, _ in re.findall(r"\.(\w+)|(\[.*?\])", path or ""):
        table = get_type_hints(table)[key] if key else get_args(table)[-1]
    return table


def _keys_of(table: Any) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(table)]


def _words_of(table: Any) -> list[str]:
    """The words of a Literal, also within a union or an alias."""
    if get_origin(table) is Literal:
        return [word for word in get_args(table) if isinstance(word, str)]
    return [word for part in get_args(table) for word in _words_of(part)]
