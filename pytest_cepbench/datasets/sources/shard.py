"""One shard of a table: columns that are scanned without the others, and cells read when needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pytest_cepbench.errors import DatasetError, UnreadError
from pytest_cepbench.files import tells_of_file

if TYPE_CHECKING:
    import pyarrow as pa

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


def pick(batches: Iterable[tuple[int, pa.Array]], rows: Sequence[int]) -> Iterator[Any]:
    """The values of some rows.

    batches: number of the first row, and values, of runs of rows in rising order.
    rows: those that are wanted, in rising order.
    """
    wanted = iter(rows)
    row = next(wanted, None)
    for first, values in batches:
        while row is not None and row < first + len(values):
            yield values[row - first].as_py()
            row = next(wanted, None)
        if row is None:
            return
