"""Arrow IPC shards, as `save_to_disk` writes them: mapped into memory, read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cepbench.datasets.sources.shard import BATCH, Rows, pick, reading
from pytest_cepbench.errors import DatasetError

if TYPE_CHECKING:
    import pyarrow as pa

_KIND = "Arrow"

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
        with reading(name, _KIND):
            self._map = pa.memory_map(str(path))
            self._reader = self._open()
            self._schema = self._reader.schema
        if any(pa.types.is_dictionary(field.type) for field in self._schema):
            raise DatasetError(
                f"{name} has dictionary-encoded columns, which are not read: save it as Parquet"
            )
        self._offsets = [] if self._is_file else self._batch_offsets()

    @property
    def schema(self) -> pa.Schema:
        """Names and types of all columns."""
        return self._schema

    def scan(self, columns: Sequence[str]) -> Iterator[Rows]:
        """All rows of some columns; see `Shard.scan`."""
        start = 0
        for group in range(self._count):
            whole = self._batch(group)
            batch = whole.select(list(columns)) if columns else whole
            for first in range(0, len(batch), BATCH):
                yield Rows(group, first, start, batch.slice(first, BATCH))
            start += len(batch)

    def cells(self, column: str, group: int, rows: Sequence[int]) -> Iterator[Any]:
        """Values of some rows of a group; see `Shard.cells`."""
        return pick([(0, self._batch(group).column(column))], rows)

    @property
    def _is_file(self) -> bool:
        return hasattr(self._reader, "num_record_batches")

    @property
    def _count(self) -> int:
        return int(self._reader.num_record_batches) if self._is_file else len(self._offsets)

    def _open(self) -> Any:
        import pyarrow as pa

        self._map.seek(0)
        magic = self._map.read(len(_FILE_MAGIC))
        self._map.seek(0)
        if magic == _FILE_MAGIC:
            return pa.ipc.open_file(self._map)
        return pa.ipc.open_stream(self._map)

    def _batch_offsets(self) -> list[int]:
        """Where each record batch of a stream begins; their values are not touched."""
        offsets = []
        with reading(self._name, _KIND):
            while True:
                offset = self._map.tell()
                try:
                    self._reader.read_next_batch()
                except StopIteration:
                    break
                offsets.append(offset)
            size = self._map.size()
            self._map.seek(max(0, size - len(_END_OF_STREAM)))
            if self._map.read() != _END_OF_STREAM:
                raise ValueError("it ends without the mark of its end, so it was cut short")
        return offsets

    def _batch(self, group: int) -> pa.RecordBatch:
        import pyarrow as pa

        with reading(self._name, _KIND):
            if self._is_file:
                return self._reader.get_batch(group)
            self._map.seek(self._offsets[group])
            return pa.ipc.read_record_batch(pa.ipc.read_message(self._map), self._schema)
