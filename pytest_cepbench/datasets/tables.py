"""Tables as data sets: columns are found by their names and checked, rows chosen, texts read."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_cepbench.datasets.sample import Candidate, Dataset, Sample, choose
from pytest_cepbench.datasets.sources.files import SUFFIXES
from pytest_cepbench.datasets.sources.shards import open_shard
from pytest_cepbench.datasets.sources.table import CellImage, Row, SourceTable, label_names
from pytest_cepbench.errors import DatasetError, unknown_name

if TYPE_CHECKING:
    import pyarrow as pa

_IDS = ("id", "image_id", "__key__", "file_name", "filename", "index")
_IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp")
_TEXTS = ("text", "caption", "prompt", "description", "txt")
_LABEL = "label"
_CATEGORIES = ("category", _LABEL)


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
        column = self.table.column([chosen] if chosen else names, expected, key)
        kind = self.table.schema.field(column).type
        if not fits(column, kind):
            raise DatasetError(
                f"{self.table.name}: column {column!r} is {kind}; {expected} is expected; its "
                f"columns: {', '.join(known)}"
            )
        return column

    def image(self) -> str:
        """The column of images. Raises DatasetError where none is named so, or holds images."""
        schema = self.table.schema
        typed = [item.name for item in schema if _holds_images(_listed(item.type))]
        known = any(name in schema.names for name in _IMAGES)

        def fits(_: str, kind: pa.DataType) -> bool:
            return _holds_images(_listed(kind)) or _is_text(kind) or _is_bytes(kind)

        expected = "one image, as bytes, as base64, or with fields bytes and path"
        names = typed if len(typed) == 1 and not known else _IMAGES
        return str(self._column("image", names, fits, expected))

    def ids(self, names: Sequence[str] = _IDS, *, needed: bool = False) -> str | None:
        """The column of ids; None where rows are counted instead."""
        import pyarrow as pa

        def fits(_: str, kind: pa.DataType) -> bool:
            return _is_text(kind) or bool(pa.types.is_integer(kind))

        return self._column("id", names, fits, "an id, a text or a whole number", needed=needed)

    def categories(self, names: Sequence[str] = _CATEGORIES, *, needed: bool = False) -> str | None:
        """The column of categories: a text or a label, or a list of texts."""
        schema = self.table.schema
        if _LABEL in schema.names and label_names(schema, _LABEL) is None:
            names = [name for name in names if name != _LABEL]  # a class by its number, or any text

        def fits(column: str, kind: pa.DataType) -> bool:
            labelled = label_names(schema, column) is not None
            return labelled or _is_text(_listed(kind)) or _is_bytes(kind)

        expected = "a text, a label with a name, or a list of texts"
        return self._column("category", names, fits, expected, needed=needed)

    def texts(self, names: Sequence[str] = _TEXTS) -> str | None:
        """The column of texts; of a list of texts, the first counts."""

        def fits(_: str, kind: pa.DataType) -> bool:
            return _is_text(_listed(kind)) or _is_bytes(kind)

        return self._column("text", names, fits, "a text, or a list of texts")

    def samples(
        self,
        *,
        ids: str | None,
        make_id: Callable[[Row, Any, Any], str],
        category_column: str | None,
        category: str,
        text_column: str | None = None,
        repeated: bool = False,
    ) -> tuple[tuple[Sample, ...], set[str]]:
        """The chosen samples sorted by id, and all categories of the table.

        ids: the column of ids; None where rows are counted.
        make_id: of the row, its id and its category, as the columns have them.
        category: of rows without one.
        repeated: see `choose`.
        """
        image_column = self.image()
        known: dict[str, tuple[str, ...]] = {}  # most rows share their category with others
        scanned = [name for name in (ids, category_column) if name is not None]

        def categories_in(row: Row, label: Any) -> tuple[str, ...]:
            if isinstance(label, str) and label in known:
                return known[label]
            names: list[Any] = [
                own.decode("utf-8", "replace").strip() if isinstance(own, bytes) else own
                for own in (label if isinstance(label, list) else [label])
            ]
            if any(not isinstance(own, str) or not own.strip() for own in names):
                what = f"{label!r:.80} is no category: a name is expected"
                self.refuse(row, category_column, what)
            categories = tuple(dict.fromkeys(names))
            if isinstance(label, str):
                known[label] = categories
            return categories

        def read() -> Iterator[Candidate]:
            for row in self.table.scan(scanned):
                value = row.position if ids is None else row.values[0]
                if value is None or value == "":
                    self.refuse(row, ids, "null or empty: an id is expected")
                if category_column is None:
                    yield Candidate(make_id(row, value, None), (category,), row)
                else:
                    label = row.values[-1]
                    yield Candidate(make_id(row, value, label), categories_in(row, label), row)

        def refuse(name: str, rows: list[Row]) -> DatasetError:
            places = " and ".join(self.table.where(row, ids or "row") for row in rows)
            remedy = "name a column that differs in every row as id in [data]"
            return DatasetError(
                f"{self.table.name}: the id {name!r} is there twice ({places}): {remedy}"
            )

        chosen = choose(read, self.most, refuse, repeated=repeated)
        rows = sorted(candidate.row for candidate in chosen)
        together: dict[tuple[int, int], tuple[int, ...]] = {}
        texts: dict[int, str] = {}
        for number, of_shard in groupby(rows, lambda row: row.shard):
            shard = None if text_column is None else open_shard(self.table.files[number].path)
            for group, of_group in groupby(of_shard, lambda row: row.group):
                held = list(of_group)
                together[number, group] = own = tuple(row.row for row in held)
                if shard is not None and text_column is not None:
                    cells = shard.read(group, [text_column], own)
                    for row, (value,) in zip(held, cells, strict=True):
                        texts[row.position] = self._text(row, text_column, value)

        def image(row: Row) -> CellImage:
            file, own = self.table.files[row.shard], together[row.shard, row.group]
            return CellImage(file, image_column, row.group, row.row, row.number, own)

        return tuple(
            Sample(own.id, own.categories, image(own.row), texts.get(own.row.position))
            for own in chosen
        ), {name for own in chosen for name in own.categories}

    def dataset(
        self, name: str, identity: Mapping[str, Any], samples: tuple[Sample, ...]
    ) -> Dataset:
        """The samples as a data set, whose identity tells the pinned source."""
        source = {"source": self.table.source} if self.table.source else {}
        return Dataset(name, {**identity, **source}, samples, notes=self.table.notes)

    def _text(self, row: Row, column: str, value: Any) -> str:
        if isinstance(value, list):
            value = value[0] if value else None
        if isinstance(value, bytes):
            try:
                value = value.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                self.refuse(row, column, f"not UTF-8 at byte {error.start}")
        text = value.strip() if isinstance(value, str) else ""
        if not text:
            self.refuse(row, column, "null or empty: a chain cannot start from nothing")
        return text

    def refuse(self, row: Row, column: str | None, what: str) -> NoReturn:
        """Raise DatasetError: what is wrong with a cell, with file, row and column before it."""
        raise DatasetError(f"{self.table.where(row, column or 'row')}: {what}")


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


def _holds_images(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(kind)) and {item.name for item in kind} == {"bytes", "path"}


def load_folder_table(reader: TableReader, *, captions: bool = False) -> Dataset:
    """The images of any table, each named by its column of ids, else by the number of its row.

    captions: read the column of texts too, as where the suite names one.
    """
    from pytest_cepbench.datasets import folder

    ids = reader.ids()
    samples, _ = reader.samples(
        ids=ids,
        make_id=_counted_id if ids is None else _plain_id,
        category_column=reader.categories(),
        category=folder.ROOT_CATEGORY,
        text_column=reader.texts() if captions or reader.columns.get("text") else None,
    )
    return reader.dataset("folder", {"loader": "folder", "version": folder.VERSION}, samples)


def load_mme_table(reader: TableReader) -> Dataset:
    """MME's images as the hub has them: columns question_id, image and category.

    Two questions are asked about every image; both have its name as their id, and are one sample.
    Raises DatasetError for categories that are missing or unknown.
    """
    from pytest_cepbench.datasets import folder

    category = reader.categories(("category",), needed=True)

    def make_id(row: Row, value: Any, label: Any) -> str:
        if label not in folder.CATEGORIES:
            known = unknown_name("category of MME", str(label), folder.CATEGORIES)
            reader.refuse(row, category, known)
        name = _plain_id(row, value, label)
        return name if name.startswith(f"{label}/") else f"{label}/{name}"

    samples, categories = reader.samples(
        ids=reader.ids(("question_id",), needed=True),
        make_id=make_id,
        category_column=category,
        category="",
        repeated=True,
    )
    if missing := [name for name in folder.CATEGORIES if name not in categories]:
        raise DatasetError(
            f"{reader.table.name} has no images for {len(missing)} of the {len(folder.CATEGORIES)} "
            f"MME categories: {', '.join(missing)}"
        )
    return reader.dataset("mme", {"loader": "mme", "version": folder.MME_VERSION}, samples)


def _plain_id(_row: Row, value: Any, _label: Any) -> str:
    """A text as it is, normalized as file names are; a number in digits."""
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else str(value)


def _counted_id(row: Row, *_: Any) -> str:
    """The number of the row, in as many digits that texts sort as numbers do."""
    return f"{row.position:09}"


TABLE_LOADERS: Mapping[str, tuple[Callable[..., Dataset], frozenset[str]]] = {
    "folder": (load_folder_table, SUFFIXES),
    "mme": (load_mme_table, SUFFIXES),
}
"""Name of a loader that reads tables too -> what makes a data set of a `TableReader` and options,
and suffixes of the files that the loader reads by itself; a folder with one is none of tables.
"""
