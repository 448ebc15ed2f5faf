"""Looking at everything in a store for damage, and dropping what is damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pytest_cepbench.errors import ImageError, StoreError
from pytest_cepbench.store.images import digest_of, image_path, list_files, read_image_of
from pytest_cepbench.store.lookup import Read, pages
from pytest_cepbench.store.store import Store, images_away
from pytest_cepbench.store.stored_result import ImageRef, is_sealed, seal_stamp, unpack

_AT_ONCE = 64  # images that threads have in memory or are about to


@dataclass(frozen=True)
class VerifyReport:
    """What is wrong with a store, and what is merely left over.

    results, images: how many were looked at. index: what SQLite says of its file. rows: results
    that do not match their seals, by key. files: remembered digests of files, by path, that do not
    match theirs. pictures: damaged images by digest, with the reason. lost: keys of results whose
    image is not there. away: images that lie in a shared store, and are fetched from it. unused: images that no result refers to. strangers: files between the images
    that are none.
    """

    results: int
    images: int
    index: tuple[str, ...]
    rows: tuple[str, ...]
    files: tuple[str, ...]
    pictures: tuple[tuple[str, str], ...]
    lost: tuple[str, ...]
    away: tuple[str, ...]
    unused: tuple[str, ...]
    strangers: tuple[Path, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged or missing."""
        return not (self.index or self.rows or self.files or self.pictures or self.lost)


def inspect(root: Path, read: Read) -> VerifyReport:
    """Read all of the store in a folder: every row, every pixel. Changes nothing."""
    index = [] if (said := _said_by_sqlite(read)) == ["ok"] else said
    there: set[str] = set()
    strangers = []
    for path, _ in list_files(root):
        digest = digest_of(path)
        if digest is None:
            strangers.append(path)
        else:
            there.add(digest)
    rows: list[_Row] = []
    files: list[str] = []
    results = 0
    wanted: set[str] = set()
    away: set[str] = set()
    try:
        away = images_away(read) - there
        for row in _rows(read):
            results += 1
            if row.image is not None:
                wanted.add(row.image)
            if row.damaged or _is_lost(row, there, away):
                rows.append(row)
        files = [path for _, path in _damaged_files(read)]
    except StoreError as error:
        index.append(str(error))
    return VerifyReport(
        results=results,
        images=len(there),
        index=tuple(index),
        rows=tuple(row.key for row in rows if row.damaged),
        files=tuple(files),
        pictures=tuple(_damaged_images(root, sorted(there))),
        lost=tuple(row.key for row in rows if not row.damaged),
        away=tuple(sorted(away & wanted)),
        unused=tuple(sorted(there - wanted)),
        strangers=tuple(sorted(strangers)),
    )


def repair(store: Store, findings: VerifyReport) -> None:
    """Drop what is damaged and what has lost its image: it is computed again when it is needed."""
    if findings.index:
        store.index.mend()
    for digest, _ in findings.pictures:
        image_path(store.root, digest).unlink(missing_ok=True)
    read = store.index.read
    away = images_away(read) - {digest for digest, _ in findings.pictures}
    gone = [
        (row.rowid,)
        for row in _rows(read)
        if row.damaged or (row.image and row.image not in away and not _is_here(store, row.image))
    ]
    store.index.write("DELETE FROM results WHERE rowid = ?", gone)
    outdated = [(rowid,) for rowid, _ in _damaged_files(read)]
    store.index.write("DELETE FROM files WHERE rowid = ?", outdated)


def _is_here(store: Store, digest: str) -> bool:
    return image_path(store.root, digest).exists()


def _is_lost(row: _Row, there: set[str], away: set[str]) -> bool:
    return row.image is not None and row.image not in there and row.image not in away


@dataclass(frozen=True)
class _Row:
    rowid: int
    key: str
    damaged: bool
    image: str | None


def _rows(read: Read) -> Iterator[_Row]:
    for page in pages(read, "results.rowid, key, kind, payload, seal"):
        for rowid, key, kind, payload, sealed in page:
            result = None
            if is_sealed(key, kind, payload, sealed):
                try:
                    result = unpack(kind, payload)
                except ValueError:  # of a kind that this version does not know
                    result = None
            image = result.digest if isinstance(result, ImageRef) else None
            yield _Row(rowid, str(key), result is None, image)


def _damaged_files(read: Read) -> Iterator[tuple[int, str]]:
    """(row, path) of remembered digests of files that do not match their seals."""
    for rowid, path, what, known, digest in read("SELECT rowid, * FROM files", ()):
        stamp, _, _ = str(known).rpartition(" ")
        if known != seal_stamp(str(path), str(what), stamp, str(digest)):
            yield rowid, str(path)


def _said_by_sqlite(read: Read) -> list[str]:
    try:
        return [str(line) for (line,) in read("PRAGMA integrity_check(20)", ())]
    except StoreError as error:
        return [str(error)]


def _damaged_images(root: Path, digests: Sequence[str]) -> Iterator[tuple[str, str]]:
    def problem(digest: str) -> str | None:
        try:
            read_image_of(root, digest)
        except ImageError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for start in range(0, len(digests), _AT_ONCE):
            part = digests[start : start + _AT_ONCE]
            for digest, why in zip(part, threads.map(problem, part), strict=True):
                if why is not None:
                    yield digest, why
