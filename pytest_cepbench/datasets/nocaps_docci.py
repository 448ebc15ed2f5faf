"""Nocaps+Docci400, the Semantic Drift Protocol's 400 pairs of image and caption, in both its forms.

Either in the layout of the authors' code: `text-first/gen-0.csv` holds the captions (columns
filename, caption), `image-first/gen-0/` the images, and later generations of chains lie beside
them. Or as the published list of 400 ids (200 of each source), joined to local copies of NoCaps and
DOCCI.
The authors' code passes over ids that it does not find, and pairs files by position; here unknown
ids are refused and files are paired by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pytest_cepbench.datasets.sample import Dataset, FileImage, Sample
from pytest_cepbench.datasets.sources.files import (
    images_by_stem,
    only_file,
    some_of,
    stem,
    unsafe,
)
from pytest_cepbench.datasets.sources.text_files import (
    TableRow,
    read_json,
    read_json_lines,
    read_rows,
)
from pytest_cepbench.errors import DatasetError, unknown_name

VERSION = 1
"""Of both loaders: part of a data set's identity."""

SOURCES = ("docci", "nocaps")

_LISTS = (".csv", ".jsonl", ".jsonlines")


def load_pairs(
    path: Path,
    *,
    category: str = "nd400",
    encoding: str = "utf-8",
    docci: str = "docci",
    nocaps: str = "nocaps",
    ids: str | None = None,
) -> Dataset:
    """The pairs in the layout of the authors' code, or their list of ids joined to local copies.

    path: a folder with text-first/ and image-first/ (see `load_sdp`), else the list or its folder
        (see `load_nd400`).
    category: of all samples, in the layout of the authors' code.
    encoding: of the CSV, in that layout.
    docci, nocaps: folders of the copies, beside the list of ids.
    ids: file name of the list of ids; the only one when None.
    Raises DatasetError as they do.
    """
    if (path / "text-first").is_dir() or (path / "image-first").is_dir():
        return load_sdp(path, category=category, encoding=encoding)
    return load_nd400(path, docci=docci, nocaps=nocaps, ids=ids)


def load_sdp(path: Path, *, category: str = "nd400", encoding: str = "utf-8") -> Dataset:
    """The pairs of a data set, matched by file name without suffix; that name is the id.

    The authors' code sorts the two by name and matches them by position, so that a missing row
    shifts all that follow; here a caption without an image, or an image without a caption, is
    refused.
    path: the folder that holds text-first/ and image-first/.
    category: of all samples.
    encoding: of the CSV, "utf-8" or "latin-1" (the authors' code reads UTF-8 files as Latin-1,
    which spoils every accent).
    Captions lose the white space around them.
    Raises DatasetError for what is missing, unpaired or there twice, for an empty caption, and for
    file names that are absolute or lead out of the folder.
    """
    captions = read_captions(path / "text-first" / "gen-0.csv", encoding)
    folder = path / "image-first" / "gen-0"
    images = images_by_stem(folder)
    _refuse_unpaired(path, captions.keys() - images.keys(), images.keys() - captions.keys())
    samples = []
    for name, caption in sorted(captions.items()):
        text = caption.text.strip()
        if not text:
            caption.row.refuse("caption", "empty: a chain cannot start from nothing")
        samples.append(Sample(name, (category,), image=FileImage(images[name]), text=text))
    return Dataset(
        name="sdp", identity={"loader": "sdp", "version": VERSION}, samples=tuple(samples)
    )


@dataclass(frozen=True)
class Caption:
    """One caption as it is written, and the row that holds it."""

    text: str
    row: TableRow


def read_captions(path: Path, encoding: str) -> dict[str, Caption]:
    """The captions of a CSV with columns filename and caption, by file name without suffix.

    Raises DatasetError for a table that cannot be read, a name that is unsafe or there twice; an
    empty caption is given as it is.
    """
    captions: dict[str, Caption] = {}
    for row in read_rows(path, ",", ("filename", "caption"), encoding):
        name = row.text("filename")
        reason = unsafe(name)
        if reason is not None:
            row.refuse("filename", reason)
        key = stem(name)
        if key in captions:
            other = captions[key].row.number
            row.refuse("filename", f"{name!r} is there twice, row {other} has it already")
        captions[key] = Caption(row.text("caption"), row)
    return captions


def _refuse_unpaired(root: Path, without_image: set[str], without_caption: set[str]) -> None:
    wrong = []
    if without_image:
        wrong.append(f"captions without an image: {some_of(without_image)}")
    if without_caption:
        wrong.append(f"images without a caption: {some_of(without_caption)}")
    if wrong:
        raise DatasetError(
            f"{str(root)!r}: {'; '.join(wrong)} (text-first/gen-0.csv and image-first/gen-0/ are "
            f"paired by file name without suffix)"
        )


@dataclass(frozen=True)
class _Pair:
    """An image's file and its caption; None where the annotations have no caption for it."""

    image: Path
    caption: str | None


def load_nd400(
    path: Path, *, docci: str = "docci", nocaps: str = "nocaps", ids: str | None = None
) -> Dataset:
    """The listed pairs; ids are the list's image ids, categories its sources.

    path: the list (CSV or JSON Lines with source and image_id) or its folder, where ids names the
    list if there are several.
    docci: folder with docci_descriptions.jsonlines and images/.
    nocaps: folder with the one .json of the captions (COCO style), or that file; the images lie
    beside it or in images/. Both may be relative to the list's folder.
    A NoCaps id is the annotations' image id or the name of the image's file; of its ten captions
    the first in the file counts. Captions lose the white space around them.
    Raises DatasetError for a source that is unknown, ids that are there twice or not found in the
    copies (all of them are counted, the first named), and files that cannot be used.
    """
    table = _list_file(path, ids)
    folders = {"docci": table.parent / docci, "nocaps": table.parent / nocaps}
    return join_copies(_wanted(table), folders, f"listed in {str(table)!r}")


