"""Pairs of image and caption in the layout of the Semantic Drift Protocol's code.

`text-first/gen-0.csv` holds the captions (columns filename, caption), `image-first/gen-0/` the
images; both are the starts of chains whose later generations lie beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_cepbench.datasets.paths import images_by_stem, some_of, stem, unsafe
from pytest_cepbench.datasets.sample import Dataset, FileImage, Sample
from pytest_cepbench.datasets.tables import TableRow, read_rows
from pytest_cepbench.errors import DatasetError

VERSION = 1


def load_sdp(
    path: Path,
    *,
    category: str = "nd400",
    category_column: str | None = None,
    encoding: str = "utf-8",
) -> Dataset:
    """The pairs of a data set, matched by file name without suffix; that name is the id.

    The authors' code sorts the two by name and matches them by position, so that a missing row
    shifts all that follow; here a caption without an image, or an image without a caption, is
    refused.
    path: the folder that holds text-first/ and image-first/. category: of all samples, unless
    category_column names a column of the CSV that tells. encoding: of the CSV, "utf-8" or "latin-1"
    (the authors' code reads UTF-8 files as Latin-1, which spoils every accent).
    Captions lose the white space around them.
    Raises DatasetError for what is missing, unpaired or there twice, for an empty caption or
    category, and for file names that are absolute or lead out of the folder.
    """
    columns = () if category_column is None else (category_column,)
    captions = read_captions(path / "text-first" / "gen-0.csv", encoding, columns)
    folder = path / "image-first" / "gen-0"
    images = images_by_stem(folder)
    _refuse_unpaired(path, captions.keys() - images.keys(), images.keys() - captions.keys())
    samples = []
    for name, caption in sorted(captions.items()):
        text = _filled(caption.row, "caption")
        home = category if category_column is None else _filled(caption.row, category_column)
        samples.append(Sample(name, (home,), image=FileImage(images[name]), text=text))
    return Dataset(
        name="sdp", identity={"loader": "sdp", "version": VERSION}, samples=tuple(samples)
    )


@dataclass(frozen=True)
class Caption:
    """One caption as it is written, and the row that holds it."""

    text: str
    row: TableRow


def read_captions(path: Path, encoding: str, columns: tuple[str, ...] = ()) -> dict[str, Caption]:
    """The captions of a CSV with columns filename and caption, by file name without suffix.

    columns: further ones that must be there. Raises DatasetError for a table that cannot be read, a
    name that is unsafe or there twice; an empty caption is given as it is.
    """
    found: dict[str, Caption] = {}
    for row in read_rows(path, ",", ("filename", "caption", *columns), encoding):
        name = row.text("filename")
        reason = unsafe(name)
        if reason is not None:
            row.refuse("filename", reason)
        key = stem(name)
        if key in found:
            other = found[key].row.number
            row.refuse("filename", f"{name!r} is there twice, row {other} has it already")
        found[key] = Caption(row.text("caption"), row)
    return found


def _filled(row: TableRow, column: str) -> str:
    text = row.text(column).strip()
    if not text:
        row.refuse(column, "empty: a chain cannot start from nothing")
    return text


def _refuse_unpaired(root: Path, lonely_captions: set[str], lonely_images: set[str]) -> None:
    wrong = []
    if lonely_captions:
        wrong.append(f"captions without an image: {some_of(lonely_captions)}")
    if lonely_images:
        wrong.append(f"images without a caption: {some_of(lonely_images)}")
    if wrong:
        msg = (
            f"{str(root)!r}: {'; '.join(wrong)} (text-first/gen-0.csv and image-first/gen-0/ are "
            f"paired by file name without suffix)"
        )
        raise DatasetError(msg)
