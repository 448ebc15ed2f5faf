"""Webdataset shards: the members of a plain tar are listed once, and read by their offset.

Members of one name up to its first dot are a row, wherever they lie; what follows the dot is the
column (`0001.jpg`, `0001.txt`: row `0001`, columns `jpg` and `txt`). Hidden members, such as those
that macOS adds, are passed over. Where no row has two images, those of all types are one column.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from pytest_cepbench.datasets.sources.files import index_of_file, unsafe
from pytest_cepbench.datasets.sources.shards import Rows
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.files import open_regular

if TYPE_CHECKING:
    import pyarrow as pa


KEY = "__key__"
"""The column of the names of rows."""

_MOST_CELL = 2**30
"""Largest member that is read, in bytes."""

GROUP = 64
"""Rows that are read ahead of one that is needed."""

IMAGES = ("jpg", "jpeg", "png", "webp")
"""Columns that stand for one another where no row of the archive has two of them."""

_BLOCK = 512

_COMPRESSED = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)


class TarShard:
    """A tar archive; few rows are a group, since each member is read by itself.

    path: of the file.
    name: names it in errors.
    indexes: folder where the list of its members is kept; None for nowhere.
    """

    def __init__(self, path: Path, name: str, indexes: Path | None = None) -> None:
        self._path = path
        self._name = name
        self._index = index_of_file(indexes, path, "rows", lambda: _list_members(path, name))

    @property
    def schema(self) -> pa.Schema:
        """The key as a text, and every other column as bytes."""
        import pyarrow as pa

        columns = [field.name for field in self._index.schema if field.name != KEY]
        return pa.schema({KEY: pa.string(), **dict.fromkeys(columns, pa.binary())})

    def scan(self, columns: Sequence[str]) -> Iterator[Rows]:
        """All rows of some columns; see `Shard.scan`."""
        import pyarrow as pa

        with self._open() as stream:
            for start in range(0, self._index.num_rows, GROUP):
                part = self._index.slice(start, GROUP)
                arrays = {
                    column: part.column(column).combine_chunks()
                    if column == KEY
                    else pa.array(
                        [
                            self._read(stream, column, place)
                            for place in part.column(column).to_pylist()
                        ],
                        pa.binary(),
                    )
                    for column in columns or [KEY]
                }
                yield Rows(start // GROUP, 0, start, pa.record_batch(arrays))

    def cells(self, column: str, group: int, rows: Sequence[int]) -> Iterator[Any]:
        """Values of some rows; see `Shard.cells`."""
        names = [column] if column in self._index.column_names else []
        if column in IMAGES and self._has_one_image:
            other = [name for name in IMAGES if name in self._index.column_names]
            names += [name for name in other if name != column]
        with self._open() as stream:
            for row in rows:
                places = (self._index.column(name)[group * GROUP + row].as_py() for name in names)
                place = next(filter(None, places), None)
                yield place if column == KEY else self._read(stream, column, place)

    @cached_property
    def _has_one_image(self) -> bool:
        """Whether no row has two images, of which one might be a mask of the other."""
        import numpy as np

        columns = [name for name in IMAGES if name in self._index.column_names]
        held = [self._index.column(name).is_valid().to_numpy() for name in columns]
        return bool(np.sum(held, axis=0).max(initial=0) <= 1)

    def _open(self) -> BinaryIO:
        try:
            return open_regular(self._path)
        except OSError as error:
            raise DatasetError(f"{self._name} cannot be read: {error.strerror}") from error

    def _read(self, stream: BinaryIO, column: str, place: dict[str, int] | None) -> bytes | None:
        if place is None:
            return None
        if place["size"] > _MOST_CELL:
            _refuse(
                self._name,
                f"a member {column!r} has {place['size']:,} bytes, at most {_MOST_CELL:,} are read",
            )
        stream.seek(place["offset"])
        data = stream.read(place["size"])
        if len(data) < place["size"]:
            _refuse(self._name, f"it is cut short: a member {column!r} is not whole")
        return data


def _list_members(path: Path, name: str) -> pa.Table:
    """Key, and offset and size of each column's bytes, of every row, by one look at the headers."""
    import pyarrow as pa

    rows: dict[str, int] = {}
    places: dict[str, dict[int, tuple[int, int]]] = {}
    for member in _members(path, name):
        folder, slash, file = member.name.rpartition("/")
        stem, _, suffix = file.partition(".")
        key, column = f"{folder}{slash}{stem}", suffix.lower()
        if not column or column == KEY:
            _refuse(name, f"member {member.name!r} has no suffix, so that it is no column of a row")
        row = rows.setdefault(key, len(rows))
        cells = places.setdefault(column, {})
        if row in cells:
            _refuse(name, f"member {member.name!r} is there twice")
        cells[row] = (member.offset_data, member.size)
    kind = pa.struct({"offset": pa.int64(), "size": pa.int64()})
    columns = {
        column: pa.array(
            [
                None if (cell := cells.get(row)) is None else {"offset": cell[0], "size": cell[1]}
                for row in range(len(rows))
            ],
            kind,
        )
        for column, cells in places.items()
    }
    return pa.table({KEY: pa.array(rows, pa.string()), **columns})


def _members(path: Path, name: str) -> Iterator[tarfile.TarInfo]:
    """The regular members in order; everything else but folders is refused."""
    try:
        with open_regular(path) as stream:
            head = stream.read(8)
            for magic, kind in _COMPRESSED:
                if head.startswith(magic):
                    _refuse(name, f"it is compressed ({kind}): unpack it to a plain tar")
            stream.seek(0)
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                while (member := archive.next()) is not None:
                    archive.members = []  # type: ignore[attr-defined] # else every header stays in memory
                    folder, _, file = member.name.rpartition("/")
                    hidden = file.startswith(".") and file != ".."
                    if not (member.isdir() or hidden or "__MACOSX" in folder.split("/")):
                        yield _checked(name, member)
                # An archive ends with blocks of zeros; one that a killed program left does not.
                stream.seek(max(0, archive.offset))
                block = stream.read(_BLOCK)
                if len(block) < _BLOCK or any(block):
                    _refuse(name, "it is cut short: the blocks at its end are missing")
    except tarfile.TarError as error:
        _refuse(name, f"it is no whole tar archive: {error}")
    except OSError as error:
        _refuse(name, f"it cannot be read: {error.strerror or error}")
    except (ValueError, UnicodeError) as error:
        _refuse(name, f"it is no tar archive: {error}")


def _checked(name: str, member: tarfile.TarInfo) -> tarfile.TarInfo:
    if member.issym() or member.islnk():
        _refuse(name, f"member {member.name!r} is a link: save the file itself")
    if not member.isreg() or member.issparse():
        _refuse(name, f"member {member.name!r} is no plain file")
    reason = unsafe(member.name)
    if reason is not None:
        _refuse(name, f"member {reason}")
    return member


def _refuse(name: str, what: str) -> NoReturn:
    raise DatasetError(f"{name}: {what}")
