"""Tables as data sets: columns are found by their names and checked, rows chosen, texts read."""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.datasets.folder import CATEGORIES, MME_VERSION, ROOT_CATEGORY, VERSION
from pytest_cepbench.datasets.sample import Candidate, Dataset, Sample, choose
from pytest_cepbench.datasets.sources.table import CellImage, Row, Shard, SourceTable
from pytest_cepbench.errors import DatasetError, did_you_mean, unknown_name

if TYPE_CHECKING:
    import pyarrow as pa

_IDS = ("id", "image_id", "__key__", "file_name", "filename", "index")
_IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp")
_TEXTS = ("text", "caption", "prompt", "description", "txt")
_LABEL = "label"
_CATEGORIES = ("category", _LABEL)


_KINDS: Mapping[str, tuple[Collection[str], str]] = {
    "id": (("text", "number"), "an id, a text or a whole number"),
    "category": (("text", "texts", "bytes"), "a text, a label with a name, or a list of texts"),
    "text": (("text", "texts", "bytes"), "a text, or a list of texts"),
    "image": (
        ("image", "images", "text", "bytes"),
        "one image, as bytes, as base64, or with fields bytes and path",
    ),
}
"""Key of `[data]` -> what its column may hold, as `_kind` says it, and in words."""


def _kind(kind: pa.DataType) -> str:
    """What a column of a type holds: text, bytes, number or image, with an s for lists of them.

    By their names: the kinds differ in how their values lie. Polars writes views.
    """
    import pyarrow as pa

    name = str(kind).partition("<")[0]
    if "list" in name:
        return f"{_kind(kind.value_type)}s"
    if pa.types.is_dictionary(kind):
        return "text" if _kind(kind.value_type) == "text" else name
    if pa.types.is_struct(kind):
        return "image" if {item.name for item in kind} == {"bytes", "path"} else name
    if pa.types.is_integer(kind):
        return "number"
    plain = name.removeprefix("large_").removesuffix("_view")
    return {"string": "text", "binary": "bytes"}.get(plain, name)


