"""A file of a data set: on this machine, or on the hub until it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pytest_cepbench.artifacts.digest import FileStamp
from pytest_cepbench.errors import DatasetError
from pytest_cepbench.files import open_regular


class DataFile(Protocol):
    """A file that can be brought to this machine; its text form names it in errors."""

    @property
    def name(self) -> str:
        """The file's path within its data set."""
        ...

    @property
    def indexes(self) -> Path | None:
        """Folder where what was read of it is kept; None for nowhere."""
        ...

    @property
    def known_path(self) -> Path | None:
        """Where it lies on this machine; None where it was not fetched yet."""
        ...

    def fetch(self) -> Path:
        """Where it lies on this machine. Raises DatasetError where it cannot be had."""
        ...


@dataclass(frozen=True)
class LocalFile:
    """A file on this machine that must stay as it was when it was listed.

    path: of the file.
    stamp: taken when it was listed.
    root: the data set's folder.
    indexes: folder where what was read of it is kept; None for nowhere.
    """

    path: Path
    stamp: FileStamp
    root: Path
    indexes: Path | None = None

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """The file's path within its data set."""
        inside = self.path != self.root and self.path.is_relative_to(self.root)
        return self.path.relative_to(self.root).as_posix() if inside else self.path.name

    @property
    def known_path(self) -> Path:
        """Where it lies."""
        return self.path

    def fetch(self) -> Path:
        """Its path. Raises DatasetError where it is gone, changed, or no regular file."""
        try:
            if FileStamp.of(self.path) != self.stamp:
                raise DatasetError(f"{self.path} changed after its rows were listed: run again")
        except OSError as error:
            raise DatasetError(f"{self.path} cannot be read: {error.strerror}") from error
        return self.path


def local_file(path: Path, root: Path, indexes: Path | None = None) -> LocalFile:
    """A file as it lies now. Raises DatasetError for what cannot be read or is not regular."""
    try:
        stamp = FileStamp.of(path)
        open_regular(path).close()  # not a pipe or a device, which would block
    except OSError as error:
        raise DatasetError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    return LocalFile(path, stamp, root, indexes)
