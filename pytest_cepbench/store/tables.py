"""The tables of a store: rows of results, days of last use, digests of files, notes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pytest_cepbench.errors import StoreError
from pytest_cepbench.files import FileStamp
from pytest_cepbench.store.database import Index
from pytest_cepbench.store.rows import (
    Read,
    Row,
    StoredResult,
    pack,
    rows_with,
    seal,
    seal_stamp,
)

DAY_SECONDS = 86400

_INSERT_USE = (
    "INSERT INTO used VALUES (?, ?) "
    "ON CONFLICT (key) DO UPDATE SET day = excluded.day WHERE day < excluded.day"
)
"""Adds a key and the day on which it was used; a later day stays."""

_WRITE_SECONDS = 60.0  # between two writes of a run

_MOST_UNWRITTEN = 200_000  # keys, some 30 MB of them

_REMOTE = "away "  # in the name of a note, before the digest of an image in a shared store


def rows_of(entries: Sequence[StoredResult]) -> list[Row]:
    """Whole rows of results that are stored now."""
    rows = []
    documents: dict[int, str] = {}  # by id, since the entries of a batch share their provenance
    for entry in entries:
        kind, payload = pack(entry.result)
        provenance = documents.get(id(entry.provenance))
        if provenance is None:
            provenance = json.dumps(dict(entry.provenance), sort_keys=True)
            documents[id(entry.provenance)] = provenance
        sealed = seal(entry.key, kind, payload)
        rows.append((entry.key, kind, payload, provenance, time.time(), sealed))
    return rows


def today() -> int:
    """Days since the epoch."""
    return int(time.time() // DAY_SECONDS)


def last_used(*, days: bool) -> tuple[str, str]:
    """(column, tables) that give the day of a result's last use in a query.

    days: whether the store has the table of uses, which those of earlier versions lack.
    """
    stored = f"CAST(ifnull(CAST(created AS REAL), 0) / {DAY_SECONDS} AS INTEGER)"
    if not days:
        return stored, "results"
    return (
        f"max({stored}, CAST(ifnull(used.day, 0) AS INTEGER))",
        "results LEFT JOIN used USING (key)",
    )


class AccessLog:
    """Keys that were used, collected in memory: a cache hit must not cost a write.

    They are written when the store writes anyway, or is closed. Where a process is killed before,
    results look older than they are, nothing worse.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._keys: set[str] = set()
        self._written = time.monotonic()

    def add(self, keys: Iterable[str]) -> None:
        """Record a use of these keys."""
        self._keys.update(keys)
        if len(self._keys) > _MOST_UNWRITTEN:
            self.write()

    def write_sometimes(self) -> None:
        """Write, unless the last time was less than a minute ago."""
        if self._keys and time.monotonic() - self._written > _WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        """Write the collected keys in one transaction."""
        keys, self._keys = self._keys, set()
        self._written = time.monotonic()
        if not keys:
            return
        day = today()
        try:
            self._index.write(_INSERT_USE, [(key, day) for key in sorted(keys)])
        except StoreError:
            # A run that only reads must not fail because a disk is full; the days are a hint.
            return


def file_digest(index: Index, path: Path, what: str, compute: Callable[[Path], str]) -> str:
    """`compute(path)`, remembered until the file's size, times or inode change.

    what: names the kind of digest ("bytes", "pixels").
    A file that was written to in the two seconds before is computed each time, since its stamp
    cannot be trusted yet: see `FileStamp.settled`.
    """
    resolved = path.resolve()
    name = str(resolved).encode("utf-8", "backslashreplace").decode()  # names need not be UTF-8
    before = FileStamp.of(resolved)
    stamp = str(before)

    query = "SELECT stamp, digest FROM files WHERE path = ? AND what = ?"
    for sealed, digest in index.read(query, (name, what)):
        if sealed == seal_stamp(name, what, stamp, str(digest)):
            return str(digest)
    digest = compute(resolved)
    if before.settled and before == FileStamp.of(resolved):
        row = (name, what, seal_stamp(name, what, stamp, digest), digest)
        index.write("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", [row])
    return digest


def write_notes(index: Index, notes: Iterable[tuple[str, str]]) -> None:
    """Store values by name over earlier ones. They are lost when the index is rebuilt."""
    index.write("INSERT OR REPLACE INTO notes VALUES (?, ?)", list(notes))


def read_notes(read: Read, names: Iterable[str]) -> dict[str, str]:
    """The values stored under these names, where there are any."""
    rows = rows_with(read, "SELECT name, value FROM notes WHERE name", names)
    return {str(name): str(value) for name, value in rows}


def remote_image_note(digest: str) -> str:
    """Name of the note that says in which shared store an image lies."""
    return f"{_REMOTE}{digest}"


def remote_images(read: Read) -> set[str]:
    """Digests of images of results that lie in a shared store; some may be here as well."""
    if not read("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'notes'", ()):
        return set()  # of an earlier version
    rows = read("SELECT name FROM notes WHERE name GLOB ?", (f"{_REMOTE}*",))
    return {str(name).removeprefix(_REMOTE) for (name,) in rows}
