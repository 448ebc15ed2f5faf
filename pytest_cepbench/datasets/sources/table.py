"""Tables in shards, Parquet, Arrow, tar: rows are scanned without images, images read when needed.

Arrow files and streams are mapped into memory. Hugging Face `datasets` reads the same formats and
is not used (tried with 5.2): `load_dataset` writes all of a set again, images included, before a
row is read, streaming gives no single row without all before it, and missing shards pass.
"""

from __future__ import annotations

import json
import tarfile
import threading
from base64 import b64decode
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_cepbench.artifacts import ImageArtifact, decode_image
from pytest_cepbench.datasets.sources.files import DataFile
from pytest_cepbench.datasets.sources.tar_shards import open_tar
from pytest_cepbench.errors import DatasetError, ImageError, UnreadError
from pytest_cepbench.files import tells_of_file

if TYPE_CHECKING:
    import pyarrow as pa

_SCANNED, _PICKED = 8192, 16
"""Rows that are decoded at a time: of a scan, and where single rows are wanted, as of images."""

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise DatasetError in one line for what is raised of a damaged file, and UnreadError where
    the system could not read it.
    """
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, tarfile.TarError, OSError, ValueError, MemoryError) as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:200]
        failed = isinstance(error, OSError) and error.errno is not None and not tells_of_file(error)
        if failed or isinstance(error, MemoryError):
            raise UnreadError(f"{path} could not be read: {why}") from error
        kind = path.suffix.removeprefix(".").capitalize()
        raise DatasetError(f"{path} is no whole {kind} file, or is damaged: {why}") from error


@dataclass(frozen=True)
class Shard:
    """A file of rows, in groups that are decoded together.

    schema: names and types of all columns.
    groups: number of rows of each.
    batches: (group, columns, most rows of a batch) -> its batches, which follow one another.
    """

    path: Path
    schema: pa.Schema
    groups: Sequence[int]
    batches: Callable[[int, list[str], int], Iterable[pa.RecordBatch]]

    def __post_init__(self) -> None:
        with _reading(self.path):
            for column in self.schema:  # Arrow decodes names when they are asked for
                [item.name for item in column.flatten()]

    @classmethod
    def open(cls, path: Path) -> Shard:
        """The shard in a file, by its suffix. Raises DatasetError where it is damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with _reading(path):
            if path.suffix == ".tar":
                return cls(path, *open_tar(path))
            if path.suffix == ".parquet":
                # A column is read a MiB at a time, so that a row group is never in memory whole.
                file = pq.ParquetFile(path, buffer_size=2**20, pre_buffer=False)
                metadata = file.metadata
                return cls(
                    path,
                    file.schema_arrow,
                    [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)],
                    lambda group, columns, most: file.iter_batches(
                        most, row_groups=[group], columns=columns, use_threads=False
                    ),
                )
            source = pa.memory_map(str(path))
            if (
                source.read(6) == b"ARROW1"
            ):  # the file format; streams, as `datasets` writes, lack it
                reader: Any = pa.ipc.open_file(source)
                held = [reader.get_batch(number) for number in range(reader.num_record_batches)]
            else:
                source.seek(max(0, source.size() - len(_END_OF_STREAM)))
                ending = source.read()
                source.seek(0)
                reader = pa.ipc.open_stream(source)
                held = list(reader)  # mapped, and their values are not touched
                if ending != _END_OF_STREAM:  # Arrow itself reads such a file without a word
                    raise ValueError("it ends without the mark of its end, so it was cut short")

        sound: set[tuple[int, str]] = set()

        def batches(group: int, columns: list[str], most: int) -> Iterator[pa.RecordBatch]:
            whole = held[group].select(columns)
            unseen = {(group, column) for column in columns} - sound
            if unseen:  # Arrow follows damaged offsets to the end of the process
                whole.validate(full=True)
                sound.update(unseen)
            return (whole.slice(first, most) for first in range(0, len(whole), most))

        return cls(path, reader.schema, list(map(len, held)), batches)

    def read(
        self, group: int, columns: Sequence[str], rows: Sequence[int] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """The values of a group, row by row.

        rows: those of it that are wanted, in rising order; None for all.
        Raises DatasetError where the file is damaged.
        """
        first = 0
        with _reading(self.path):
            for batch in self.batches(group, list(columns), _SCANNED if rows is None else _PICKED):
                end = first + len(batch)
                if rows is None:
                    yield from zip(
                        *(batch.column(name).to_pylist() for name in columns), strict=True
                    )
                else:
                    for row in rows[bisect_left(rows, first) : bisect_left(rows, end)]:
                        yield tuple(batch.column(name)[row - first].as_py() for name in columns)
                    if end > rows[-1]:
                        return
                first = end


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
        return Shard.open(self.files[0].path).schema

    def scan(self, columns: Sequence[str]) -> Iterator[Row]:
        """All rows, with the values of some columns. Raises DatasetError for damaged shards, and
        for those of other columns.

        Labels (`ClassLabel`) are given by their names.
        """
        names = [self.label_names(column) for column in columns]
        position = 0
        for number, file in enumerate(self.files):
            shard = Shard.open(file.path)
            for column in columns:
                expected, kind = (_kind(schema, column) for schema in (self.schema, shard.schema))
                if kind is None:
                    raise DatasetError(f"{file} has no column {column!r}, which other shards have")
                if kind != expected:
                    raise DatasetError(
                        f"{file}: column {column!r} is {kind}, in other shards it is {expected}"
                    )
            start = 0
            for group, count in enumerate(shard.groups):
                found = shard.read(group, columns) if columns else repeat((), count)
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

    def label_names(self, column: str) -> Sequence[str] | None:
        """The names of a column of labels, as `datasets` keeps them; None for any other column."""
        metadata = (self.schema.metadata or {}).get(b"huggingface", b"")
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            feature = json.loads(metadata)["info"]["features"][column]
            if feature["_type"] == "ClassLabel":
                return list(map(str, feature["names"]))
        return None


def _kind(schema: pa.Schema, column: str) -> pa.DataType | None:
    """The type of a column's values, which a dictionary may hold; None where it is not there."""
    import pyarrow as pa

    if column not in schema.names:
        return None
    kind = schema.field(column).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


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
            return decode_image(encoded_image(_CELLS.value(self)))
        except DatasetError as error:  # it names the file
            raise ImageError(str(error)) from error
        except (ImageError, ValueError) as error:  # the latter of base64
            raise ImageError(
                f"{self.file}, row {self.number}, column {self.column!r}: {error}"
            ) from error


def encoded_image(value: Any) -> bytes:
    """The encoded image in a cell. Raises ImageError where there is none, ValueError of base64."""
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
    """The last cells that were read.

    Files are read by one thread at a time; decoding, which takes longer, is done outside.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cells: OrderedDict[tuple[DataFile, str, int, int], Any] = OrderedDict()
        self._bytes = 0
        self._shard = lru_cache(64)(lambda file: Shard.open(file.path))

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


def _size(value: Any) -> int:
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(_size, value)) if isinstance(value, list) else 0


_CELLS = _CellCache()
