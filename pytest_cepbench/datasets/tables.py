"""Tables as data sets: columns are found by their names and checked, rows chosen, texts read."""

from __future__ import annotations

import heapq
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.datasets.folder import CATEGORIES, MME_VERSION, ROOT_CATEGORY, VERSION
from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.datasets.sources.table import CellImage, Row, Shard, SourceTable
from pytest_cepbench.errors import DatasetError, did_you_mean, unknown_name

if TYPE_CHECKING:
    import pyarrow as pa

_IDS = ("id", "image_id", "__key__", "file_name", "filename", "index")
_IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp")
_TEXTS = ("text", "caption", "prompt", "description", "txt")
_LABEL = "label"
_CATEGORIES = ("category", _LABEL)


class Candidate(NamedTuple):
    """A row that may become a sample.

    id: of the sample.
    categories: those it belongs to, or was chosen for.
    row: of the table.
    """

    id: str
    categories: tuple[str, ...]
    row: Row


def choose(
    read: Callable[[], Iterable[Candidate]],
    most: int | None,
    refuse: Callable[[str, list[Row]], DatasetError],
) -> list[Candidate]:
    """The chosen rows sorted by id, each in the categories alone that it was chosen for.

    read: all rows, each time anew; only chosen ones, and 8 bytes of each other row, are held.
    most: rows of each category; all of them where None.
    refuse: makes the error of an id that is there twice, and its rows.
    """
    digests = array("Q")

    def noted() -> Iterator[Candidate]:
        for candidate in read():
            digests.append(_digest(candidate.id) >> 192)
            yield candidate

    chosen: dict[str, Candidate] = {}
    if most is None:
        chosen = {candidate.id: candidate for candidate in noted()}
    else:  # those of each category whose ids have the smallest digests
        heaps: dict[str, list[tuple[int, str, Candidate]]] = {}
        for candidate in noted():
            entry = (-_digest(candidate.id), candidate.id, candidate)
            for category in dict.fromkeys(candidate.categories):
                heap = heaps.setdefault(category, [])
                if len(heap) < most:
                    heapq.heappush(heap, entry)
                elif entry[0] > heap[0][0]:
                    heapq.heapreplace(heap, entry)
        own: dict[str, set[str]] = {}
        for category, heap in heaps.items():
            for _, name, candidate in heap:
                chosen[name] = candidate
                own.setdefault(name, set()).add(category)
        for name, candidate in chosen.items():
            categories = tuple(c for c in candidate.categories if c in own[name])
            chosen[name] = candidate._replace(categories=categories)
    ordered = np.sort(np.frombuffer(digests, dtype=np.uint64))
    twice = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    rows: dict[str, Row] = {}
    for candidate in read() if twice else ():  # equal digests may be those of different ids
        if _digest(candidate.id) >> 192 in twice:
            if candidate.id in rows:
                raise refuse(candidate.id, [rows[candidate.id], candidate.row])
            rows[candidate.id] = candidate.row
    return [chosen[name] for name in sorted(chosen)]


