"""Text files of data sets: JSON, JSON Lines, CSV, TSV; errors name file, row and field."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Self, TypeVar

import msgspec

from pytest_cepbench.errors import DatasetError, unknown_name
from pytest_cepbench.files import open_regular, parse_json, parse_toml, read_regular

MOST_BYTES = 2**30
"""Of a JSON file, which is read as a whole: the published ones are a hundredth of it."""


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """The value in a file. Raises DatasetError when it cannot be read or names a key twice.

    most: largest size in bytes.
    """
    return _parse(_read(path, most), str(path))


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line's place ("FILE, line 3") and object; blank lines are passed over.

    Raises DatasetError when the file cannot be read, a line is no object, or it has half of a
    surrogate pair, which JSON can escape and no digest takes.
    """
    for number, line in enumerate(_read(path).split("\n"), 1):
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


def _read(path: Path, most: int = MOST_BYTES) -> str:
    try:
        return read_regular(path, most).decode("utf-8-sig")
    except OSError as error:
        raise DatasetError(f"file {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"file {str(path)!r} is not UTF-8 at byte {error.start}: save it as UTF-8"
        ) from error


def _parse(text: str, place: str) -> Any:
    try:
        return parse_json(text, _no_key_twice)
    except ValueError as error:
        raise DatasetError(f"{place}: not JSON: {error}") from error


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {twice!r} is there twice")
    return entries


ENCODINGS = ("utf-8", "latin-1")
"""Encodings that can be asked for; UTF-8 may begin with a byte order mark."""

MAX_ROW = 256 * 2**20
"""Longest row in bytes: more means a quote that is never closed, or no table."""

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class TableCell:
    """One field as it lies in the file.

    offset: of its first byte.
    raw: its bytes without the quotes around it; quotes inside a quoted field are still doubled.
    """

    offset: int
    raw: bytes
    quoted: bool


@dataclass(frozen=True)
class TableRow:
    """One row of a table.

    number: counted from 1, the header not counted.
    line: of the file, where the row begins.
    cells: by column.
    """

    path: Path
    number: int
    line: int
    cells: Mapping[str, TableCell]
    encoding: str = "utf-8"

    def where(self, column: str) -> str:
        """Row and column for a message."""
        return f"row {self.number} (line {self.line}), column {column!r}"

    def refuse(self, column: str, what: str) -> NoReturn:
        """Raises DatasetError: what is wrong with a cell, with file, row and column before it."""
        raise DatasetError(f"{self.path}, {self.where(column)}: {what}")

    def text(self, column: str) -> str:
        """The text of a cell. Raises DatasetError naming the byte that is not in the encoding."""
        return _decode(self.cells[column], self.encoding, f"{self.path}, {self.where(column)}")


def read_columns(path: Path, delimiter: str) -> tuple[str, ...]:
    """The names in the first row. Raises DatasetError when they cannot be read."""
    with _Lines(path) as lines:
        return _header(lines, delimiter, "utf-8")


def read_rows(
    path: Path, delimiter: str, needed: Sequence[str], encoding: str = "utf-8"
) -> Iterator[TableRow]:
    """The rows of a table, one in memory at a time; blank lines are passed over.

    needed: columns that must be there; others may.
    encoding: one of `ENCODINGS`.
    Raises DatasetError when the file cannot be read, has no such columns, or has a row with more or
    fewer fields than the header, with an unclosed quote, or with text behind a closing quote.
    """
    if encoding not in ENCODINGS:
        raise DatasetError(f"{path}: {unknown_name('encoding', encoding, ENCODINGS)}")
    with _Lines(path) as lines:
        columns = _header(lines, delimiter, encoding)
        missing = [name for name in needed if name not in columns]
        if missing:
            raise DatasetError(
                f"{path} has no column {', '.join(map(repr, missing))}; it has {list(columns)}"
            )
        for number, (line, cells) in enumerate(_records(lines, delimiter.encode()), 1):
            if len(cells) != len(columns):
                raise DatasetError(
                    f"{path}, row {number} (line {line}): {len(cells)} fields, the header has "
                    f"{len(columns)}: was the file cut short, or is a quote missing?"
                )
            yield TableRow(path, number, line, dict(zip(columns, cells, strict=True)), encoding)


