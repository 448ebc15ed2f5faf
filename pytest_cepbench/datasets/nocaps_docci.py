"""Nocaps+Docci400, the Semantic Drift Protocol's 400 pairs of image and caption, in both its forms.

Either in the layout of the authors' code: `text-first/gen-0.csv` holds the captions (columns
filename, caption), `image-first/gen-0/` the images, and later generations of chains lie beside
them. Or as the published list of 400 ids (200 of each source), joined to local copies of NoCaps and
DOCCI.
The authors' code passes over ids that it does not find, and pairs files by position; here unknown
ids are refused and files are paired by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from pytest_cepbench.datasets.sample import Dataset, FileImage, Sample
from pytest_cepbench.datasets.sources.files import images_by_stem, only_file, some_of, stem, unsafe
from pytest_cepbench.datasets.sources.text_files import (
    TableRow,
    convert_record,
    read_json,
    read_json_lines,
    read_rows,
)
from pytest_cepbench.errors import DatasetError, unknown_name

VERSION = 1
"""Of both loaders: part of a data set's identity."""

_LISTS = (".csv", ".jsonl", ".jsonlines")


def load_pairs(path: Path, *, category: str = "nd400") -> Dataset:
    """Pairs of image and caption, in either form; captions lose the white space around them.

    path: the folder that holds text-first/ and image-first/, whose pairs are matched by file name
    without suffix, which is the id; else the list of ids, CSV or JSON Lines with source and
    image_id, or the folder that holds it, and the copies in docci/ and nocaps/ beside it, with
    their images in images/.
    category: of all samples, in the layout of the authors' code.
    The first caption of each image counts. DOCCI is listed by example id, NoCaps by image id or by
    file name without suffix.
    Raises DatasetError for what is missing, unpaired or there twice, for an empty caption, and for
    file names that are absolute or lead out of the folder; for a list or annotations that cannot be
    read, unknown sources, and pairs that are not in the copies (their number, the first few, and
    the folders).
    """
    if not ((path / "text-first").is_dir() or (path / "image-first").is_dir()):
        return _load_listed(path)
    captions = read_captions(path / "text-first" / "gen-0.csv")
    images = images_by_stem(path / "image-first" / "gen-0")
    if unpaired := captions.keys() ^ images.keys():
        raise DatasetError(
            f"{str(path)!r}: captions without an image, or images without a caption: "
            f"{some_of(unpaired)} (text-first/gen-0.csv and image-first/gen-0/ are paired by file "
            "name without suffix)"
        )
    samples = []
    for name, row in sorted(captions.items()):
        text = row.text("caption").strip()
        if not text:
            row.refuse("caption", "empty: a chain cannot start from nothing")
        samples.append(Sample(name, (category,), image=FileImage(images[name]), text=text))
    return Dataset("sdp", {"loader": "sdp", "version": VERSION}, tuple(samples))


def read_captions(path: Path) -> dict[str, TableRow]:
    """The rows of a CSV with columns filename and caption, by file name without suffix.

    Raises DatasetError for a table that cannot be read, a name that is unsafe or there twice; an
    empty caption is given as it is.
    """
    rows: dict[str, TableRow] = {}
    for row in read_rows(path, ",", ("filename", "caption")):
        name = row.text("filename")
        if reason := unsafe(name):
            row.refuse("filename", reason)
        if other := rows.get(stem(name)):
            row.refuse("filename", f"{name!r} is there twice, row {other.number} has it already")
        rows[stem(name)] = row
    return rows


class _Listed(msgspec.Struct):
    source: str
    id: str | int = msgspec.field(name="image_id")


class _Described(msgspec.Struct):
    id: str = msgspec.field(name="example_id")
    file: str = msgspec.field(name="image_file")
    caption: str = msgspec.field(name="description")


class _Image(msgspec.Struct):
    id: int
    file: str = msgspec.field(name="file_name")


class _Annotation(msgspec.Struct):
    image: int = msgspec.field(name="image_id")
    caption: str


