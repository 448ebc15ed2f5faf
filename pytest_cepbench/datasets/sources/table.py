"""A table of samples in shards: its rows scanned without images, and images read when needed."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_cepbench.artifacts import ImageArtifact, decode_image
from pytest_cepbench.datasets.sources.files import DataFile
from pytest_cepbench.datasets.sources.shards import Shard, open_shard
from pytest_cepbench.errors import DatasetError, ImageError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa


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
    """

    name: str
    files: tuple[DataFile, ...]
    source: str = ""
    notes: tuple[str, ...] = ()

    @cached_property
    def schema(self) -> pa.Schema:
        """Names and types of the columns, by the first shard."""
        return open_shard(self.files[0].path).schema

    def scan(self, columns: Sequence[str]) -> Iterator[Row]:
        """All rows, with the values of some columns. Raises DatasetError for damaged shards, and
        for those of other columns.

        Labels (`ClassLabel`) are given by their names.
        """
        names = [label_names(self.schema, column) for column in columns]
        position = 0
        for number, file in enumerate(self.files):
            shard = open_shard(file.path)
            for column in columns:
                self._check_column(file, shard, column)
            start = 0
            for group, count in enumerate(shard.groups):
                found = shard.read(group, columns, None) if columns else repeat((), count)
                for row, values in enumerate(found):
                    labelled = tuple(
                        own[value] if own and value in range(len(own)) else value
                        for own, value in zip(names, values, strict=True)
                    )
                    yield Row(number, group, row, start + row, position, labelled)
                    position += 1
                start += count
        if position == 0:
            raise DatasetError(f"{self.name} has no rows")

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

    def _check_column(self, file: DataFile, shard: Shard, column: str) -> None:
        import pyarrow as pa

        kinds = []  # of the values, which a dictionary may hold
        for schema in (shard.schema, self.schema):
            if column not in schema.names:
                raise DatasetError(f"{file} has no column {column!r}, which other shards have")
            kind = schema.field(column).type
            kinds.append(kind.value_type if pa.types.is_dictionary(kind) else kind)
        if kinds[0] != kinds[1]:
            raise DatasetError(
                f"{file}: column {column!r} is {kinds[0]}, in other shards it is {kinds[1]}"
            )


def label_names(schema: pa.Schema, column: str) -> Sequence[str] | None:
    """The names of a column of labels, as `datasets` keeps them; None for any other column."""
    metadata = (schema.metadata or {}).get(b"huggingface", b"")
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        feature = json.loads(metadata)["info"]["features"][column]
        if feature["_type"] == "ClassLabel":
            return list(map(str, feature["names"]))
    return None


MOST_KEPT = 256 * 2**20
"""Bytes of encoded images that are kept of the last row groups."""

_MOST_READ = MOST_KEPT // 4
"""Bytes of one row group that are read ahead."""


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
    def path(self) -> Path:
        """Of the shard."""
        return self.file.path

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
    """The last cells that were read, and the last eight shards that were opened.

    Files are read by one thread at a time; decoding, which takes longer, is done outside.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cells: OrderedDict[tuple[DataFile, str, int, int], Any] = OrderedDict()
        self._bytes = 0
        self._shards: OrderedDict[DataFile, Shard] = OrderedDict()

    def value(self, image: CellImage) -> Any:
        """The value of a cell. Raises DatasetError where it cannot be read.

        With it the next rows of the group that are used are read, as far as they are few bytes.
        """
        key = (image.file, image.column, image.group)
        with self._lock:
            if (*key, image.row) not in self._cells:
                image.file.check()
                rows = image.together[image.together.index(image.row) :]
                before = self._bytes
                cells = self._shard(image.file).read(image.group, [image.column], rows)
                for row, (value,) in zip(rows, cells, strict=False):
                    self._bytes += _size(value) - _size(self._cells.pop((*key, row), None))
                    self._cells[*key, row] = value
                    if self._bytes - before > _MOST_READ:
                        break
            self._cells.move_to_end((*key, image.row))
            value = self._cells[*key, image.row]
            while self._bytes > MOST_KEPT and len(self._cells) > 1:
                self._bytes -= _size(self._cells.popitem(last=False)[1])
            return value

    def _shard(self, file: DataFile) -> Shard:
        if file not in self._shards:
            self._shards[file] = open_shard(file.path)
        self._shards.move_to_end(file)
        while len(self._shards) > 8:
            self._shards.popitem(last=False)
        return self._shards[file]


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_size, value))
    if isinstance(value, dict):
        value = value.get("bytes")
    return len(value) if isinstance(value, bytes | str) else 0


_CELLS = _CellCache()
