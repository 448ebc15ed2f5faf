"""Export of a store: a copy in a folder or one archive, written once, for others to read."""

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
from pytest_cepbench.store.database import INDEX, INSERT_RESULT, create_tables, transaction
from pytest_cepbench.store.images import FOLDER, MOST_BYTES, SUFFIX, image_path
from pytest_cepbench.store.readonly import ReadonlyStore
from pytest_cepbench.store.rows import ImageRef, Row, pages, unseal
from pytest_cepbench.store.stats import model_of
from pytest_cepbench.store.tables import last_used

ARCHIVE = ".tar"

Wanted = Callable[[str | None, int], bool]
"""Selects the results to export: called with a result's model and the day of its last use."""


@dataclass
class ExportSummary:
    """Counts of an export.

    results, images: copied.
    bytes: size of the copy.
    left_out: results that were damaged, or whose image was not there.
    """

    results: int = 0
    images: int = 0
    bytes: int = 0
    left_out: int = 0


def export_store(
    reader: ReadonlyStore, target: Path, wanted: Wanted, *, force: bool = False
) -> ExportSummary:
    """Copy a store, whole or not at all.

    target: a folder, or an archive where the name ends in .tar.
    wanted: selects the results.
    force: whether an earlier copy at the target is replaced.
    Raises StoreError for anything else at the target, and where it cannot be written.
    """
    _check_target(target, force=force)
    fresh = target.with_name(f".{target.name}.new-{uuid4().hex}")
    archive = target.suffix == ARCHIVE
    with _explained(target):
        try:
            fresh.mkdir(parents=True)
            summary = _copy(reader, fresh, wanted, links=archive)
            summary.bytes = sum(path.stat().st_size for path in fresh.rglob("*") if path.is_file())
            if archive:
                packed = fresh / target.name
                _pack(fresh, packed)
                packed.replace(target)
            else:
                _exchange(fresh, target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return summary


def _check_target(target: Path, *, force: bool) -> None:
    if not target.exists() and not target.is_symlink():
        return
    if not force:
        msg = f"{str(target)!r} is there already: say --force to replace an exported store"
        raise StoreError(msg)
    if not (_is_archive(target) if target.suffix == ARCHIVE else _is_exported_folder(target)):
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


def _is_exported_folder(target: Path) -> bool:
    """False for a live store, which may be the only copy."""
    if target.is_symlink() or {path.name for path in target.iterdir()} - {INDEX, FOLDER}:
        return False
    try:
        with ReadonlyStore(target, str(target)) as reader:
            return reader.exported
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
    """Rename a folder to the target; an earlier one is moved aside first and removed last."""
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


def _copy(reader: ReadonlyStore, folder: Path, wanted: Wanted, *, links: bool) -> ExportSummary:
    """Fill a folder with index and images.

    links: whether images may be links to the store's files.
    """
    (folder / FOLDER).mkdir()
    summary = ExportSummary()
    day, source = last_used(days=reader.has("used"))
    columns = f"key, kind, payload, provenance, created, seal, {day}"
    with closing(sqlite3.connect(folder / INDEX, isolation_level=None)) as own:
        for setting in ("journal_mode=OFF", "synchronous=OFF"):  # an unfinished copy is thrown away
            own.execute(f"PRAGMA {setting}")
        create_tables(own)
        for page in pages(reader.read, columns, source):
            rows: list[Row] = []
            for row in page:
                *_, provenance, _, _, used = row
                if not wanted(model_of(str(provenance)), used):
                    continue
                if _copy_image(row, reader.folder, folder, summary, links=links):
                    rows.append(row)
                else:
                    summary.left_out += 1
            with transaction(own):
                own.executemany(INSERT_RESULT, [row[:6] for row in rows])
                own.executemany(
                    "INSERT INTO used VALUES (?, ?)", [(row[0], row[6]) for row in rows]
                )
            summary.results += len(rows)
    with (folder / INDEX).open("rb") as index:
        os.fsync(index.fileno())
    return summary


def _copy_image(row: Row, root: Path, folder: Path, summary: ExportSummary, *, links: bool) -> bool:
    """Copy the image of a result, if it has one; False where the result or its image is damaged."""
    key, kind, payload, _, _, sealed, _ = row
    result = unseal(key, kind, payload, sealed)
    if not isinstance(result, ImageRef):
        return result is not None
    source, target = image_path(root, result.digest), image_path(folder, result.digest)
    if target.exists():
        return True
    target.parent.mkdir(exist_ok=True)
    try:
        with open_regular(source, MOST_BYTES) as stream:
            if not (links and _link(source, target)):
                with target.open("xb") as copy:
                    shutil.copyfileobj(stream, copy)
    except (FileNotFoundError, UnfitFileError):
        return False
    summary.images += 1
    return True


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one that has no links
        return False
    return True


def _pack(folder: Path, packed: Path) -> None:
    """Write a folder as an archive, index first; the same content gives the same archive."""
    images = sorted(folder.glob(f"{FOLDER}/*/*{SUFFIX}"))
    with tarfile.open(packed, "w:", format=tarfile.PAX_FORMAT) as archive:
        for path in (folder / INDEX, *images):
            head = tarfile.TarInfo(path.relative_to(folder).as_posix())
            head.size, head.mode = path.stat().st_size, 0o644
            with path.open("rb") as stream:
                archive.addfile(head, stream)