def join_copies(wanted: Mapping[str, str], folders: Mapping[str, Path], which: str) -> Dataset:
    """The pairs of ids, from local copies.

    wanted: id -> source. folders: source -> its copy. which: pairs they are, for a message.
    Raises DatasetError as `load_nd400`.
    """
    copies = {source: _READERS[source](folders[source]) for source in sorted(set(wanted.values()))}
    samples, missing = [], []
    for name, source in sorted(wanted.items()):
        pair = copies[source].get(name)
        if pair is None:
            missing.append(f"{source} {name}: not annotated")
        elif not pair.caption:
            missing.append(f"{source} {name}: no caption")
        elif not pair.image.is_file():
            missing.append(f"{source} {name}: no file {pair.image.name}")
        else:
            samples.append(Sample(name, (source,), image=FileImage(pair.image), text=pair.caption))
    if missing:
        raise DatasetError(
            f"{len(missing)} of the {len(wanted)} pairs {which} are not in "
            f"{', '.join(repr(str(folders[source])) for source in copies)}: {some_of(missing)}"
        )
    return Dataset(
        name="nd400", identity={"loader": "nd400", "version": VERSION}, samples=tuple(samples)
    )


def _refuse(place: str, what: str) -> NoReturn:
    raise DatasetError(f"{place}: {what}")


def _list_file(path: Path, ids: str | None) -> Path:
    if path.is_file() and ids is None:
        return path
    if not path.is_dir():
        raise DatasetError(
            f"{str(path)!r} is no folder: the folder of the id list, or the list, is expected"
        )
    if ids is not None:
        return path / ids
    what = f"id list ({', '.join(_LISTS)})"
    return only_file(path, _LISTS, what, "name it with the option ids")


def _wanted(table: Path) -> dict[str, str]:
    """Source of each listed id, in the order of the list."""
    sources: dict[str, str] = {}
    for place, source, name in _entries(table):
        if source not in SOURCES:
            _refuse(place, unknown_name("source", source, SOURCES))
        if not name:
            _refuse(place, "image_id is empty")
        if name in sources:
            _refuse(place, f"image_id {name!r} is there twice")
        sources[name] = source
    return sources


def _entries(table: Path) -> Iterator[tuple[str, str, str]]:
    """Place, source and id of each entry, white space and capitals of the source taken off."""
    if table.suffix.lower() == ".csv":
        for row in read_rows(table, ",", ("source", "image_id")):
            place = f"{table}, row {row.number} (line {row.line})"
            yield place, row.text("source").strip().lower(), row.text("image_id").strip()
        return
    for place, entry in read_json_lines(table):
        source = _field(place, entry, "source", str)
        name = _field(place, entry, "image_id", str, int)
        yield place, source.strip().lower(), str(name).strip()


def _field(place: str, entry: Mapping[str, Any], name: str, *kinds: type) -> Any:
    value = entry.get(name)
    if type(value) not in kinds:
        expected = " or ".join(kind.__name__ for kind in kinds)
        _refuse(place, f"field {name!r} is expected to be {expected}, got {value!r:.80}")
    return value


def _file(place: str, entry: Mapping[str, Any], name: str) -> str:
    value: str = _field(place, entry, name, str)
    reason = unsafe(value)
    if reason is not None:
        _refuse(place, f"field {name!r}: {reason}")
    return value


def _docci(folder: Path) -> dict[str, _Pair]:
    """Every described image of a copy of DOCCI, by example id."""
    pairs: dict[str, _Pair] = {}
    for place, entry in read_json_lines(folder / "docci_descriptions.jsonlines"):
        name = _field(place, entry, "example_id", str)
        if name in pairs:
            _refuse(place, f"example_id {name!r} is there twice")
        image = folder / "images" / _file(place, entry, "image_file")
        pairs[name] = _Pair(image, _field(place, entry, "description", str).strip())
    return pairs


def _nocaps(path: Path) -> dict[str, _Pair]:
    """Every image of a copy of NoCaps, by its annotations' id and by its file's name."""
    file = path
    if not path.is_file():
        what, remedy = ".json with NoCaps' captions", "give the file itself as the option nocaps"
        file = only_file(path, (".json",), what, remedy)
    tables = read_json(file)
    captions: dict[int, str] = {}
    for place, entry in _table(file, tables, "annotations"):
        text = _field(place, entry, "caption", str).strip()
        captions.setdefault(_field(place, entry, "image_id", int), text)
    images = file.parent / "images" if (file.parent / "images").is_dir() else file.parent
    by_id: dict[str, _Pair] = {}
    by_stem: dict[str, _Pair] = {}
    for place, entry in _table(file, tables, "images"):
        number, name = _field(place, entry, "id", int), _file(place, entry, "file_name")
        if str(number) in by_id or stem(name) in by_stem:
            _refuse(place, f"image {number} ({name!r}) is there twice")
        by_id[str(number)] = by_stem[stem(name)] = _Pair(images / name, captions.get(number))
    return by_stem | by_id


def _table(path: Path, tables: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    entries = tables.get(name) if isinstance(tables, dict) else None
    if not isinstance(entries, list):
        raise DatasetError(f"{path}: a list {name!r} is expected at the top (COCO style)")
    for number, entry in enumerate(entries):
        place = f"{path}, {name}[{number}]"
        if not isinstance(entry, dict):
            _refuse(place, f"an object is expected, got {type(entry).__name__}")
        yield place, entry


_READERS = {"docci": _docci, "nocaps": _nocaps}
