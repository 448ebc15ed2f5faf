"""MMGenBench's tables: images as base64 in a TSV, several patterns per image in a JSON beside it.

Huang et al., 2024: MMGenBench-Test (1,284 images, 13 patterns) and MMGenBench-Domain (10,000).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pytest_cepbench.datasets.folder import ROOT_CATEGORY
from pytest_cepbench.datasets.sample import Dataset, EmbeddedImage, Sample
from pytest_cepbench.datasets.sources.files import only_file, some_of
from pytest_cepbench.datasets.sources.text_files import (
    TableRow,
    convert_record,
    read_json,
    read_rows,
)
from pytest_cepbench.errors import DatasetError

VERSION = 1

UNLABELLED = "unlabelled"
"""Category of images that a label index does not name: they count overall, in no pattern."""


def load_mmgenbench(path: Path, *, labels: str | None = None, file: str | None = None) -> Dataset:
    """The images of a table, whose rows are looked through once and read when they are needed.

    path: the table, or its folder.
    file: the table's name in its folder, which may hold several.
    labels: name of the label index in the table's folder (`{"Surreal": [0, 7, ...], ...}`); an
    image is in each pattern that lists it, patterns in alphabetical order. Without one (Domain has
    none) all images are in one category, "images".
    Ids are the table's indices with at least six digits, so that their order is the numbers'.
    Raises DatasetError for a table without `index` and `image`, an index that is no whole number or
    there twice, an empty image, a row with too few fields, and a label index that cannot be read or
    lists images that are not there. Whether an image decodes shows when it is loaded.
    """
    table = path
    if path.is_dir() and file is not None:
        table = path / file
    elif path.is_dir():
        table = only_file(path, (".tsv",), ".tsv", "name it with the option file")
    images = embedded_images(table)
    fallback = ROOT_CATEGORY if labels is None else UNLABELLED
    patterns: dict[int, list[str]] = {}
    if labels is not None:
        index = table.parent / labels
        members_of = convert_record(str(index), read_json(index), dict[str, Any])
        for pattern, value in sorted(members_of.items()):
            if not pattern.strip():
                raise DatasetError(f"{index}: a pattern without a name")
            place = f"{index}, pattern {pattern!r}"
            members = convert_record(place, value, set[int])
            if absent := members - images.keys():
                raise DatasetError(f"{place}: no row has index {some_of(map(str, absent))}")
            for member in members:
                patterns.setdefault(member, []).append(pattern)
    samples = [
        Sample(f"{number:06}", tuple(patterns.get(number, ())) or (fallback,), image=image)
        for number, image in images.items()
    ]
    return Dataset(
        name="mmgenbench",
        identity={"loader": "mmgenbench", "version": VERSION, "labels": labels is not None},
        samples=tuple(samples),
    )


def embedded_images(table: Path) -> dict[int, EmbeddedImage]:
    """The images of a TSV with columns `index` and `image` by index, in order of rows.

    Raises DatasetError as `load_mmgenbench`.
    """
    images: dict[int, EmbeddedImage] = {}
    for row in read_rows(table, "\t", ("index", "image")):
        index = row_index(row, images)
        if not row.cells["image"].strip():
            row.refuse("image", "empty: an image in base64 is expected")
        column = list(row.cells).index("image")
        images[index] = EmbeddedImage(table, row.offset, row.length, column, row.where("image"))
    return images


def row_index(row: TableRow, taken: Collection[int]) -> int:
    """The whole number in a row's `index`. Raises DatasetError when it is none or taken already."""
    text = row.text("index").strip()
    if re.fullmatch(r"[0-9]{1,18}", text) is None:
        row.refuse("index", f"a whole number is expected, got {text[:80]!r}")
    index = int(text)
    if index in taken:
        row.refuse("index", f"{index} is there twice: keep one of the rows")
    return index
