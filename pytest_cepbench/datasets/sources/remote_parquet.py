"""A Parquet shard that is still on the hub: some columns are read by ranges, images fetch it whole.

What is read is copied beside the indexes, so that a list of ids travels once. The copy has the row
groups of the original, so a row has the same place in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cepbench.datasets.sources.hub import HubFile
from pytest_cepbench.datasets.sources.index_cache import index_path, place_file
from pytest_cepbench.datasets.sources.parquet import ParquetShard
from pytest_cepbench.datasets.sources.shard import Rows, reading
from pytest_cepbench.errors import DatasetError

if TYPE_CHECKING:
    import pyarrow as pa


class RemoteParquetShard:
    """A Parquet file of the hub that was not fetched yet.

    file: which one.
    """

    def __init__(self, file: HubFile) -> None:
        self._file = file

    @cached_property
    def schema(self) -> pa.Schema:
        """Names and types of all columns."""
        return self._copy("schema", _copy_schema).schema

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
        with file.open_remote() as stream, reading(name, "Parquet"):
            remote = ParquetShard(stream, name)

            def write(target: Path) -> None:
                copy(remote, target)

            if kept is not None and place_file(kept, write):
                return ParquetShard(kept, name)
            buffer = pa.BufferOutputStream()
            copy(remote, buffer)
            return ParquetShard(pa.BufferReader(buffer.getvalue()), name)


def _copy_schema(remote: ParquetShard, target: Any) -> None:
    import pyarrow.parquet as pq

    pq.write_table(remote.schema.empty_table(), target)
