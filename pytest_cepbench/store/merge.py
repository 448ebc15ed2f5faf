"""Import of another store: its undamaged results, under keys that have none yet.

The other store is a folder, or an archive that may come from an untrusted source.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, Self
from uuid import uuid4

from pytest_cepbench.artifacts.image import reading_image
from pytest_cepbench.errors import ImageError, StoreError
from pytest_cepbench.files import open_regular, read_regular
from pytest_cepbench.store.database import INDEX, INSERT_RESULT, store_errors
from pytest_cepbench.store.images import (
    FOLDER,
    MOST_BYTES,
    digest_of,
    has_image,
    image_path,
    verify_image,
    write_image,
)
from pytest_cepbench.store.readonly import ReadonlyStore
from pytest_cepbench.store.rows import MOST_PAYLOAD, check_row, dated, pages
from pytest_cepbench.store.store import Store
from pytest_cepbench.store.tables import INSERT_USE, last_used, today

_PAGE = 100  # rows in memory, of an index in which all of them may be large


@dataclass
class MergeSummary:
    """Counts of an import.

    results, images: imported.
    present: keys that had a result already, which stays.
    refused: results that were not imported, by the reason.
    """

    results: int = 0
    images: int = 0
    present: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class Source(Protocol):
    """A store to import from.

    reader: its database.
    refused: names in an archive that cannot belong to a store.
    """

    reader: ReadonlyStore
    refused: list[str]

    def image(self, digest: str) -> bytes | None:
        """The file of an image, unchecked; None where it is absent, too large, or not a file.

        Raises UnreadError where it could not be read.
        """
        ...


def merge(store: Store, source: Source) -> MergeSummary:
    """Import what is sound.

    Raises StoreError where either store cannot be used, UnreadError where an image could not be
    read; what was imported before stays.
    """
    summary = MergeSummary()
    day, tables = last_used(days=source.reader.has("used"))
    payload = f"CASE WHEN length(payload) <= {MOST_PAYLOAD} THEN payload END"
    columns = f"key, kind, {payload}, provenance, created, seal, {day}"
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for page in pages(source.reader.read, columns, tables, _PAGE):
            known = store.has(str(row[0]) for row in page)
            fresh = [(row, check_row(row[:6])) for row in page if row[0] not in known]
            wanted = {image for _, (_, image) in fresh if image is not None}
            absent = {image for image in wanted if not has_image(store.root, image)}
            images = dict(
                zip(absent, threads.map(partial(_import_image, store, source), absent), strict=True)
            )
            problems = [problem or images.get(image or "") for _, (problem, image) in fresh]
            sound = [row for (row, _), why in zip(fresh, problems, strict=True) if why is None]
            store.index.write(INSERT_RESULT, [dated(row[:6]) for row in sound])
            used = [*sound, *(row for row in page if row[0] in known)]
            store.index.write(INSERT_USE, [(row[0], min(row[6], today())) for row in used])
            summary.results += len(sound)
            summary.present += len(page) - len(fresh)
            summary.images += sum(problem is None for problem in images.values())
            summary.refused.update(problem for problem in problems if problem is not None)
    return summary


def _import_image(store: Store, source: Source, digest: str) -> str | None:
    """Import an image, before its row is; returns the problem with it, or None."""
    data = source.image(digest)
    if data is None:
        return "its image is not there"
    try:
        verify_image(data, digest)
    except ImageError:
        return "its image is damaged"
    with store_errors(store.root / INDEX):
        write_image(store.root, digest, data)
    return None


class FolderSource:
    """A store's folder, exported or live. Raises StoreError where it is none."""

    def __init__(self, folder: Path) -> None:
        self.reader = ReadonlyStore(folder, repr(str(folder)))
        self.refused: list[str] = []

    def image(self, digest: str) -> bytes | None:
        """The file of an image; see `Source`."""
        path = image_path(self.reader.folder, digest)
        try:
            with reading_image(path):
                return read_regular(path, MOST_BYTES, links=False)  # a link may lead anywhere
        except ImageError:
            return None


class TarSource:
    """An archive; only its index is unpacked, into a folder that is removed at the end.

    path: of the archive.
    work: an existing folder to unpack in.
    Raises StoreError where it is no archive of a store.
    """

    def __init__(self, path: Path, work: Path) -> None:
        self.refused: list[str] = []
        self._images: dict[str, tuple[int, int]] = {}  # offset and size in the archive, by digest
        self._folder = work / uuid4().hex
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            try:
                self._folder.mkdir()
                self._stream = stack.enter_context(open_regular(path))
                with tarfile.open(fileobj=self._stream, mode="r:") as archive:
                    self._scan(archive, path)
            except (OSError, tarfile.TarError, ValueError) as error:
                msg = f"{str(path)!r} is no archive that cepbench store export made: {error}"
                raise StoreError(msg) from error
            self.reader = stack.enter_context(ReadonlyStore(self._folder, repr(str(path))))
            self._opened = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def image(self, digest: str) -> bytes | None:
        """The file of an image; see `Source`."""
        if digest not in self._images:
            return None
        offset, size = self._images[digest]
        with reading_image(self.reader.named):
            return os.pread(self._stream.fileno(), size, offset)

    def _scan(self, archive: tarfile.TarFile, path: Path) -> None:
        """Find the images and unpack the index; no name in the archive becomes one on the disk."""
        while (member := archive.next()) is not None:
            # It would keep every member; typeshed lacks the attribute.
            archive.members.clear()  # type: ignore[attr-defined]
            plain = member.isreg() and not member.issparse()
            inside = Path(member.name)
            digest = digest_of(inside)
            if plain and member.name == INDEX and not (self._folder / INDEX).exists():
                with (self._folder / INDEX).open("wb") as index:
                    content = archive.extractfile(member)
                    assert content is not None  # a plain file has content
                    shutil.copyfileobj(content, index)
            elif (
                plain
                and digest is not None
                and member.name == image_path(Path(), digest).as_posix()
                and member.size <= MOST_BYTES
            ):
                self._images.setdefault(digest, (member.offset_data, member.size))
            elif not (member.isdir() and inside.parts[:1] in ((), (FOLDER,))):
                self.refused.append(member.name)
        if not (self._folder / INDEX).exists():
            msg = f"{str(path)!r} is no archive that cepbench store export made: it has no {INDEX}"
            raise StoreError(msg)
