"""A table of samples in shards: its rows scanned without images, and images read when needed."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_cepbench.artifacts import ImageArtifact, decode_image
from pytest_cepbench.datasets.sources.files import LocalFile
from pytest_cepbench.datasets.sources.hub import HubFile
from pytest_cepbench.datasets.sources.shards import Shard
from pytest_cepbench.errors import DatasetError, ImageError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa


DataFile = LocalFile | HubFile
"""A file that can be brought to this machine; its text form names it in errors."""


class Row(NamedTuple):
    """One row of a table, without its images.

    shard, group, row: where it lies.
    number: of the row in its shard.
    position: of the row in the whole table.
    values: of the scanned columns.
    """

    shard: int
    group: int
    row: int
    number: int
    position: int
    values: tuple[Any, ...]


@dataclass(frozen=True)
class SourceTable:
    """The rows of one split of a data set.

    name: the location, for errors.
    files: its shards, in the order of the rows.
    source: what identities hold of it: the pinned location on the hub; empty for local files.
    notes: sentences for the reader of results.
    rows: as many as there have to be; None where that is not known.
    """

    name: str
    files: tuple[DataFile, ...]
    source: str = ""
    notes: tuple[str, ...] = ()
    rows: int | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """Names and types of the columns, by the first shard."""
        return self.shard(0).schema

    def shard(self, number: int) -> Shard:
        """One of its shards. Raises DatasetError."""
        return open_shard(self.files[number])

    def scan(self, columns: Sequence[str]) -> Iterator[Row]:
        """All rows, with the values of some columns. Raises DatasetError for damaged shards.

        Labels (`ClassLabel`) are given by their names.
        """
        types = {column: self.schema.field(column).type for column in columns}
        names = [label_names(self.schema, column) for column in columns]
        index = 0
        for number, file in enumerate(self.files):
            for rows in self.shard(number).scan(columns):
                _check_columns(file, rows.batch.schema, types)
                values = []
                for column, own in zip(columns, names, strict=True):
                    try:
                        cells = rows.batch.column(column).to_pylist()
                    except UnicodeDecodeError as error:
                        raise DatasetError(
                            f"{file}: column {column!r} holds texts that are not UTF-8"
                        ) from error
                    if own is not None:  # labels, by their names
                        known = range(len(own))
                        cells = [own[value] if value in known else value for value in cells]
                    values.append(cells)
                found = zip(*values, strict=True) if columns else repeat((), len(rows.batch))
                for row, value in enumerate(found, rows.first):
                    yield Row(number, rows.group, row, rows.start + row, index, value)
                    index += 1
        if index == 0:
            raise DatasetError(f"{self.name} has no rows")
        if self.rows is not None and index != self.rows:
            raise DatasetError(
                f"{self.name} has {index:,} of the {self.rows:,} rows that its card tells"
            )

    def where(self, row: Row, column: str) -> str:
        """File, row and column, for errors."""
        return f"{self.files[row.shard]}, row {row.number}, column {column!r}"

    def column(self, names: Sequence[str], what: str, setting: str) -> str:
        """The first of some columns that is there. Raises DatasetError that names those that are.

        what: is expected in it. setting: the key that names another.
        """
        for name in names:
            if name in self.schema.names:
                return name
        wanted = " or ".join(map(repr, names))
        near = did_you_mean(names[0], self.schema.names) if len(names) == 1 else ""
        raise DatasetError(
            f"{self.name} has no column {wanted} with {what}: name one as {setting} in "
            f"[data]; its columns: {', '.join(self.schema.names)}.{near}"
        )


def label_names(schema: pa.Schema, column: str) -> Sequence[str] | None:
    """The names of a column of labels, as `datasets` keeps them; None for any other column."""
    metadata = (schema.metadata or {}).get(b"huggingface", b"")
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        feature = json.loads(metadata)["info"]["features"][column]
        names = feature["names"]
        if feature["_type"] == "ClassLabel" and all(isinstance(name, str) for name in names):
            return list(names)
    return None


def _check_columns(file: DataFile, schema: pa.Schema, types: Mapping[str, pa.DataType]) -> None:
    for column, kind in types.items():
        position = schema.get_field_index(column)
        if position < 0:
            raise DatasetError(f"{file} has no column {column!r}, which other shards have")
        other = schema.field(position).type
        if _value_type(other) != _value_type(kind):
            raise DatasetError(
                f"{file}: column {column!r} is {other}, in other shards it is {kind}"
            )


def _value_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values, which a dictionary may hold."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def open_shard(file: DataFile) -> Shard:
    """The shard in a file; a Parquet file of the hub stays there until its images are needed.

    Raises DatasetError where the file cannot be had, or is damaged.
    """
    if file.name.endswith(".parquet"):
        from pytest_cepbench.datasets.sources.shards import ParquetShard

        if isinstance(file, HubFile) and file.known_path is None:
            from pytest_cepbench.datasets.sources.shards import RemoteParquetShard

            return RemoteParquetShard(file)
        return ParquetShard(file.fetch(), str(file))
    path = file.fetch()
    if file.name.endswith(".arrow"):
        from pytest_cepbench.datasets.sources.shards import ArrowShard

        return ArrowShard(path, str(file))
    from pytest_cepbench.datasets.sources.webdataset import TarShard

    return TarShard(path, str(file), file.indexes)


MOST_KEPT = 256 * 2**20
"""Bytes of encoded images that are kept of the last row groups."""

_MOST_READ = MOST_KEPT // 4
"""Bytes of one row group that are read ahead."""

_MOST_OPEN = 8
"""Shards that are kept open."""


@dataclass(frozen=True)
class CellImage:
    """A seed image in a table; read when it is needed.

    file: the shard.
    column: its name.
    group, row: the row group, and the row within it.
    number: of the row in the shard, for errors.
    together: the rows of the group that samples use, in rising order; they are read at a time.
    """

    file: DataFile
    column: str
    group: int
    row: int
    number: int
    together: tuple[int, ...]

    @property
    def where(self) -> str:
        """File, row and column, for errors."""
        return f"{self.file}, row {self.number}, column {self.column!r}"

    @property
    def part(self) -> str:
        """Which part of the file it is."""
        return f"{self.column} {self.group}+{self.row}"

    @property
    def path(self) -> Path | None:
        """The shard on this machine; None where it was not fetched yet."""
        return self.file.known_path

    def load(self) -> ImageArtifact:
        """The image. Raises ImageError naming file, row and column when there is none."""
        try:
            return decode_image(_bytes_of(_CELLS.value(self)))
        except (DatasetError, ImageError, ValueError) as error:  # the last of base64
            raise ImageError(
                str(error) if isinstance(error, DatasetError) else f"{self.where}: {error}"
            ) from error


def _bytes_of(value: Any) -> bytes:
    """The encoded image in a cell. Raises ImageError where there is none."""
    if isinstance(value, list):
        if len(value) != 1:
            raise ImageError(f"a list of {len(value)} images: one is expected")
        (value,) = value
    if isinstance(value, dict):
        if value.get("bytes") is None and value.get("path"):
            raise ImageError(
                f"holds the path {value['path']!r:.200} and no bytes: save the data set with its "
                "images embedded, as save_to_disk and push_to_hub do"
            )
        value = value.get("bytes")
    if value is None:
        raise ImageError("null: an image is expected")
    if isinstance(value, str):
        text = value.partition(",")[2] if value.startswith("data:") else value
        return b64decode("".join(text.split()), validate=True)
    return bytes(value)


class _CellCache:
    """The last cells that were read, and the last shards that were opened.

    Files are read by one thread at a time; decoding, which takes longer, is done outside.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cells: OrderedDict[tuple[DataFile, str, int, int], Any] = OrderedDict()
        self._bytes = 0
        self._shards: OrderedDict[DataFile, Shard] = OrderedDict()

    def value(self, image: CellImage) -> Any:
        """The value of a cell. Raises DatasetError where it cannot be read."""
        key = (image.file, image.column, image.group)
        with self._lock:
            if (*key, image.row) not in self._cells:
                for row, value in self._read(image):
                    self._add((*key, row), value)
            self._cells.move_to_end((*key, image.row))
            value = self._cells[(*key, image.row)]
            self._drop()
            return value

    def _read(self, image: CellImage) -> Iterator[tuple[int, Any]]:
        """The rows of the group from the image's on that are used, as far as they are few bytes."""
        image.file.fetch()  # refuses one that changed since
        rows = image.together[image.together.index(image.row) :]
        read = 0
        cells = self._shard(image.file).cells(image.column, image.group, rows)
        for row, value in zip(rows, cells, strict=True):
            yield row, value
            read += _size(value)
            if read > _MOST_READ:
                return

    def _shard(self, file: DataFile) -> Shard:
        if file not in self._shards:
            self._shards[file] = open_shard(file)
        self._shards.move_to_end(file)
        while len(self._shards) > _MOST_OPEN:
            self._shards.popitem(last=False)
        return self._shards[file]

    def _add(self, key: tuple[DataFile, str, int, int], value: Any) -> None:
        self._bytes += _size(value) - _size(self._cells.pop(key, None))
        self._cells[key] = value

    def _drop(self) -> None:
        while self._bytes > MOST_KEPT and len(self._cells) > 1:
            _, value = self._cells.popitem(last=False)
            self._bytes -= _size(value)


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_size, value))
    if isinstance(value, dict):
        value = value.get("bytes")
    return len(value) if isinstance(value, bytes | str) else 0


_CELLS = _CellCache()
