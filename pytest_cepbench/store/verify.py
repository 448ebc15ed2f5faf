"""Verification of a whole store, and removal of what is damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pytest_cepbench.errors import DamagedIndexError, ImageError
from pytest_cepbench.store.images import digest_of, has_image, image_path, list_files, load_image
from pytest_cepbench.store.rows import ImageRef, Read, batches, pages, seal_stamp, unseal
from pytest_cepbench.store.store import Store
from pytest_cepbench.store.tables import remote_images

_PART = 64  # images that threads hold in memory at once


@dataclass(frozen=True)
class VerifyReport:
    """What is wrong with a store, and what is merely left over.

    results, images: number of those checked.
    index: SQLite's complaints about its file.
    rows: keys of results that do not match their seals.
    files: paths whose remembered digests do not match their seals.
    damaged_images: (digest, reason).
    lost: keys of results whose image is not there.
    remote: images that lie in a shared store and are fetched when needed.
    unused: images that no result refers to.
    foreign: files between the images that are not images of a store.
    """

    results: int
    images: int
    index: tuple[str, ...]
    rows: tuple[str, ...]
    files: tuple[str, ...]
    damaged_images: tuple[tuple[str, str], ...]
    lost: tuple[str, ...]
    remote: tuple[str, ...]
    unused: tuple[str, ...]
    foreign: tuple[Path, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged or missing."""
        damaged = self.index or self.rows or self.files or self.damaged_images
        return not (damaged or self.lost)


def inspect(root: Path, read: Read) -> VerifyReport:
    """Read all of the store in a folder: every row, every pixel. Changes nothing.

    Raises StoreError where the index cannot be read, UnreadError where an image cannot: neither
    says that it is damaged.
    """
    try:
        complaints = [str(line) for (line,) in read("PRAGMA integrity_check(20)", ())]
    except DamagedIndexError as error:
        complaints = [str(error)]
    index = [] if complaints == ["ok"] else complaints
    present: set[str] = set()
    foreign = []
    for path, _ in list_files(root):
        digest = digest_of(path)
        if digest is None:
            foreign.append(path)
        else:
            present.add(digest)
    rows: list[_Row] = []
    files: list[str] = []
    results = 0
    wanted: set[str] = set()
    remote: set[str] = set()
    try:
        remote = remote_images(read) - present
        reachable = present | remote
        for row in _rows(read):
            results += 1
            if row.image is not None:
                wanted.add(row.image)
            if row.damaged or (row.image is not None and row.image not in reachable):
                rows.append(row)
        files = [path for _, path in _damaged_files(read)]
    except DamagedIndexError as error:
        index.append(str(error))
    return VerifyReport(
        results=results,
        images=len(present),
        index=tuple(index),
        rows=tuple(row.key for row in rows if row.damaged),
        files=tuple(files),
        damaged_images=tuple(_damaged_images(root, sorted(present))),
        lost=tuple(row.key for row in rows if not row.damaged),
        remote=tuple(sorted(remote & wanted)),
        unused=tuple(sorted(present - wanted)),
        foreign=tuple(sorted(foreign)),
    )


def repair(store: Store, report: VerifyReport) -> None:
    """Drop what is damaged and what has lost its image: it is computed again when it is needed."""
    if report.index:
        store.index.rebuild()
    damaged = {digest for digest, _ in report.damaged_images}
    for digest in damaged:
        image_path(store.root, digest).unlink(missing_ok=True)
    read = store.index.read
    remote = remote_images(read) - damaged

    def is_lost(image: str | None) -> bool:
        here = image is None or has_image(store.root, image)
        return not here and image not in remote

    dropped = [(row.rowid,) for row in _rows(read) if row.damaged or is_lost(row.image)]
    store.index.write("DELETE FROM results WHERE rowid = ?", dropped)
    outdated = [(rowid,) for rowid, _ in _damaged_files(read)]
    store.index.write("DELETE FROM files WHERE rowid = ?", outdated)


@dataclass(frozen=True)
class _Row:
    rowid: int
    key: str
    damaged: bool
    image: str | None


def _rows(read: Read) -> Iterator[_Row]:
    for page in pages(read, "results.rowid, key, kind, payload, seal"):
        for rowid, key, kind, payload, sealed in page:
            result = unseal(key, kind, payload, sealed)
            image = result.digest if isinstance(result, ImageRef) else None
            yield _Row(rowid, str(key), result is None, image)


def _damaged_files(read: Read) -> Iterator[tuple[int, str]]:
    """(row, path) of remembered digests of files that do not match their seals."""
    for rowid, path, what, sealed, digest in read("SELECT rowid, * FROM files", ()):
        stamp, _, _ = str(sealed).rpartition(" ")
        if sealed != seal_stamp(str(path), str(what), stamp, str(digest)):
            yield rowid, str(path)


def _damaged_images(root: Path, digests: Sequence[str]) -> Iterator[tuple[str, str]]:
    def problem(digest: str) -> str | None:
        try:
            load_image(root, digest)
        except ImageError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for part in batches(digests, _PART):
            for digest, why in zip(part, threads.map(problem, part), strict=True):
                if why is not None:
                    yield digest, why
