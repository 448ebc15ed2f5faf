"""JSON objects in the replies of models: the whole reply, else those that stand in its text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any


class Repeated:
    """Stands for the value of a key that an object has twice."""

    def __repr__(self) -> str:
        return "a key that is given twice"


def parse_reply(text: str) -> Any:
    """The JSON document of a text, with `Repeated` for keys that an object has twice.

    Raises ValueError, RecursionError where it is none.
    """
    return json.loads(text, object_pairs_hook=_pairs)


def read_objects(reply: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a reply: the reply itself, else those in it that are not part of another."""
    document = _parse(reply)
    if isinstance(document, dict):
        yield document
        return
    for text in _balanced(reply):
        document = _parse(text)
        if isinstance(document, dict):
            yield document


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in pairs:
        document[key] = Repeated() if key in document else value
    return document


def _parse(text: str) -> Any:
    """The JSON document of a text; None where it is none."""
    try:
        return parse_reply(text)
    except (ValueError, RecursionError):
        return None


_TOKEN = re.compile(r'[{}]|"(?:[^"\\]|\\[\s\S])*+(?:"|\Z)')
"""A brace, or a string of JSON, in which braces do not count."""


def _balanced(text: str) -> Iterator[str]:
    """Every `{...}` with as many closing as opening braces outside of strings, in one pass."""
    start = text.find("{")
    while start >= 0:
        depth, end = 0, len(text)
        for token in _TOKEN.finditer(text, start):
            depth += {"{": 1, "}": -1}.get(token[0], 0)
            if depth == 0:
                end = token.end()
                yield text[start:end]
                break
        start = text.find("{", end)
