"""Shards of a table, Parquet, Arrow and webdataset tar: rows are read group by group, in place.

Arrow files and streams are mapped into memory; the members of a plain tar are listed once and read
by their offset. Members of one name up to its first dot are a row, wherever they lie; what follows
the dot is the column (`0001.jpg`, `0001.txt`: row `0001`, columns `jpg` and `txt`).

Hugging Face `datasets` reads the same formats and is not used (tried with 5.2): `load_dataset`
writes all of a set again, images included, before a row is read, streaming gives no single row
without all before it, missing shards pass, and a tar whose members lie apart is refused.
"""

from __future__ import annotations

import tarfile
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from pytest_cepbench.datasets.sources.files import unsafe
from pytest_cepbench.errors import DatasetError, UnreadError
from pytest_cepbench.files import open_regular, tells_of_file

if TYPE_CHECKING:
    import pyarrow as pa

_SCANNED, _PICKED = 8192, 16
"""Rows that are decoded at a time: of a scan, and where single rows are wanted, as of images."""

Values = Iterator[tuple[Any, ...]]


@dataclass(frozen=True)
class Shard:
    """A file of rows, in groups that are decoded together.

    schema: names and types of all columns.
    groups: number of rows of each.
    read: (group, columns, rows of it in rising order or None for all) -> their values, row by row.
        Raises DatasetError where the file is damaged.
    """

    schema: pa.Schema
    groups: Sequence[int]
    read: Callable[[int, Sequence[str], Sequence[int] | None], Values]


def open_shard(path: Path) -> Shard:
    """The shard in a file, by its suffix. Raises DatasetError where it is damaged."""
    return FORMATS[path.suffix](path)


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


def _values(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], rows: Sequence[int] | None
) -> Values:
    """Values of the batches of a group, which follow one another; see `Shard.read`."""
    first = 0
    for batch in batches:
        end = first + len(batch)
        if rows is None:
            yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
        else:
            for row in rows[bisect_left(rows, first) : bisect_left(rows, end)]:
                yield tuple(batch.column(name)[row - first].as_py() for name in columns)
            if end > rows[-1]:
                return
        first = end


def _open_parquet(path: Path) -> Shard:
    import pyarrow.parquet as pq

    with _reading(path):
        # A column is read a MiB at a time, so that a row group is never in memory whole.
        file = pq.ParquetFile(path, buffer_size=2**20, pre_buffer=False)
    metadata = file.metadata
    groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]

    def read(group: int, columns: Sequence[str], rows: Sequence[int] | None) -> Values:
        with _reading(path):
            batches = file.iter_batches(
                batch_size=_SCANNED if rows is None else _PICKED,
                row_groups=[group],
                columns=list(columns),
                use_threads=False,
            )
            yield from _values(batches, columns, rows)

    return Shard(file.schema_arrow, groups, read)


_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def _open_arrow(path: Path) -> Shard:
    import pyarrow as pa

    with _reading(path):
        source = pa.memory_map(str(path))
        if source.read(6) == b"ARROW1":  # the file format; streams, which `datasets` writes, do not
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

    def read(group: int, columns: Sequence[str], rows: Sequence[int] | None) -> Values:
        whole, most = held[group].select(list(columns)), _SCANNED if rows is None else _PICKED
        with _reading(path):
            parts = (whole.slice(first, most) for first in range(0, len(whole), most))
            yield from _values(parts, columns, rows)

    return Shard(reader.schema, list(map(len, held)), read)


# -- webdataset ------------------------------------------------------------------------------------

_KEY = "__key__"
"""The column of the names of rows."""

_IMAGES = ("jpg", "jpeg", "png", "webp")
"""Columns that stand for one another where no row of the archive has two of them."""

_GROUP = 64
"""Rows of a tar that count as a group; each member is read by itself."""

_MOST_CELL = 2**30
"""Largest member that is read, in bytes."""


