"""MMGenBench's pair of tables: a describer's predictions (TSV or XLSX), and images drawn of them.

VLMEvalKit writes `<model>_MMGenBench-Test.xlsx` with columns index, prediction and others; the
generation script writes `<generator>.tsv` with index and image (base64). Predictions are taken as
they are: what is cut from them before drawing is the suite's business.
"""

from __future__ import annotations

import importlib
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.datasets.mmgenbench import embedded_images, row_index
from pytest_cepbench.datasets.replay.layouts import Artifact, Layout, Replay, refuse_outside
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.sources.files import list_folder, some_of
from pytest_cepbench.datasets.sources.text_files import read_columns, read_rows
from pytest_cepbench.errors import DatasetError, MissingDependencyError
from pytest_cepbench.files import open_regular

MAX_BYTES = 256 * 2**20
"""Most that a workbook may unpack to: texts of 10,000 predictions are a tenth of it."""

_SUFFIXES = (".tsv", ".xlsx")


def _tables(path: Path) -> list[Path]:
    """The files that may be tables: the path itself, or those directly in the folder."""
    files = list_folder(path) if path.is_dir() else [path]
    # Office programs leave `~$name.xlsx` beside a workbook that is open.
    return [
        file
        for file in files
        if file.suffix.lower() in _SUFFIXES and not file.name.startswith("~$")
    ]


def _read(path: Path, params: Mapping[str, str]) -> Replay:
    root = path if path.is_dir() else path.parent
    tables = _tables(path)
    for table in tables:
        refuse_outside(root, table)
    predictions, images = [], []
    for table in tables:  # the benchmark's own table is neither
        workbook = table.suffix.lower() == ".xlsx"
        columns = sheet_columns(table) if workbook else read_columns(table, "\t")
        if "index" in columns and "prediction" in columns:
            predictions.append(table)
        elif set(columns) == {"index", "image"} and not workbook:
            images.append(table)
    texts = _one(root, "predictions", predictions, params)
    drawn = _one(root, "images", images, params)
    held: dict[tuple[Modality, int], Mapping[str, Artifact]] = {}
    if texts is not None:
        encoding = params.get("encoding", "utf-8")
        found: dict[int, str] = {}
        if texts.suffix.lower() == ".xlsx":
            found = _sheet_predictions(texts)
        else:
            for row in read_rows(texts, "\t", ("index", "prediction"), encoding):
                found[row_index(row, found)] = row.text("prediction")
        held["image", 1] = {str(index): text for index, text in found.items()}
    if drawn is not None:
        held["image", 2] = {str(index): image for index, image in embedded_images(drawn).items()}
    if not held:
        names = some_of(table.name for table in tables) or "no .tsv or .xlsx"
        raise DatasetError(
            f"{str(path)!r} holds {names}: a table with columns index and prediction, or index and "
            "image, is expected"
        )
    return Replay(MMGENBENCH.name, path, held, _names)


def _one(root: Path, what: str, tables: list[Path], params: Mapping[str, str]) -> Path | None:
    if what in params:
        return root / params[what]
    if len(tables) > 1:
        names = some_of(table.name for table in tables)
        raise DatasetError(
            f"{str(root)!r} holds several tables of {what}: {names}; name one with the parameter "
            f"{what}"
        )
    return tables[0] if tables else None


def _sheet_predictions(table: Path) -> dict[int, str]:
    predictions: dict[int, str] = {}
    for number, (index, text) in read_sheet(table, ("index", "prediction")):
        place = f"{table}, row {number}, column 'index'"
        if not re.fullmatch(r"[0-9]{1,18}(\.0)?", index.strip()):  # 7.0 is how Excel may keep a 7
            raise DatasetError(f"{place}: a whole number is expected, got {index[:80]!r}")
        own = int(index.strip().removesuffix(".0"))
        if own in predictions:
            raise DatasetError(f"{place}: {own} is there twice: keep one of the rows")
        predictions[own] = text
    return predictions


def _names(sample: Sample) -> tuple[str, ...]:
    return (str(int(sample.id)),) if re.fullmatch(r"[0-9]{1,18}", sample.id) else ()


MMGENBENCH = Layout(
    name="mmgenbench",
    says=(
        "a table with index and prediction (TSV, XLSX) and a TSV with index and image (MMGenBench)"
    ),
    params=("predictions", "images", "encoding"),
    fits=lambda path: bool(_tables(path)),
    read=_read,
)


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
            raise DatasetError(f"{path}: one column {missing[0]!r} is expected; it has {names}")
        places = [names.index(name) for name in columns]
        for number, row in enumerate(rows, 2):
            if any(value is not None for value in row):
                yield number, tuple(_text(row[at] if at < len(row) else None) for at in places)


@contextmanager
def _first_sheet(path: Path) -> Iterator[Iterator[tuple[Any, ...]]]:
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ImportError as error:
        raise MissingDependencyError(
            f"{path}: reading .xlsx needs openpyxl: pip install openpyxl, or save it as .tsv"
        ) from error
    try:
        # The file is opened here because openpyxl leaves it open when it is damaged.
        stream = open_regular(path, MAX_BYTES)
    except OSError as error:
        raise _damaged(path, error) from error
    with stream, warnings.catch_warnings():
        try:
            with zipfile.ZipFile(stream) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
        except Exception as error:
            # Of a damaged archive zipfile raises errors of struct, of codecs and others beside its
            # own.
            raise _damaged(path, error) from error
        if size > MAX_BYTES:
            raise DatasetError(
                f"workbook {str(path)!r} unpacks to {size:,} bytes; the limit is {MAX_BYTES:,}"
            )
        # openpyxl warns of styles and extensions that it drops: only texts are wanted here.
        warnings.simplefilter("ignore", UserWarning)
        try:
            sheet = openpyxl.load_workbook(stream, read_only=True).worksheets[0]
            sheet.reset_dimensions()  # some writers store a wrong size, which would cut rows off
        except Exception as error:
            raise _damaged(path, error) from error  # KeyError, ParseError and others alike

        def rows() -> Iterator[tuple[Any, ...]]:
            try:
                yield from sheet.iter_rows(values_only=True)
            except Exception as error:
                raise _damaged(path, error) from error  # the XML is read as the rows are

        yield rows()


def _damaged(path: Path, error: Exception) -> DatasetError:
    return DatasetError(f"workbook {str(path)!r} cannot be read: {error}")


def _text(value: object) -> str:
    return "" if value is None else str(value)