class _Coco(msgspec.Struct):
    images: list[_Image]
    annotations: list[_Annotation]


_Pair = tuple[Path, str]
"""File of an image, and its caption; empty where it has none."""


def _load_listed(path: Path) -> Dataset:
    """The listed pairs, from local copies."""
    what = f"id list ({', '.join(_LISTS)})"
    table = path if path.is_file() else only_file(path, _LISTS, what, "name it itself")
    wanted: dict[str, str] = {}
    for place, source, name in _listed(table):
        if source not in _READERS:
            raise DatasetError(f"{place}: {unknown_name('source', source, sorted(_READERS))}")
        if not name or name in wanted:
            why = f"{name!r} is there twice" if name else "is empty"
            raise DatasetError(f"{place}: image_id {why}")
        wanted[name] = source
    copies = {s: _READERS[s](table.parent / s) for s in sorted({*wanted.values()})}
    samples, missing = [], []
    for name, source in sorted(wanted.items()):
        image, caption = copies[source].get(name, (None, ""))
        if image is None:
            missing.append(f"{source} {name}: not annotated")
        elif not caption:
            missing.append(f"{source} {name}: no caption")
        elif not image.is_file():
            missing.append(f"{source} {name}: no file {image.name}")
        else:
            samples.append(Sample(name, (source,), image=FileImage(image), text=caption))
    if missing:
        raise DatasetError(
            f"{len(missing)} of the {len(wanted)} pairs listed in {str(table)!r} are not in "
            f"{' and '.join(copies)} beside it: {some_of(missing)}"
        )
    return Dataset("nd400", {"loader": "nd400", "version": VERSION}, tuple(samples))


def _listed(table: Path) -> Iterator[tuple[str, str, str]]:
    """Place, source and id of each entry, white space and capitals of the source taken off."""
    if table.suffix.lower() == ".csv":
        for row in read_rows(table, ",", ("source", "image_id")):
            place = f"{table}, row {row.number} (line {row.line})"
            yield place, row.text("source").strip().lower(), row.text("image_id").strip()
        return
    for place, value in read_json_lines(table):
        entry = convert_record(place, value, _Listed)
        yield place, entry.source.strip().lower(), str(entry.id).strip()


def _docci(folder: Path) -> dict[str, _Pair]:
    """Every described image of a copy of DOCCI, by example id."""
    pairs: dict[str, _Pair] = {}
    for place, value in read_json_lines(folder / "docci_descriptions.jsonlines"):
        entry = convert_record(place, value, _Described)
        if entry.id in pairs:
            raise DatasetError(f"{place}: example_id {entry.id!r} is there twice")
        if reason := unsafe(entry.file):
            raise DatasetError(f"{place}, image_file: {reason}")
        pairs[entry.id] = folder / "images" / entry.file, entry.caption.strip()
    return pairs


def _nocaps(folder: Path) -> dict[str, _Pair]:
    """Every image of a copy of NoCaps, by its annotations' id and by its file's name."""
    file = only_file(folder, (".json",), ".json with NoCaps' captions", "leave that one there")
    tables = convert_record(str(file), read_json(file), _Coco)
    captions: dict[int, str] = {}
    for entry in tables.annotations:
        captions.setdefault(entry.image, entry.caption.strip())
    by_id: dict[str, _Pair] = {}
    by_stem: dict[str, _Pair] = {}
    for number, image in enumerate(tables.images):
        place = f"{file}, images[{number}]"
        if reason := unsafe(image.file):
            raise DatasetError(f"{place}.file_name: {reason}")
        if str(image.id) in by_id or stem(image.file) in by_stem:
            raise DatasetError(f"{place}: image {image.id} ({image.file!r}) is there twice")
        pair = folder / "images" / image.file, captions.get(image.id, "")
        by_id[str(image.id)] = by_stem[stem(image.file)] = pair
    return by_stem | by_id


_READERS = {"docci": _docci, "nocaps": _nocaps}
