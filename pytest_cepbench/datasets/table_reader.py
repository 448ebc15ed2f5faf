"""A table read as samples: its columns are found and checked, its rows chosen, its texts read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_cepbench.datasets.sample import Dataset, Sample
from pytest_cepbench.datasets.sample_choice import Candidate, SampleChoice, choose
from pytest_cepbench.datasets.sources.cell_image import CellImage
from pytest_cepbench.datasets.sources.shard import Shard
from pytest_cepbench.datasets.sources.table import Row, Table, label_names
from pytest_cepbench.errors import DatasetError

if TYPE_CHECKING:
    import pyarrow as pa

_IDS = ("id", "image_id", "__key__", "file_name", "filename", "index")
_IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp")
_TEXTS = ("text", "caption", "prompt", "description", "txt")
_LABEL = "label"
_CATEGORIES = ("category", _LABEL)


@dataclass(frozen=True)
class TableColumns:
    """Columns that a suite names; None where the loader's own names are looked for."""

    id: str | None = None
    image: str | None = None
    text: str | None = None
    category: str | None = None


@dataclass(frozen=True)
class TableReader:
    """A table with what is wanted of it.

    table: the rows.
    columns: that the suite names.
    choice: of samples.
    side_file: finds a file of the data set by its name, such as a label index.
    """

    table: Table
    columns: TableColumns = field(default_factory=TableColumns)
    choice: SampleChoice = field(default_factory=SampleChoice)
    side_file: Callable[[str], Path] = Path

    def named(self, key: str, names: Sequence[str], what: str) -> str:
        """A column that has to be there: the suite's, else the first of these."""
        chosen = getattr(self.columns, key)
        return self.table.column([chosen] if chosen else names, what, key)

    def optional(self, key: str, names: Sequence[str]) -> str | None:
        """A column that may be missing, unless the suite names it."""
        chosen = getattr(self.columns, key)
        if chosen:
            return self.table.column([chosen], "values", key)
        return next((name for name in names if name in self.table.schema.names), None)

    @cached_property
    def image(self) -> str:
        """The column of images. Raises DatasetError where none is named so, or holds images."""
        known = any(name in self.table.schema.names for name in _IMAGES)
        typed = [item.name for item in self.table.schema if _holds_images(item.type)]
        names = typed if len(typed) == 1 and not known else _IMAGES
        column = self.named("image", names, "images")
        kind = self.table.schema.field(column).type
        if not (_holds_images(kind) or _is_bytes(kind) or _is_text(kind)):
            self._refuse_type(
                column, "one image, as bytes, as base64, or with fields bytes and path"
            )
        return column

    def ids(self, names: Sequence[str] = _IDS) -> str | None:
        """The column of ids; None where rows are counted instead."""
        column = self.optional("id", names)
        return None if column is None else self._checked_ids(column)

    def required_ids(self, name: str, what: str) -> str:
        """The column of ids of a data set that always has one. what: the ids are."""
        return self._checked_ids(self.named("id", (name,), what))

    def _checked_ids(self, column: str) -> str:
        if not self._is_plain(column):
            self._refuse_type(column, "an id, a text or a whole number")
        return column

    def categories(self, names: Sequence[str] = _CATEGORIES) -> str | None:
        """The column of categories: a text or a label, or a list of texts."""
        column = self.optional("category", names)
        if column is None:
            return None
        kind = self.table.schema.field(column).type
        labelled = label_names(self.table.schema, column) is not None
        if self.columns.category is None and column == _LABEL and not labelled:
            return None  # a class by its number, or any text
        if not (labelled or _is_text(kind) or _is_texts(kind) or _is_bytes(kind)):
            self._refuse_type(column, "a text, a label with a name, or a list of texts")
        return column

    def texts(self, names: Sequence[str] = _TEXTS) -> str:
        """The column of texts; of a list of texts, the first counts."""
        column = self.named("text", names, "texts")
        kind = self.table.schema.field(column).type
        if not (_is_text(kind) or _is_texts(kind) or _is_bytes(kind)):
            self._refuse_type(column, "a text, or a list of texts")
        return column

    def samples(
        self,
        *,
        id_column: str | None,
        make_id: Callable[[Row, Any, Any], str],
        category_column: str | None,
        category: str,
        categories_of: Callable[[str], tuple[str, ...]] | None = None,
        text_column: str | None = None,
        image_column: str | None = None,
        repeated: bool = False,
    ) -> tuple[tuple[Sample, ...], set[str]]:
        """The chosen samples sorted by id, and all categories of the table.

        make_id: of the row, its id and its category, as the columns have them.
        category: of rows without one.
        categories_of: gives the categories of an id, where no column does.
        repeated: see `choose`.
        """
        known: dict[str, tuple[str, ...]] = {}  # most rows share their category with others
        scanned = [name for name in (id_column, category_column) if name is not None]

        def read() -> Iterator[Candidate]:
            for row in self.table.scan(scanned):
                value = row.values[0] if id_column is not None else row.position
                label = row.values[-1] if category_column is not None else None
                if value is None or value == "":
                    self.refuse(row, id_column, "null or empty: an id is expected")
                name = make_id(row, value, label)
                categories: tuple[str, ...] = ()
                if isinstance(label, str) and label in known:
                    categories = known[label]
                elif category_column is not None:
                    categories = self._categories_of(row, category_column, label)
                    if isinstance(label, str):
                        known[label] = categories
                elif categories_of is not None:
                    categories = categories_of(name)
                yield Candidate(name, categories or (category,), row)

        def refuse(name: str, rows: list[Row]) -> DatasetError:
            places = " and ".join(self.table.where(row, id_column or "row") for row in rows)
            remedy = "name a column that differs in every row as id in [data]"
            return DatasetError(
                f"{self.table.name}: the id {name!r} is there twice ({places}): {remedy}"
            )

        chosen, categories = choose(read, self.choice, refuse, repeated=repeated)
        left = {name for candidate in chosen for name in candidate.categories}
        if gone := sorted(categories - left):
            raise DatasetError(
                f"{self.table.name}: [data] skip = {self.choice.skip} leaves no sample of "
                f"{', '.join(gone[:3])}: skip fewer, or add samples"
            )
        return tuple(self._samples(chosen, text_column, image_column)), categories

    def _samples(
        self, chosen: Sequence[Candidate], text_column: str | None, image_column: str | None
    ) -> Iterator[Sample]:
        groups: dict[tuple[int, int], list[Row]] = {}
        for candidate in chosen:
            groups.setdefault((candidate.row.shard, candidate.row.group), []).append(candidate.row)
        together: dict[tuple[int, int], tuple[int, ...]] = {}
        texts: dict[int, str] = {}
        opened: tuple[int, Shard] | None = None
        for (number, group), rows in sorted(groups.items()):
            rows.sort(key=lambda row: row.row)
            together[number, group] = tuple(row.row for row in rows)
            if text_column is None:
                continue
            if opened is None or opened[0] != number:
                self.table.files[number].fetch()
                opened = number, self.table.shard(number)
            cells = opened[1].cells(text_column, group, together[number, group])
            for row, value in zip(rows, cells, strict=True):
                texts[row.position] = self._text(row, text_column, value)
        for candidate in chosen:
            row = candidate.row
            image = None
            if image_column is not None:
                own = together[row.shard, row.group]
                file = self.table.files[row.shard]
                image = CellImage(file, image_column, row.group, row.row, row.number, own)
            yield Sample(candidate.id, candidate.categories, image, texts.get(row.position))

    def dataset(
        self, name: str, identity: Mapping[str, Any], samples: tuple[Sample, ...]
    ) -> Dataset:
        """The samples as a data set, whose identity tells the pinned source."""
        source = {"source": self.table.source} if self.table.source else {}
        notes = (self.table.note,) if self.table.note else ()
        return Dataset(name, {**identity, **source}, samples, notes=notes)

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

    def _categories_of(self, row: Row, column: str, value: Any) -> tuple[str, ...]:
        values = [
            name.decode("utf-8", "replace").strip() if isinstance(name, bytes) else name
            for name in (value if isinstance(value, list) else [value])
        ]
        if any(not isinstance(name, str) or not name.strip() for name in values):
            self.refuse(row, column, f"{value!r:.80} is no category: a name is expected")
        return tuple(dict.fromkeys(values))

    def refuse(self, row: Row, column: str | None, what: str) -> NoReturn:
        """Raise DatasetError: what is wrong with a cell, with file, row and column before it."""
        raise DatasetError(f"{self.table.where(row, column or 'row')}: {what}")

    def _refuse_type(self, column: str, expected: str) -> NoReturn:
        kind = self.table.schema.field(column).type
        raise DatasetError(
            f"{self.table.name}: column {column!r} is {kind}; {expected} is expected; its "
            f"columns: {', '.join(self.table.schema.names)}"
        )

    def _is_plain(self, column: str) -> bool:
        import pyarrow as pa

        kind = self.table.schema.field(column).type
        return _is_text(kind) or bool(pa.types.is_integer(kind))


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_texts(kind: pa.DataType) -> bool:
    import pyarrow as pa

    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(listed and _is_text(kind.value_type))


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _holds_images(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(kind)) and {item.name for item in kind} == {"bytes", "path"}
