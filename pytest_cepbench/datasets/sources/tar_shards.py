"""Webdataset shards: plain tars, whose members are listed once and read by their offset.

Members of one name up to its first dot are a row, wherever they lie; what follows the dot is the
column (`0001.jpg`, `0001.txt`: row `0001`, columns `jpg` and `txt`). `datasets` (tried with 5.2)
refuses a tar whose members lie apart, and gives no single row without all before it.
"""

from __future__ import annotations

import tarfile
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from pytest_cepbench.datasets.sources.files import outside
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.files import open_regular

if TYPE_CHECKING:
    import pyarrow as pa

_KEY = "__key__"
"""The column of the names of rows."""

_IMAGES = ("jpg", "jpeg", "png", "webp")
"""Columns that stand for one another where no row of the archive has two of them."""

_MOST_CELL = 2**30
"""Largest member that is read, in bytes."""

_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")


def open_tar(
    path: Path,
) -> tuple[pa.Schema, list[int], Callable[[int, list[str], int], Iterator[pa.RecordBatch]]]:
    """Schema, sizes of groups, and what reads one, as of `Shard`: each row is a group of its own.

    Raises DatasetError where it is no plain tar of plain files, and OSError and tarfile.TarError.
    """
    import pyarrow as pa

    with open_regular(path) as stream:
        rows, places = _list_members(path, stream)
    keys, images = list(rows), [name for name in _IMAGES if name in places]
    alike = all(
        sum(places[name][row] > 0 for name in images) <= 1 for row in range(0, 2 * len(keys), 2)
    )

    def cell(column: str, row: int) -> str | bytes | None:
        if column == _KEY:
            return keys[row]
        for name in (column, *(images if alike and column in _IMAGES else ())):
            offset, size = places[name][2 * row : 2 * row + 2] if name in places else (0, 0)
            if not offset:
                continue
            if size > _MOST_CELL:
                _refuse(path, f"a member {name!r} has {size:,} bytes, at most {_MOST_CELL:,}")
            with open_regular(path) as stream:
                stream.seek(offset)
                data = stream.read(size)
            if len(data) < size:
                _refuse(path, f"it is cut short: a member {name!r} is not whole")
            return data
        return None

    def batches(row: int, columns: list[str], _: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({column: [cell(column, row)] for column in columns})

    schema = pa.schema({_KEY: pa.string(), **dict.fromkeys(places, pa.binary())})
    return schema, [1] * len(keys), batches


def _list_members(path: Path, stream: BinaryIO) -> tuple[dict[str, int], dict[str, array[int]]]:
    """Name -> number of each row, and of each column offset and size of every row's bytes in turn,
    0 for none. Hidden members, such as those that macOS adds, are passed over.
    """
    if stream.read(6).startswith(_COMPRESSED):
        _refuse(path, "it is compressed: unpack it to a plain tar")
    stream.seek(0)
    rows: dict[str, int] = {}
    places: dict[str, array[int]] = {}
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined] # else every header stays in memory
            folder, slash, file = member.name.removeprefix("./").rpartition("/")
            hidden = file.startswith(".") and file != ".."
            if member.isdir() or hidden or "__MACOSX" in folder.split("/"):
                continue
            if not member.isreg() or member.issparse():
                _refuse(path, f"member {member.name!r} is no plain file")
            if reason := outside(member.name):
                _refuse(path, f"member {reason}")
            stem, _, suffix = file.partition(".")
            column = suffix.lower()
            if not column or column == _KEY:
                what = "has no suffix, so that it is no column of a row"
                _refuse(path, f"member {member.name!r} {what}")
            row = rows.setdefault(f"{folder}{slash}{stem}", len(rows))
            cells = places.setdefault(column, array("q"))
            cells.extend([0] * (2 * row + 2 - len(cells)))
            if cells[2 * row]:
                _refuse(path, f"member {member.name!r} is there twice")
            cells[2 * row : 2 * row + 2] = array("q", (member.offset_data, member.size))
        # An archive ends with blocks of zeros; one that a killed program left does not.
        stream.seek(max(0, archive.offset))
        block = stream.read(tarfile.BLOCKSIZE)
        if len(block) < tarfile.BLOCKSIZE or any(block):
            _refuse(path, "it is cut short: the blocks at its end are missing")
    for cells in places.values():
        cells.extend([0] * (2 * len(rows) - len(cells)))
    return rows, places


def _refuse(path: Path, what: str) -> NoReturn:
    raise DatasetError(f"{path}: {what}")