@dataclass(frozen=True)
class TableReader:
    """A table with what is wanted of it.

    table: the rows.
    columns: key of `[data]` -> column that the suite names for it; without one, the loader's own
        names are looked for.
    most: samples of each category; all of them where None.
    """

    table: SourceTable
    columns: Mapping[str, str | None] = field(default_factory=dict)
    most: int | None = None

    def _column(self, key: str, names: Sequence[str], *, needed: bool = True) -> str | None:
        """The suite's column for a key, else the first of these that is there.

        needed: whether it has to be there where the suite names none.
        """
        chosen, known = self.columns.get(key), self.table.schema.names
        if not (chosen or needed or set(names) & set(known)):
            return None
        names = [chosen] if chosen else names
        column = next((name for name in names if name in known), None)
        if known.count(column) > 1:
            raise DatasetError(f"{self.table.name} has more than one column {column!r}")
        kinds, expected = _KINDS[key]
        listing = f"its columns: {', '.join(known)}"
        if column is None:
            near = did_you_mean(names[0], known) if len(names) == 1 else ""
            raise DatasetError(
                f"{self.table.name} has no column {' or '.join(map(repr, names))} with {expected}: "
                f"name one as {key} in [data]; {listing}.{near}"
            )
        kind = self.table.schema.field(column).type
        labels = key == "category" and self.table.label_names(column) is not None
        if not labels and _kind(kind) not in kinds:
            raise DatasetError(
                f"{self.table.name}: column {column!r} is {kind}; {expected} is expected; {listing}"
            )
        return column

    def dataset(
        self,
        loader: str,
        version: int,
        *,
        ids: Sequence[str] = _IDS,
        categories: Sequence[str] = _CATEGORIES,
        category: str | None = None,
        texts: bool = False,
        name_of: Callable[[str, Any], str] | None = None,
    ) -> Dataset:
        """The chosen samples as a data set, whose identity tells the pinned source.

        ids, categories: names of their columns; texts are ids as file names are, numbers in digits.
        category: of all rows where there is no column of categories; without it, both columns have
            to be there. Without ids a row is named by its number.
        texts: read the column of texts too.
        name_of: makes an id of the column's and of the category, or raises ValueError; rows of one
            id are one sample then, the first of them.
        """
        table = self.table
        if table.label_names(_LABEL) is None:  # a class by its number, or any text
            categories = [name for name in categories if name != _LABEL]
        id_column = self._column("id", ids, needed=category is None)
        category_column = self._column("category", categories, needed=category is None)
        text_column = self._column("text", _TEXTS) if texts else None
        typed = [item.name for item in table.schema if _kind(item.type) in ("image", "images")]
        known = any(name in table.schema.names for name in _IMAGES)
        image_column = self._column("image", typed if len(typed) == 1 and not known else _IMAGES)

        def read() -> Iterator[Candidate[Row]]:
            seen: set[str] = set()
            names: dict[str, tuple[str, ...]] = {}  # most rows share their category with others
            for row in table.scan([own for own in (id_column, category_column) if own]):
                value = row.values[0] if id_column else f"{row.position:09}"  # sorts as numbers do
                if value is None or value == "":
                    self._refuse(row, id_column, "null or empty: an id is expected")
                label = row.values[-1] if category_column else category
                name = unicodedata.normalize("NFC", value) if isinstance(value, str) else str(value)
                if name_of is not None:
                    try:
                        name = name_of(name, label)
                    except ValueError as error:
                        self._refuse(row, category_column, str(error))
                    if name in seen:
                        continue
                    seen.add(name)
                own = names.get(label) if isinstance(label, str) else None
                if own is None:
                    own = self._categories(row, category_column, label)
                    if isinstance(label, str):
                        names[label] = own
                yield Candidate(name, own, row)

        chosen = sorted(self._choose(read, id_column or "row"), key=lambda own: own.item)
        samples = tuple(self._samples(chosen, str(image_column), text_column))
        identity: dict[str, Any] = {"loader": loader, "version": version}
        identity |= {"source": table.source} if table.source else {}
        return Dataset(loader, identity, samples, notes=table.notes)

    def _choose(
        self, read: Callable[[], Iterable[Candidate[Row]]], column: str
    ) -> list[Candidate[Row]]:
        """The chosen rows. Raises DatasetError for an id that is there twice.

        read: all rows, each time anew; only chosen ones, and 8 bytes of each other row, are held.
        column: of the ids, for errors.
        """
        digests = array("Q")

        def noted() -> Iterator[Candidate[Row]]:
            for candidate in read():
                digests.append(_digest(candidate.id))
                yield candidate

        chosen = list(noted()) if self.most is None else choose(noted(), self.most)
        ordered = np.sort(np.frombuffer(digests, dtype=np.uint64))
        twice = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        rows: dict[str, Row] = {}
        for name, _, row, _ in read() if twice else ():
            if _digest(name) not in twice:  # those of different ids may be equal
                continue
            if name in rows:
                places = " and ".join(self.table.where(own, column) for own in (rows[name], row))
                raise DatasetError(
                    f"{self.table.name}: the id {name!r} is there twice ({places}): name a column "
                    "that differs in every row as id in [data]"
                )
            rows[name] = row
        return chosen

    def _samples(
        self, chosen: Iterable[Candidate[Row]], image_column: str, text_column: str | None
    ) -> Iterator[Sample]:
        """The samples of rows, which are in rising order."""
        for number, of_shard in groupby(chosen, lambda own: own.item.shard):
            file = self.table.files[number]
            shard = None if text_column is None else Shard.open(file.path)
            for group, of_group in groupby(of_shard, lambda own: own.item.group):
                held = list(of_group)
                together = tuple(own.item.row for own in held)
                texts: Iterable[str | None] = [None] * len(held)
                if shard is not None and text_column is not None:
                    cells = shard.read(group, [text_column], together)
                    texts = [
                        self._text(own.item, text_column, value)
                        for own, (value,) in zip(held, cells, strict=True)
                    ]
                for (name, categories, row, _), text in zip(held, texts, strict=True):
                    image = CellImage(file, image_column, group, row.row, row.number, together)
                    yield Sample(name, categories, image, text)

    def _categories(self, row: Row, column: str | None, label: Any) -> tuple[str, ...]:
        names: list[Any] = [
            own.decode("utf-8", "replace").strip() if isinstance(own, bytes) else own
            for own in (label if isinstance(label, list) else [label])
        ]
        if not names or any(not isinstance(own, str) or not own.strip() for own in names):
            self._refuse(row, column, f"{label!r:.80} is no category: a name is expected")
        return tuple(dict.fromkeys(names))

    def _text(self, row: Row, column: str, value: Any) -> str:
        if isinstance(value, list):
            value = value[0] if value else None
        if isinstance(value, bytes):
            try:
                value = value.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                self._refuse(row, column, f"not UTF-8 at byte {error.start}")
        text = value.strip() if isinstance(value, str) else ""
        if not text:
            self._refuse(row, column, "null or empty: a chain cannot start from nothing")
        return text

    def _refuse(self, row: Row, column: str | None, what: str) -> NoReturn:
        """Raise DatasetError: what is wrong with a cell, with file, row and column before it."""
        raise DatasetError(f"{self.table.where(row, column or 'row')}: {what}")


def _digest(name: str) -> int:
    return int(digest_text(name)[:16], 16)


def load_folder_table(reader: TableReader, *, captions: bool = False) -> Dataset:
    """The images of any table, each named by its column of ids, else by the number of its row.

    captions: read the column of texts too, as where the suite names one.
    """
    texts = captions or bool(reader.columns.get("text"))
    return reader.dataset("folder", VERSION, category=ROOT_CATEGORY, texts=texts)


def load_mme_table(reader: TableReader) -> Dataset:
    """MME's images as the hub has them: columns question_id, image and category.

    Two questions are asked about every image; both have its name as their id, and are one sample.
    Raises DatasetError for categories that are missing or unknown.
    """

    def name_of(name: str, label: Any) -> str:
        if label not in CATEGORIES:
            raise ValueError(unknown_name("category of MME", str(label), CATEGORIES))
        return name if name.startswith(f"{label}/") else f"{label}/{name}"

    dataset = reader.dataset(
        "mme", MME_VERSION, ids=("question_id",), categories=("category",), name_of=name_of
    )
    if missing := [name for name in CATEGORIES if name not in dataset.categories]:
        raise DatasetError(
            f"{reader.table.name} has no images for {len(missing)} of the {len(CATEGORIES)} "
            f"MME categories: {', '.join(missing)}"
        )
    return dataset


TABLE_LOADERS: Mapping[str, Callable[..., Dataset]] = {
    "folder": load_folder_table,
    "mme": load_mme_table,
}
"""Name of a loader that reads tables too -> what makes a data set of a `TableReader` and options.
"""
