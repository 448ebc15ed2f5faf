"""JSON and JSON Lines files of data sets, with errors that name file and line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import DatasetError
from pytest_cepbench.files import parse_json, read_regular

MOST_BYTES = 2**30
"""Of a JSON file, which is read as a whole: the published ones are a hundredth of it."""


def read_json(path: Path) -> Any:
    """The value in a file. Raises DatasetError when it cannot be read or names a key twice."""
    return _parse(_read(path), str(path))


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line's place ("FILE, line 3") and object; blank lines are passed over.

    Raises DatasetError when the file cannot be read or a line is no object.
    """
    for number, line in enumerate(_read(path).split("\n"), 1):
        if line.strip():
            place = f"{path}, line {number}"
            value = _parse(line, place)
            if not isinstance(value, dict):
                msg = f"{place}: an object is expected, got {type(value).__name__}"
                raise DatasetError(msg)
            yield place, value


def _read(path: Path) -> str:
    try:
        return read_regular(path, MOST_BYTES).decode("utf-8-sig")
    except OSError as error:
        msg = f"file {str(path)!r} cannot be read: {error.strerror}"
        raise DatasetError(msg) from error
    except UnicodeDecodeError as error:
        msg = f"file {str(path)!r} is not UTF-8 at byte {error.start}: save it as UTF-8"
        raise DatasetError(msg) from error


def _parse(text: str, place: str) -> Any:
    try:
        return parse_json(text, _no_key_twice)
    except ValueError as error:
        msg = f"{place}: not JSON: {error}"
        raise DatasetError(msg) from error


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        msg = f"key {twice!r} is there twice"
        raise ValueError(msg)
    return entries
