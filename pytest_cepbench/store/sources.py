"""Where results can be taken over from: a store's folder, or an archive that nobody vouches for."""

from __future__ import annotations

import os
import shutil
import tarfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self
from uuid import uuid4

from pytest_cepbench.errors import StoreError
from pytest_cepbench.files import open_regular, read_regular
from pytest_cepbench.store.images import FOLDER, MOST_BYTES, digest_of, image_path
from pytest_cepbench.store.readonly import INDEX, ReadonlyStore


class Source(Protocol):
    """A store to take results from. refused: members that cannot be of a store, with the reason."""

    reader: ReadonlyStore
    refused: list[str]

    def image(self, digest: str) -> bytes | None:
        """The file of an image, not looked at; None where it is absent, too large, or no file."""
        ...


class FolderSource:
    """A store's folder, frozen or live. Raises StoreError where it is none."""

    def __init__(self, folder: Path) -> None:
        self.reader = ReadonlyStore(folder, repr(str(folder)))
        self.refused: list[str] = []

    def image(self, digest: str) -> bytes | None:
        """The file of an image; see `Source`."""
        path = image_path(self.reader.folder, digest)
        try:
            return read_regular(path, MOST_BYTES, links=False)  # a link may lead anywhere
        except OSError:
            return None


class TarSource:
    """An archive, of which only the index is unpacked, into a folder that goes when this is closed.

    work: an existing folder for that. Raises StoreError where it is no archive of a store.
    """

    def __init__(self, path: Path, work: Path) -> None:
        self.refused: list[str] = []
        self._places: dict[str, tuple[int, int]] = {}
        self._folder = work / uuid4().hex
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            try:
                self._folder.mkdir()
                self._stream = stack.enter_context(open_regular(path))
                with tarfile.open(fileobj=self._stream, mode="r:") as archive:
                    self._list(archive, path)
            except (OSError, tarfile.TarError, ValueError) as error:
                msg = f"{str(path)!r} is no archive that cepbench store export made: {error}"
                raise StoreError(msg) from error
            self.reader = stack.enter_context(ReadonlyStore(self._folder, repr(str(path))))
            self._opened = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()

    def image(self, digest: str) -> bytes | None:
        """The file of an image; see `Source`."""
        if digest not in self._places:
            return None
        offset, size = self._places[digest]
        return os.pread(self._stream.fileno(), size, offset)

    def _list(self, archive: tarfile.TarFile, path: Path) -> None:
        """Note where images lie, and unpack the index: no name of the archive becomes one on disk."""
        while (member := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined] # it would keep every one; mypy has no such name
            plain = member.isreg() and not member.issparse()
            inside = Path(member.name)
            digest = digest_of(inside)
            if plain and member.name == INDEX and not (self._folder / INDEX).exists():
                with (self._folder / INDEX).open("wb") as index:
                    source = archive.extractfile(member)
                    assert source is not None  # or it were no plain file
                    shutil.copyfileobj(source, index)
            elif (
                plain
                and digest is not None
                and member.name == image_path(Path(), digest).as_posix()
                and member.size <= MOST_BYTES
            ):
                self._places.setdefault(digest, (member.offset_data, member.size))
            elif not (member.isdir() and inside.parts[:1] in ((), (FOLDER,))):
                self.refused.append(member.name)
        if not (self._folder / INDEX).exists():
            msg = f"{str(path)!r} is no archive that cepbench store export made: it has no {INDEX}"
            raise StoreError(msg)
