"""Frozen copies of a store: written once, as a folder or one archive, for others to read."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pytest_cepbench.errors import StoreError, UnfitFileError
from pytest_cepbench.files import open_regular
from pytest_cepbench.store.access_log import last_used
from pytest_cepbench.store.database import create_tables, transaction
from pytest_cepbench.store.images import FOLDER, MOST_BYTES, SUFFIX, image_path
from pytest_cepbench.store.lookup import Row, pages
from pytest_cepbench.store.readonly import INDEX, ReadonlyStore
from pytest_cepbench.store.stats import model_of
from pytest_cepbench.store.stored_result import ImageRef, is_sealed, unpack

ARCHIVE = ".tar"

Wanted = Callable[[str | None, int], bool]
"""Whether a result goes along, by its model and the day of its last use."""


@dataclass(frozen=True)
class ExportSummary:
    """What a copy holds. left_out: results that were damaged, or whose image was not there."""

    results: int
    images: int
    bytes: int
    left_out: int


def export_store(
    reader: ReadonlyStore, target: Path, wanted: Wanted, *, force: bool = False
) -> ExportSummary:
    """Copy a store into a folder, or an archive where the target ends in .tar; whole or not at all.

    force: a frozen copy that is there already is replaced. Raises StoreError for anything else in
    the way, and where it cannot be written.
    """
    _check_target(target, force=force)
    fresh = target.with_name(f".{target.name}.new-{uuid4().hex}")
    archive = target.suffix == ARCHIVE
    with _explained(target):
        try:
            fresh.mkdir(parents=True)
            copied = _copy(reader, fresh, wanted, links=archive)
            size = sum(path.stat().st_size for path in fresh.rglob("*") if path.is_file())
            if archive:
                packed = fresh / target.name
                _pack(fresh, packed)
                packed.replace(target)
            else:
                _exchange(fresh, target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return ExportSummary(copied.results, copied.images, size, copied.left_out)


def _check_target(target: Path, *, force: bool) -> None:
    if not target.exists() and not target.is_symlink():
        return
    if not force:
        msg = f"{str(target)!r} is there already: say --force to replace a frozen store"
        raise StoreError(msg)
    if not (_is_archive(target) if target.suffix == ARCHIVE else _is_frozen_folder(target)):
        msg = (
            f"{str(target)!r} is not what cepbench store export made, so --force does not replace "
            "it: give another target, or remove it"
        )
        raise StoreError(msg)


def _is_archive(target: Path) -> bool:
    try:
        with open_regular(target) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            first = archive.next()
    except (OSError, tarfile.TarError):
        return False
    return first is not None and first.name == INDEX and not target.is_symlink()


def _is_frozen_folder(target: Path) -> bool:
    """A live store is none: it is somebody's only copy."""
    if target.is_symlink() or {path.name for path in target.iterdir()} - {INDEX, FOLDER}:
        return False
    try:
        with ReadonlyStore(target, str(target)) as reader:
            return reader.frozen
    except StoreError:
        return False


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        msg = f"{str(target)!r} cannot be written: {error}"
        raise StoreError(msg) from error


def _exchange(fresh: Path, target: Path) -> None:
    """Put a folder in its place; what was there is moved aside first and removed last."""
    old = target.with_name(f".{target.name}.old-{uuid4().hex}")
    there = target.exists()
    if there:
        target.rename(old)
    try:
        fresh.rename(target)
    except OSError:
        if there:
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


@dataclass
class _Copied:
    results: int = 0
    images: int = 0
    left_out: int = 0


def _copy(reader: ReadonlyStore, folder: Path, wanted: Wanted, *, links: bool) -> _Copied:
    """Fill a folder with index and images. links: images may be links to those of the store."""
    (folder / FOLDER).mkdir()
    copied = _Copied()
    day, source = last_used(days=reader.has("used"))
    columns = f"key, kind, payload, provenance, created, seal, {day}"
    with closing(sqlite3.connect(folder / INDEX, isolation_level=None)) as own:
        for setting in ("journal_mode=OFF", "synchronous=OFF"):  # nobody sees it before it is whole
            own.execute(f"PRAGMA {setting}")
        create_tables(own)
        for page in pages(reader.read, columns, source):
            rows: list[Row] = []
            for row in page:
                *_, provenance, _, _, used = row
                if not wanted(model_of(str(provenance)), used):
                    continue
                if _is_whole(row, reader.folder, folder, copied, links=links):
                    rows.append(row)
                else:
                    copied.left_out += 1
            with transaction(own):
                own.executemany(
                    "INSERT INTO results VALUES (?, ?, ?, ?, ?, ?)", [r[:6] for r in rows]
                )
                own.executemany("INSERT INTO used VALUES (?, ?)", [(r[0], r[6]) for r in rows])
            copied.results += len(rows)
    with (folder / INDEX).open("rb") as index:
        os.fsync(index.fileno())
    return copied


def _is_whole(row: Row, root: Path, folder: Path, copied: _Copied, *, links: bool) -> bool:
    """Whether a result is undamaged; its image is copied, if it has one that is there."""
    key, kind, payload, _, _, sealed, _ = row
    if not is_sealed(key, kind, payload, sealed):
        return False
    try:
        result = unpack(kind, payload)
    except ValueError:
        return False
    if not isinstance(result, ImageRef):
        return True
    source, place = image_path(root, result.digest), image_path(folder, result.digest)
    if place.exists():
        return True
    place.parent.mkdir(exist_ok=True)
    try:
        with open_regular(source, MOST_BYTES) as stream:
            if not (links and _link(source, place)):
                with place.open("xb") as copy:
                    shutil.copyfileobj(stream, copy)
    except (FileNotFoundError, UnfitFileError):
        return False
    copied.images += 1
    return True


def _link(source: Path, place: Path) -> bool:
    try:
        os.link(source, place)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one that has no links
        return False
    return True


def _pack(folder: Path, packed: Path) -> None:
    """One archive of a folder, the index first; the same content gives the same order and heads."""
    images = sorted(folder.glob(f"{FOLDER}/*/*{SUFFIX}"))
    with tarfile.open(packed, "w:", format=tarfile.PAX_FORMAT) as archive:
        for path in (folder / INDEX, *images):
            head = tarfile.TarInfo(path.relative_to(folder).as_posix())
            head.size, head.mode = path.stat().st_size, 0o644
            with path.open("rb") as stream:
                archive.addfile(head, stream)
