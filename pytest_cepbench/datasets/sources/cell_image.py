"""Images in cells of tables: read when needed, with the other used images of their row group."""

from __future__ import annotations

import threading
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cepbench.artifacts import ImageArtifact, decode_image
from pytest_cepbench.datasets.sources.data_file import DataFile
from pytest_cepbench.datasets.sources.shard import Shard
from pytest_cepbench.datasets.sources.table import open_shard
from pytest_cepbench.errors import DatasetError, ImageError

MOST_KEPT = 256 * 2**20
"""Bytes of encoded images that are kept of the last row groups."""

_MOST_READ = MOST_KEPT // 4
"""Bytes of one row group that are read ahead."""

_MOST_OPEN = 8
"""Shards that are kept open."""


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
    def path(self) -> Path | None:
        """The shard on this machine; None where it was not fetched yet."""
        return self.file.known_path

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
    """The last cells that were read, and the last shards that were opened.

    Files are read by one thread at a time; decoding, which takes longer, is done outside.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cells: OrderedDict[tuple[DataFile, str, int, int], Any] = OrderedDict()
        self._bytes = 0
        self._shards: OrderedDict[DataFile, Shard] = OrderedDict()

    def value(self, image: CellImage) -> Any:
        """The value of a cell. Raises DatasetError where it cannot be read."""
        key = (image.file, image.column, image.group)
        with self._lock:
            if (*key, image.row) not in self._cells:
                for row, value in self._read(image):
                    self._add((*key, row), value)
            self._cells.move_to_end((*key, image.row))
            value = self._cells[(*key, image.row)]
            self._drop()
            return value

    def _read(self, image: CellImage) -> Iterator[tuple[int, Any]]:
        """The rows of the group from the image's on that are used, as far as they are few bytes."""
        image.file.fetch()  # refuses one that changed since
        rows = image.together[image.together.index(image.row) :]
        read = 0
        cells = self._shard(image.file).cells(image.column, image.group, rows)
        for row, value in zip(rows, cells, strict=True):
            yield row, value
            read += _size(value)
            if read > _MOST_READ:
                return

    def _shard(self, file: DataFile) -> Shard:
        if file not in self._shards:
            self._shards[file] = open_shard(file)
        self._shards.move_to_end(file)
        while len(self._shards) > _MOST_OPEN:
            self._shards.popitem(last=False)
        return self._shards[file]

    def _add(self, key: tuple[DataFile, str, int, int], value: Any) -> None:
        self._bytes += _size(value) - _size(self._cells.pop(key, None))
        self._cells[key] = value

    def _drop(self) -> None:
        while self._bytes > MOST_KEPT and len(self._cells) > 1:
            _, value = self._cells.popitem(last=False)
            self._bytes -= _size(value)


def _size(value: Any) -> int:
    if isinstance(value, dict):
        value = value.get("bytes")
    return len(value) if isinstance(value, bytes | str) else 0


_CELLS = _CellCache()
