"""MMGenBench's pair of tables: a describer's predictions (TSV or XLSX) and the images drawn of them.

VLMEvalKit writes `<model>_MMGenBench-Test.xlsx` with columns index, prediction and others; the
generation script writes `<generator>.tsv` with index and image (base64). Predictions are taken as
they are: what is cut from them before drawing is the suite's business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pytest_cepbench.datasets.mmgenbench import embedded_images, row_index
from pytest_cepbench.datasets.paths import list_folder, some_of
from pytest_cepbench.datasets.replay.files import refuse_outside
from pytest_cepbench.datasets.replay.record import Artifact, Layout, Replay, Start
from pytest_cepbench.datasets.replay.workbook import read_sheet, sheet_columns
from pytest_cepbench.datasets.sample import Sample
from pytest_cepbench.datasets.tables import read_columns, read_rows
from pytest_cepbench.errors import DatasetError

_SUFFIXES = (".tsv", ".xlsx")


def _fits(path: Path) -> bool:
    return bool(_tables(path))


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
    predictions, images = _sort(tables)
    texts = _one(root, "predictions", predictions, params)
    drawn = _one(root, "images", images, params)
    held: dict[tuple[Start, int], Mapping[str, Artifact]] = {}
    if texts is not None:
        held["image", 1] = _predictions(texts, params.get("encoding", "utf-8"))
    if drawn is not None:
        held["image", 2] = {str(index): image for index, image in embedded_images(drawn).items()}
    if not held:
        names = some_of(table.name for table in tables) or "no .tsv or .xlsx"
        msg = f"{str(path)!r} holds {names}: a table with columns index and prediction, or index and image, is expected"
        raise DatasetError(msg)
    return Replay(LAYOUT.name, path, held, _names)


def _sort(tables: list[Path]) -> tuple[list[Path], list[Path]]:
    """Tables of predictions, tables of drawn images; the benchmark's own table is neither."""
    predictions, images = [], []
    for table in tables:
        workbook = table.suffix.lower() == ".xlsx"
        columns = sheet_columns(table) if workbook else read_columns(table, "\t")
        if "index" in columns and "prediction" in columns:
            predictions.append(table)
        elif set(columns) == {"index", "image"} and not workbook:
            images.append(table)
    return predictions, images


def _one(root: Path, what: str, tables: list[Path], params: Mapping[str, str]) -> Path | None:
    if what in params:
        return root / params[what]
    if len(tables) > 1:
        names = some_of(table.name for table in tables)
        msg = f"{str(root)!r} holds several tables of {what}: {names}; name one with the parameter {what}"
        raise DatasetError(msg)
    return tables[0] if tables else None


def _predictions(table: Path, encoding: str) -> Mapping[str, Artifact]:
    if table.suffix.lower() == ".xlsx":
        return _sheet_predictions(table)
    found: dict[int, str] = {}
    for row in read_rows(table, "\t", ("index", "prediction"), encoding):
        found[row_index(row, found)] = row.text("prediction")
    return {str(index): text for index, text in found.items()}


def _sheet_predictions(table: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, (index, text) in read_sheet(table, ("index", "prediction")):
        place = f"{table}, row {number}, column 'index'"
        if not re.fullmatch(r"[0-9]{1,18}(\.0)?", index.strip()):  # 7.0 is how Excel may keep a 7
            msg = f"{place}: a whole number is expected, got {index[:80]!r}"
            raise DatasetError(msg)
        name = str(int(index.strip().removesuffix(".0")))
        if name in found:
            msg = f"{place}: {name} is there twice: keep one of the rows"
            raise DatasetError(msg)
        found[name] = text
    return found


def _names(sample: Sample) -> tuple[str, ...]:
    return (str(int(sample.id)),) if re.fullmatch(r"[0-9]{1,18}", sample.id) else ()


LAYOUT = Layout(
    name="mmgenbench",
    says="a table with index and prediction (TSV, XLSX) and a TSV with index and image (MMGenBench)",
    params=("predictions", "images", "encoding"),
    fits=_fits,
    read=_read,
)
