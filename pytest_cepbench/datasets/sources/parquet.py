"""Parquet shards: row groups from the metadata, columns one by one, images group by group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cepbench.datasets.sources.shard import BATCH, Rows, pick, reading

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_KIND = "Parquet"

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
        with reading(name, _KIND):
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
        return pick(self._numbered(group, column), rows)

    def copy_columns(self, columns: Sequence[str], target: Any) -> None:
        """Write some columns, in row groups of the same size.

        target: a path, or what pyarrow writes to in its place.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        def read(group: int, count: int) -> pa.Table:
            if not columns:
                return pa.table({"row": pa.nulls(count)})
            return self._file.read_row_group(group, columns=list(columns), use_threads=False)

        schema = (
            pa.schema([self._schema.field(column) for column in columns])
            if columns
            else pa.schema({"row": pa.null()})
        )
        with (
            reading(self._name, _KIND),
            pq.ParquetWriter(
                target, schema.with_metadata(self._schema.metadata), write_page_checksum=True
            ) as writer,
        ):
            for group, count in enumerate(self.groups):
                writer.write_table(read(group, count), row_group_size=max(count, 1))

    def _numbered(self, group: int, column: str) -> Iterator[tuple[int, pa.Array]]:
        first = 0
        for batch in self._batches(group, [column], _CELLS):
            yield first, batch.column(0)
            first += len(batch)

    def _batches(self, group: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        with reading(self._name, _KIND):
            yield from self._file.iter_batches(
                batch_size=most, row_groups=[group], columns=list(columns), use_threads=False
            )
