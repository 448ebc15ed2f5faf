"""Shards of a table: columns that are scanned without the others, and cells read when needed.

Arrow IPC files and streams are mapped into memory, batch by batch. Parquet files are read row group
by row group; of one that is still on the hub some columns are read by ranges, and images fetch it
whole. What is read so is copied beside the indexes, in the row groups of the original, so that a
list of ids travels once and a row has the same place in both.

Hugging Face `datasets` reads the same formats and is not used (tried with 5.2): `load_dataset`
writes all of a set again, images included, before a row is read, streaming gives no single row
without all before it, missing shards pass, and a tar whose members lie apart is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pytest_cepbench.datasets.sources.files import index_path, place_file
from pytest_cepbench.datasets.sources.hub import HubFile
from pytest_cepbench.errors import DatasetError, UnreadError
from pytest_cepbench.files import tells_of_file

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


BATCH = 8192
"""Most rows of the scanned columns in memory at a time."""


@dataclass(frozen=True)
class Rows:
    """A run of rows in one group.

    group: number of the row group that they lie in.
    first: of them, counted within the group.
    start: number of the group's first row in the shard.
    batch: their values, of the scanned columns.
    """

    group: int
    first: int
    start: int
    batch: pa.RecordBatch


class Shard(Protocol):
    """A file of rows, in groups that are decoded together."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of all columns."""
        ...

    def scan(self, columns: Sequence[str]) -> Iterator[Rows]:
        """All rows of some columns, in order, at most `BATCH` at a time.

        Raises DatasetError where the file is damaged.
        """
        ...

    def cells(self, column: str, group: int, rows: Sequence[int]) -> Iterator[Any]:
        """The values of a column in some rows of a group, these in rising order.

        Raises DatasetError where the file is damaged.
        """
        ...


@contextmanager
def reading(name: str, kind: str) -> Iterator[None]:
    """Raise DatasetError in one line for what pyarrow raises of a damaged file, and UnreadError
    where the system could not read it.

    name: of the file. kind: what it should be.
    """
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        failed = isinstance(error, OSError) and error.errno is not None and not tells_of_file(error)
        if failed or isinstance(error, MemoryError):
            raise UnreadError(f"{name} could not be read: {why[:200]}") from error
        raise DatasetError(f"{name} is no whole {kind} file, or is damaged: {why[:200]}") from error


def pick(batches: Iterable[pa.Array], rows: Sequence[int]) -> Iterator[Any]:
    """The values of some rows.

    batches: values of runs of rows that follow one another.
    rows: those that are wanted, in rising order.
    """
    wanted = iter(rows)
    row = next(wanted, None)
    first = 0
    for values in batches:
        while row is not None and row < first + len(values):
            yield values[row - first].as_py()
            row = next(wanted, None)
        if row is None:
            return
        first += len(values)


_ARROW = "Arrow"

_FILE_MAGIC = b"ARROW1"
"""Begins the file format; the stream format, which `datasets` writes, has none."""

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class ArrowShard:
    """An Arrow IPC file or stream; a record batch is its group of rows.

    path: of the file.
    name: names it in errors.
    """

    def __init__(self, path: Path, name: str) -> None:
        import pyarrow as pa

        self._name = name
        with reading(name, _ARROW):
            self._map = pa.memory_map(str(path))
            self._is_file = self._map.read(len(_FILE_MAGIC)) == _FILE_MAGIC
            self._map.seek(0)
            opened = pa.ipc.open_file if self._is_file else pa.ipc.open_stream
            self._reader: Any = opened(self._map)
            self._schema = self._reader.schema
        if any(pa.types.is_dictionary(field.type) for field in self._schema):
            raise DatasetError(
                f"{name} has dictionary-encoded columns, which are not read: save it as Parquet"
            )
        self._offsets: list[int] = []  # of a stream: where each record batch begins
        if self._is_file:
            return
        with reading(name, _ARROW):
            offset = self._map.tell()
            for _ in self._reader:  # maps a batch, and does not touch its values
                self._offsets.append(offset)
                offset = self._map.tell()
            self._map.seek(max(0, self._map.size() - len(_END_OF_STREAM)))
            if self._map.read() != _END_OF_STREAM:
                raise ValueError("it ends without the mark of its end, so it was cut short")

    @property
    def schema(self) -> pa.Schema:
        """Names and types of all columns."""
        return self._schema

    def scan(self, columns: Sequence[str]) -> Iterator[Rows]:
        """All rows of some columns; see `Shard.scan`."""
        start = 0
        count = self._reader.num_record_batches if self._is_file else len(self._offsets)
        for group in range(count):
            whole = self._batch(group)
            batch = whole.select(list(columns)) if columns else whole
            for first in range(0, len(batch), BATCH):
                yield Rows(group, first, start, batch.slice(first, BATCH))
            start += len(batch)

    def cells(self, column: str, group: int, rows: Sequence[int]) -> Iterator[Any]:
        """Values of some rows of a group; see `Shard.cells`."""
        return pick([self._batch(group).column(column)], rows)

    def _batch(self, group: int) -> pa.RecordBatch:
        import pyarrow as pa

        with reading(self._name, _ARROW):
            if self._is_file:
                return self._reader.get_batch(group)
            self._map.seek(self._offsets[group])
            return pa.ipc.read_record_batch(pa.ipc.read_message(self._map), self._schema)


