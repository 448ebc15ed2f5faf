"""Text files of data sets: JSON, JSON Lines, CSV, TSV; errors name file, row and field."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from pytest_cepbench.errors import DatasetError, few_of
from pytest_cepbench.files import open_regular, parse_json, parse_toml, read_regular

MOST_BYTES = 2**30
"""Of a JSON file, which is read as a whole: the published ones are a hundredth of it."""


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """The value in a file. Raises DatasetError when it cannot be read or names a key twice.

    most: largest size in bytes.
    """
    return _parse(read_utf8(path, most), str(path))


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line's place ("FILE, line 3") and object; blank lines are passed over.

    Raises DatasetError when the file cannot be read, a line is no object, or it has half of a
    surrogate pair, which JSON can escape and no digest takes.
    """
    for number, line in enumerate(read_utf8(path).split("\n"), 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        value = _parse(line, place)
        if not isinstance(value, dict):
            raise DatasetError(f"{place}: an object is expected, got {type(value).__name__}")
        if _SURROGATE.search(line) is not None:
            try:
                json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                half = error.object[error.start]
                raise DatasetError(f"{place}: {half!r} is half of a surrogate pair") from error
        yield place, value


T = TypeVar("T")

_NOT_EMPTY = r"Expected `str` matching regex '\\S'"
"""msgspec's words for a text without a character that is no space."""


def convert_record(place: str, value: object, kind: type[T]) -> T:
    """A value of a JSON file as a struct, or as another type that msgspec knows.

    place: file and record, for messages.
    Raises DatasetError naming place and field for a field that is missing, unknown or of another
    type.
    """
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter of half surrogates
        what, _, field = str(error).partition(" - at `$")
        what = what.replace(_NOT_EMPTY, "a text is expected that is not empty")
        at = f", {field.strip('.`')}" if field else ""
        raise DatasetError(f"{place}{at}: {' '.join(what.split())[:200]}") from error


def read_toml(path: Path, most: int) -> dict[str, Any]:
    """The tables of a TOML file of at most so many bytes. Raises DatasetError, in one line."""
    try:
        return parse_toml(read_regular(path, most))
    except OSError as error:
        raise DatasetError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DatasetError(f"{str(path)!r} is no TOML: {' '.join(str(error).split())}") from error


def read_utf8(path: Path, most: int = MOST_BYTES, what: str = "file") -> str:
    """The text of a file of at most so many bytes; what: its kind. Raises DatasetError."""
    try:
        return read_regular(path, most).decode("utf-8-sig")
    except OSError as error:
        raise DatasetError(f"{what} {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{what} {str(path)!r} is not UTF-8 at byte {error.start}: save it as UTF-8"
        ) from error


def _parse(text: str, place: str) -> Any:
    def entries_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for key, value in pairs:
            if key in entries:
                raise ValueError(f"key {key!r} is there twice")
            entries[key] = value
        return entries

    try:
        return parse_json(text, entries_of)
    except ValueError as error:
        raise DatasetError(f"{place}: not JSON: {error}") from error


MAX_ROW = 256 * 2**20
"""Longest row in bytes: more means a quote that is never closed, or no table."""

csv.field_size_limit(MAX_ROW)  # images in base64 are longer than the module's default of 128 KiB


@dataclass(frozen=True)
class TableRow:
    """One row of a table.

    number: counted from 1, the header not counted.
    line: of the file, where the row begins.
    offset, length: of its bytes in the file.
    cells: by column.
    """

    path: Path
    number: int
    line: int
    offset: int
    length: int
    cells: Mapping[str, bytes]

    def where(self, column: str) -> str:
        """Row and column for a message."""
        return f"row {self.number} (line {self.line}), column {column!r}"

    def refuse(self, column: str, what: str) -> NoReturn:
        """Raises DatasetError: what is wrong with a cell, with file, row and column before it."""
        raise DatasetError(f"{self.path}, {self.where(column)}: {what}")

    def text(self, column: str) -> str:
        """The text of a cell. Raises DatasetError where it is not UTF-8."""
        try:
            return self.cells[column].decode()
        except UnicodeDecodeError:
            self.refuse(column, "not UTF-8: save the file as UTF-8")


def read_rows(path: Path, delimiter: str, needed: Sequence[str] = ()) -> Iterator[TableRow]:
    """The rows of a table, one in memory at a time; blank lines are passed over.

    needed: columns that must be there; others may.
    Raises DatasetError when the file cannot be read, has no such columns, or has a row with more or
    fewer fields than the header, with an unclosed quote, or with text behind a closing quote.
    """
    records = _records(path, delimiter)
    columns = _column_names(path, next(records)[3], needed)
    for number, (line, offset, length, cells) in enumerate(records, 1):
        if len(cells) != len(columns):
            raise DatasetError(
                f"{path}, row {number} (line {line}): {len(cells)} fields, the header has "
                f"{len(columns)}: was the file cut short, or is a quote missing?"
            )
        row = dict(zip(columns, cells, strict=True))
        yield TableRow(path, number, line, offset, length, row)


def read_columns(path: Path, delimiter: str) -> list[str]:
    """The names in the first row. Raises DatasetError."""
    return _column_names(path, next(_records(path, delimiter))[3], ())


def split_row(
    raw: bytes, delimiter: str, lines: Callable[[], Iterable[str]] | None = None
) -> list[bytes]:
    """The fields of a row, with its line end; doubled quotes are one. Raises ValueError.

    lines: those of the row, the first of which is `raw`; None where that is all of it.
    """
    if b'"' not in raw:  # most rows of a table of images: nothing but the delimiters is looked at
        return raw.rstrip(b"\r\n").split(delimiter.encode())
    parts = [raw.decode("latin-1")] if lines is None else lines()
    try:
        cells = next(csv.reader(parts, delimiter=delimiter, strict=True))
        return [cell.encode("latin-1") for cell in cells]
    except csv.Error as error:
        raise ValueError(str(error)) from error


def _column_names(path: Path, cells: Sequence[bytes], needed: Sequence[str]) -> list[str]:
    try:
        names = [cell.decode() for cell in cells]
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}, header: not UTF-8: save the file as UTF-8") from error
    missing = [name for name in needed if name not in names]
    if missing:
        known = few_of(f"{name!r:.60}" for name in names)  # an image, where the header is missing
        missed = ", ".join(map(repr, missing))
        raise DatasetError(f"{path} has no column {missed}; it has {known}")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DatasetError(f"{path} has more than one column {', '.join(map(repr, twice))}")
    return names


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, int, int, list[bytes]]]:
    """First line, offset, length and fields of each row, the header at least; one that holds quotes
    may go over several lines.
    """
    number, offset, empty = 0, len(codecs.BOM_UTF8), True
    try:
        with open_regular(path) as stream:
            if stream.read(offset) != codecs.BOM_UTF8:
                offset = stream.seek(0)
            while line := stream.readline(MAX_ROW + 1):
                lines, length = 1, len(line)
                if length > MAX_ROW:
                    raise DatasetError(
                        f"{path}, line {number + 1}: it is longer than {MAX_ROW // 2**20} MiB: is "
                        "a quote not closed?"
                    )

                def row(first: bytes = line) -> Iterator[str]:
                    """The line, and those that the reader asks for behind it."""
                    nonlocal lines, length
                    yield first.decode("latin-1")
                    while length <= MAX_ROW and (more := stream.readline(MAX_ROW + 1)):
                        lines, length = lines + 1, length + len(more)
                        yield more.decode("latin-1")

                try:
                    cells = split_row(line, delimiter, row)
                except ValueError as error:
                    raise DatasetError(
                        f"{path}, line {number + 1}: {error}: is a quote not closed, or not "
                        "doubled inside a quoted field?"
                    ) from error
                if cells not in ([], [b""]):
                    empty = False
                    yield number + 1, offset, length, cells
                number, offset = number + lines, offset + length
    except OSError as error:
        raise DatasetError(f"table {str(path)!r} cannot be read: {error.strerror}") from error
    if empty:
        raise DatasetError(
            f"table {str(path)!r} is empty: a first row with the columns' names is expected"
        )