class _Lines:
    """The lines of an open file, counted; holds the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0
        self.offset = 0

    def __enter__(self) -> Self:
        try:
            self._stream: BinaryIO = open_regular(self.path)
        except OSError as error:
            raise DatasetError(
                f"table {str(self.path)!r} cannot be read: {error.strerror}"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def next(self) -> bytes:
        """The next line with its end; empty at the end of the file."""
        try:
            line = self._stream.readline(MAX_ROW + 1)
        except OSError as error:
            raise DatasetError(
                f"table {str(self.path)!r} cannot be read: {error.strerror}"
            ) from error
        self.number += 1
        self.offset += len(line)
        return line


def _header(lines: _Lines, delimiter: str, encoding: str) -> tuple[str, ...]:
    first = next(_records(lines, delimiter.encode()), None)
    if first is None:
        raise DatasetError(
            f"table {str(lines.path)!r} is empty: a first row with the columns' names is expected"
        )
    names = [_decode(cell, encoding, f"{lines.path}, header") for cell in first[1]]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DatasetError(f"{lines.path} has more than one column {', '.join(map(repr, twice))}")
    return tuple(names)


def _decode(cell: TableCell, encoding: str, place: str) -> str:
    try:
        text = cell.raw.decode(encoding)
    except UnicodeDecodeError as error:
        at = cell.offset + error.start
        raise DatasetError(
            f"{place}: not UTF-8 at byte {at} of the file: save it as UTF-8, or give its encoding"
        ) from error
    return text.replace('""', '"') if cell.quoted else text


def _records(lines: _Lines, delimiter: bytes) -> Iterator[tuple[int, list[TableCell]]]:
    """Each row's first line and fields."""
    while True:
        start = lines.offset
        line = lines.next()
        if start == 0:
            if line.startswith(_UTF_16):
                raise DatasetError(f"{lines.path} is UTF-16: save it as UTF-8")
            start = len(line) - len(line.removeprefix(codecs.BOM_UTF8))
            line = line[start:]
        if not line:
            return
        number = lines.number
        if len(line) > MAX_ROW:
            raise _endless(lines, number)
        body = bytes(_without_end(line))
        if not body:
            continue
        if b'"' in body:
            yield number, _split_quoted(line, start, lines, delimiter)
        else:  # most rows of a table of images: nothing but the delimiters is looked at
            cells = []
            for raw in body.split(delimiter):
                cells.append(TableCell(start, raw, quoted=False))
                start += len(raw) + 1
            yield number, cells


def _split_quoted(line: bytes, start: int, lines: _Lines, delimiter: bytes) -> list[TableCell]:
    """The fields of a row that holds quotes; reads on where a quoted field holds line ends."""
    first, row, at = lines.number, bytearray(line), 0
    cells = []
    while True:
        quoted = row[at : at + 1] == b'"'
        if quoted:
            at = begin = at + 1
            while (end := row.find(b'"', at)) < 0 or row[end + 1 : end + 2] == b'"':
                if end >= 0:  # a doubled quote
                    at = end + 2
                    continue
                at = len(row)
                more = lines.next()
                row += more
                if not more or len(row) > MAX_ROW:
                    raise _endless(lines, first)
        else:
            begin, position = at, row.find(delimiter, at)
            end = position if position >= 0 else max(at, len(_without_end(row)))
        cells.append(TableCell(start + begin, bytes(row[begin:end]), quoted=quoted))
        at = end + quoted
        if row[at : at + 1] != delimiter:
            break
        at += 1
    if _without_end(row[at:]):
        raise DatasetError(
            f"{lines.path}, line {lines.number}: text behind a closing quote; quotes inside a "
            "quoted field are doubled"
        )
    return cells


def _endless(lines: _Lines, first: int) -> DatasetError:
    return DatasetError(
        f"{lines.path}: the row that begins in line {first} does not end within the file or "
        f"{MAX_ROW // 2**20} MiB: is a quote not closed?"
    )


def _without_end(line: bytes | bytearray) -> bytes | bytearray:
    return line.removesuffix(b"\n").removesuffix(b"\r")