def _digest(name: str) -> int:
    return int(digest_text(name), 16)


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

    def _column(
        self,
        key: str,
        names: Sequence[str],
        fits: Callable[[str, pa.DataType], bool],
        expected: str,
        *,
        needed: bool = True,
    ) -> str | None:
        """The suite's column for a key, else the first of these that is there.

        fits: whether a column of a name and type is one, which is `expected`.
        needed: whether it has to be there where the suite names none.
        """
        chosen, known = self.columns.get(key), self.table.schema.names
        if not (chosen or needed or set(names) & set(known)):
            return None
        names = [chosen] if chosen else names
        column = next((name for name in names if name in known), None)
        listing = f"its columns: {', '.join(known)}"
        if column is None:
            near = did_you_mean(names[0], known) if len(names) == 1 else ""
            raise DatasetError(
                f"{self.table.name} has no column {' or '.join(map(repr, names))} with {expected}: "
                f"name one as {key} in [data]; {listing}.{near}"
            )
        kind = self.table.schema.field(column).type
        if not fits(column, kind):
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
        schema = self.table.schema
        if _LABEL in schema.names and self.table.label_names(_LABEL) is None:
            # A class by its number, or any text.
            categories = [name for name in categories if name != _LABEL]
        id_column = self._column(
            "id", ids, _is_id, "an id, a text or a whole number", needed=category is None
        )
        category_column = self._column(
            "category",
            categories,
            lambda name, kind: self.table.label_names(name) is not None or _holds_texts(kind),
            "a text, a label with a name, or a list of texts",
            needed=category is None,
        )
        text_column = None
        if texts:
            text_column = self._column(
                "text", _TEXTS, lambda _, kind: _holds_texts(kind), "a text, or a list of texts"
            )
        typed = [item.name for item in schema if _holds_images(_listed(item.type))]
        known = any(name in schema.names for name in _IMAGES)
        image_column = self._column(
            "image",
            typed if len(typed) == 1 and not known else _IMAGES,
            lambda _, kind: _holds_images(_listed(kind)) or _is_text(kind) or _is_bytes(kind),
            "one image, as bytes, as base64, or with fields bytes and path",
        )

        def read() -> Iterator[Candidate]:
            seen: set[str] = set()
            names: dict[str, tuple[str, ...]] = {}  # most rows share their category with others
            for row in self.table.scan([own for own in (id_column, category_column) if own]):
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
                if isinstance(label, str):
                    own = names.get(label) or self._categories(row, category_column, label)
                    names[label] = own
                else:
                    own = self._categories(row, category_column, label)
                yield Candidate(name, own, row)

        def refuse(name: str, rows: list[Row]) -> DatasetError:
            places = " and ".join(self.table.where(row, id_column or "row") for row in rows)
            remedy = "name a column that differs in every row as id in [data]"
            return DatasetError(
                f"{self.table.name}: the id {name!r} is there twice ({places}): {remedy}"
            )

        chosen = choose(read, self.most, refuse)
        seeds = self._seeds(sorted(own.row for own in chosen), str(image_column), text_column)
        samples = [Sample(own.id, own.categories, *seeds[own.row.position]) for own in chosen]
        identity: dict[str, Any] = {"loader": loader, "version": version}
        identity |= {"source": self.table.source} if self.table.source else {}
        return Dataset(loader, identity, tuple(samples), notes=self.table.notes)

    def _seeds(
        self, rows: Sequence[Row], image_column: str, text_column: str | None
    ) -> dict[int, tuple[CellImage, str | None]]:
        """Image and text of each row, by its position in the table. rows: in rising order."""
        seeds: dict[int, tuple[CellImage, str | None]] = {}
        for number, of_shard in groupby(rows, lambda row: row.shard):
            file = self.table.files[number]
            shard = None if text_column is None else Shard.open(file.path)
            for group, of_group in groupby(of_shard, lambda row: row.group):
                held = list(of_group)
                together = tuple(row.row for row in held)
                texts: Iterable[str | None] = [None] * len(held)
                if shard is not None and text_column is not None:
                    cells = shard.read(group, [text_column], together)
                    texts = [
                        self._text(row, text_column, value)
                        for row, (value,) in zip(held, cells, strict=True)
                    ]
                for row, text in zip(held, texts, strict=True):
                    image = CellImage(file, image_column, group, row.row, row.number, together)
                    seeds[row.position] = image, text
        return seeds

    def _categories(self, row: Row, column: str | None, label: Any) -> tuple[str, ...]:
        names: list[Any] = [
            own.decode("utf-8", "replace").strip() if isinstance(own, bytes) else own
            for own in (label if isinstance(label, list) else [label])
        ]
        if any(not isinstance(own, str) or not own.strip() for own in names):
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


def _is_id(_: str, kind: pa.DataType) -> bool:
    import pyarrow as pa

    return _is_text(kind) or bool(pa.types.is_integer(kind))


# By their names: the kinds differ in how their values lie. Polars writes views.
def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return str(kind) in ("string", "large_string", "string_view")


def _listed(kind: pa.DataType) -> pa.DataType:
    """The type of a list's values; the type itself where it is none of a list."""
    return kind.value_type if "list" in str(kind).partition("<")[0] else kind


def _is_bytes(kind: pa.DataType) -> bool:
    return str(kind) in ("binary", "large_binary", "binary_view")


def _holds_texts(kind: pa.DataType) -> bool:
    return _is_text(_listed(kind)) or _is_bytes(kind)


def _holds_images(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(kind)) and {item.name for item in kind} == {"bytes", "path"}


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