def _open_tar(path: Path) -> Shard:
    """Hidden members, such as those that macOS adds, are passed over. Where no row has two images,
    those of all types are one column.
    """
    import pyarrow as pa

    with _reading(path):
        keys, places = _list_members(path)
    images = [name for name in _IMAGES if name in places]
    one_image = all(
        sum(places[name][row] > 0 for name in images) <= 1 for row in range(0, 2 * len(keys), 2)
    )

    def cell(stream: BinaryIO, column: str, row: int) -> str | bytes | None:
        if column == _KEY:
            return keys[row]
        others = [n for n in images if n != column] if one_image and column in _IMAGES else []
        for name in (column, *others):
            offset, size = places[name][2 * row : 2 * row + 2] if name in places else (0, 0)
            if not offset:
                continue
            if size > _MOST_CELL:
                _refuse(path, f"a member {name!r} has {size:,} bytes, at most {_MOST_CELL:,}")
            stream.seek(offset)
            data = stream.read(size)
            if len(data) < size:
                _refuse(path, f"it is cut short: a member {name!r} is not whole")
            return data
        return None

    def read(group: int, columns: Sequence[str], rows: Sequence[int] | None) -> Values:
        start = group * _GROUP
        own = range(min(_GROUP, len(keys) - start)) if rows is None else rows
        with _reading(path), open_regular(path) as stream:
            for row in own:
                yield tuple(cell(stream, column, start + row) for column in columns)

    schema = pa.schema({_KEY: pa.string(), **dict.fromkeys(places, pa.binary())})
    groups = [min(_GROUP, len(keys) - start) for start in range(0, len(keys), _GROUP)]
    return Shard(schema, groups, read)


def _list_members(path: Path) -> tuple[list[str], Mapping[str, array[int]]]:
    """Names of the rows, and of each column offset and size of every row's bytes in turn, 0 for
    none.
    """
    rows: dict[str, int] = {}
    places: dict[str, array[int]] = {}
    for member in _members(path):
        folder, slash, file = member.name.rpartition("/")
        stem, _, suffix = file.partition(".")
        column = suffix.lower()
        if not column or column == _KEY:
            _refuse(path, f"member {member.name!r} has no suffix, so that it is no column of a row")
        row = rows.setdefault(f"{folder}{slash}{stem}", len(rows))
        cells = places.setdefault(column, array("q"))
        cells.extend([0] * (2 * row + 2 - len(cells)))
        if cells[2 * row]:
            _refuse(path, f"member {member.name!r} is there twice")
        cells[2 * row : 2 * row + 2] = array("q", (member.offset_data, member.size))
    for cells in places.values():
        cells.extend([0] * (2 * len(rows) - len(cells)))
    return list(rows), places


def _members(path: Path) -> Iterator[tarfile.TarInfo]:
    """The regular members in order; everything else but folders is refused."""
    with open_regular(path) as stream:
        if stream.peek(6).startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")):
            _refuse(path, "it is compressed: unpack it to a plain tar")
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined] # else every header stays in memory
                folder, _, file = member.name.rpartition("/")
                hidden = file.startswith(".") and file != ".."
                if member.isdir() or hidden or "__MACOSX" in folder.split("/"):
                    continue
                if not member.isreg() or member.issparse():
                    _refuse(path, f"member {member.name!r} is no plain file")
                if reason := unsafe(member.name):
                    _refuse(path, f"member {reason}")
                yield member
            # An archive ends with blocks of zeros; one that a killed program left does not.
            stream.seek(max(0, archive.offset))
            block = stream.read(tarfile.BLOCKSIZE)
            if len(block) < tarfile.BLOCKSIZE or any(block):
                _refuse(path, "it is cut short: the blocks at its end are missing")


def _refuse(path: Path, what: str) -> NoReturn:
    raise DatasetError(f"{path}: {what}")


FORMATS: Mapping[str, Callable[[Path], Shard]] = {
    ".parquet": _open_parquet,
    ".arrow": _open_arrow,
    ".tar": _open_tar,
}
"""Suffix of files that are read in place -> what opens them, in the order of preference."""