_PARQUET = "Parquet"

_CELLS = 16
"""Rows that are decoded at a time where they hold images."""

_BUFFER = 2**20
"""Bytes of a column that are read at a time, so that a row group is never in memory whole."""


class ParquetShard:
    """A Parquet file; its metadata is read once.

    source: its path, or what pyarrow reads in its place.
    name: names it in errors.
    """

    def __init__(self, source: Path | Any, name: str) -> None:
        import pyarrow.parquet as pq

        self._name = name
        with reading(name, _PARQUET):
            self._file: pq.ParquetFile = pq.ParquetFile(
                source, buffer_size=_BUFFER, pre_buffer=False
            )
            self._schema = self._file.schema_arrow

    @property
    def schema(self) -> pa.Schema:
        """Names and types of all columns."""
        return self._schema

    @property
    def groups(self) -> list[int]:
        """The number of rows of each row group."""
        metadata = self._file.metadata
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]

    def scan(self, columns: Sequence[str]) -> Iterator[Rows]:
        """All rows of some columns; see `Shard.scan`."""
        import pyarrow as pa

        start = 0
        for group, count in enumerate(self.groups):
            if not columns:
                yield Rows(group, 0, start, pa.record_batch([pa.nulls(count)], names=["row"]))
                start += count
                continue
            first = 0
            for batch in self._batches(group, columns, BATCH):
                yield Rows(group, first, start, batch)
                first += len(batch)
            start += count

    def cells(self, column: str, group: int, rows: Sequence[int]) -> Iterator[Any]:
        """Values of some rows of a group; see `Shard.cells`."""
        batches = self._batches(group, [column], _CELLS)
        return pick((batch.column(0) for batch in batches), rows)

    def copy_columns(self, columns: Sequence[str], target: Any) -> None:
        """Write some columns, in row groups of the same size.

        target: a path, or what pyarrow writes to in its place.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        fields = [self._schema.field(column) for column in columns] or [pa.field("row", pa.null())]
        schema = pa.schema(fields, self._schema.metadata)
        with (
            reading(self._name, _PARQUET),
            pq.ParquetWriter(target, schema, write_page_checksum=True) as writer,
        ):
            for group, count in enumerate(self.groups):
                part = pa.table({"row": pa.nulls(count)})
                if columns:
                    names = list(columns)
                    part = self._file.read_row_group(group, columns=names, use_threads=False)
                writer.write_table(part, row_group_size=max(count, 1))

    def _batches(self, group: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        with reading(self._name, _PARQUET):
            yield from self._file.iter_batches(
                batch_size=most, row_groups=[group], columns=list(columns), use_threads=False
            )


class RemoteParquetShard:
    """A Parquet file of the hub that was not fetched yet.

    file: which one.
    """

    def __init__(self, file: HubFile) -> None:
        self._file = file

    @cached_property
    def schema(self) -> pa.Schema:
        """Names and types of all columns."""
        import pyarrow.parquet as pq

        def copy(remote: ParquetShard, target: Any) -> None:
            pq.write_table(remote.schema.empty_table(), target)

        return self._copy("schema", copy).schema

    def scan(self, columns: Sequence[str]) -> Iterator[Rows]:
        """All rows of some columns; see `Shard.scan`."""

        def copy(remote: ParquetShard, target: Any) -> None:
            remote.copy_columns(columns, target)

        return self._copy(f"columns {list(columns)}", copy).scan(columns)

    def cells(self, column: str, group: int, rows: Sequence[int]) -> Iterator[Any]:
        """Values of some rows of a group; see `Shard.cells`."""
        return ParquetShard(self._file.fetch(), str(self._file)).cells(column, group, rows)

    def _copy(self, kind: str, copy: Callable[[ParquetShard, Any], None]) -> ParquetShard:
        """What `copy` makes of the remote file; kept where indexes are."""
        import pyarrow as pa

        file, name = self._file, str(self._file)
        kept = None
        if file.indexes is not None:
            kept = index_path(file.indexes, [kind, file.repo, file.commit, file.path])
            if kept.exists():
                try:
                    return ParquetShard(kept, name)
                except DatasetError:  # a damaged copy is made again
                    kept.unlink(missing_ok=True)
        with file.open_remote() as stream, reading(name, _PARQUET):
            remote = ParquetShard(stream, name)
            if kept is not None and place_file(kept, lambda target: copy(remote, target)):
                return ParquetShard(kept, name)
            buffer = pa.BufferOutputStream()
            copy(remote, buffer)
            return ParquetShard(pa.BufferReader(buffer.getvalue()), name)
