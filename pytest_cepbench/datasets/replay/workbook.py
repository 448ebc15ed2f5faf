"""XLSX workbooks: the first sheet as texts, read with openpyxl where it is installed."""

from __future__ import annotations

import importlib
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pytest_cepbench.errors import DatasetError, MissingDependencyError
from pytest_cepbench.files import open_regular

MAX_BYTES = 256 * 2**20
"""Most that a workbook may unpack to: texts of 10,000 predictions are a tenth of it."""


def sheet_columns(path: Path) -> tuple[str, ...]:
    """The names in the first row of the first sheet. Raises as `read_sheet`."""
    with _first_sheet(path) as rows:
        return tuple(map(_text, next(rows, ())))


def read_sheet(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Row number (as the program shows it) and texts of these columns; blank rows are passed over.

    Cells that hold numbers are written out; an empty cell is "", and a text that begins with "=" is
    given as it stands, as nothing is computed.
    Raises MissingDependencyError without openpyxl, DatasetError for what is no workbook, is too
    large, or has no such columns.
    """
    with _first_sheet(path) as rows:
        names = list(map(_text, next(rows, ())))
        missing = [name for name in columns if names.count(name) != 1]
        if missing:
            msg = f"{path}: one column {missing[0]!r} is expected; it has {names}"
            raise DatasetError(msg)
        places = [names.index(name) for name in columns]
        for number, row in enumerate(rows, 2):
            if any(value is not None for value in row):
                yield number, tuple(_text(row[at] if at < len(row) else None) for at in places)


@contextmanager
def _first_sheet(path: Path) -> Iterator[Iterator[tuple[Any, ...]]]:
    openpyxl = _openpyxl(path)
    try:
        # The file is opened here because openpyxl leaves it open when it is damaged.
        stream = open_regular(path, MAX_BYTES)
    except OSError as error:
        raise _damaged(path, error) from error
    with stream, warnings.catch_warnings():
        _refuse_bomb(path, stream)
        # openpyxl warns of styles and extensions that it drops: only texts are wanted here.
        warnings.simplefilter("ignore", UserWarning)
        try:
            sheet = openpyxl.load_workbook(stream, read_only=True).worksheets[0]
            sheet.reset_dimensions()  # some writers store a wrong size, which would cut rows off
        except Exception as error:
            raise _damaged(path, error) from error  # KeyError, ParseError and others alike
        yield _guarded(path, sheet.iter_rows(values_only=True))


def _guarded(path: Path, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    try:
        yield from rows
    except Exception as error:
        raise _damaged(path, error) from error  # the XML is read as the rows are


def _damaged(path: Path, error: Exception) -> DatasetError:
    return DatasetError(f"workbook {str(path)!r} cannot be read: {error}")


def _openpyxl(path: Path) -> Any:
    try:
        return importlib.import_module("openpyxl")
    except ImportError as error:
        msg = f"{path}: reading .xlsx needs openpyxl: pip install openpyxl, or save it as .tsv"
        raise MissingDependencyError(msg) from error


def _refuse_bomb(path: Path, stream: BinaryIO) -> None:
    """Raises DatasetError when the file is no archive or says that it unpacks to too much."""
    try:
        with zipfile.ZipFile(stream) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except (OSError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from error
    if size > MAX_BYTES:
        msg = f"workbook {str(path)!r} unpacks to {size:,} bytes; the limit is {MAX_BYTES:,}"
        raise DatasetError(msg)


def _text(value: object) -> str:
    return "" if value is None else str(value)
