"""A store's database as one process uses it: open for its threads, repaired where it is damaged."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import RLock
from typing import TypeVar

from pytest_cepbench.errors import DamagedIndexError
from pytest_cepbench.store.database import (
    INSERT_RESULT,
    inode,
    open_database,
    rebuild,
    replacement_lock,
    store_errors,
    transaction,
)
from pytest_cepbench.store.rows import (
    Result,
    Row,
    StoredResult,
    pack,
    results_under,
    rows_with,
    seal,
)

_T = TypeVar("_T")


class Index:
    """The open database. Any thread may call any method; one at a time is inside of SQLite.

    path: of the file, created when absent.
    note: called with a line about damage that was found.
    Raises StoreError and its kinds.
    """

    def __init__(self, path: Path, note: Callable[[str], None]) -> None:
        self.path = path
        self._note = note
        self._inode: int | None = None
        self._lock = RLock()
        self._connection = self._open()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def read(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """The rows of a query."""

        def read() -> list[Row]:
            with store_errors(self.path):
                return self._connection.execute(query, values).fetchall()

        with self._lock:
            return self._repairing(read)

    def write(self, statement: str, rows: Sequence[Row]) -> None:
        """Run a statement for every row in one transaction: all of them or none."""

        def write() -> None:
            with store_errors(self.path), transaction(self._connection):
                self._connection.executemany(statement, rows)

        with self._lock:
            self._repairing(write)
            if inode(self.path) != self._inode:
                # Another process rebuilt the index meanwhile and may have missed these rows.
                self._connection.close()
                self._connection = self._open()
                self._repairing(write)

    def rebuild(self) -> None:
        """Write the database anew with every row of it that can be read and is sealed."""
        with self._lock:
            self._connection.close()
            self._connection = self._rebuilt()

    def compact(self) -> bool:
        """Give free space back to the disk; False, and nothing done, while others use the file."""
        with self._lock, store_errors(self.path), replacement_lock(self.path):
            self._connection.close()
            # SQLite removes the log when the last process closes the database.
            alone = not self.path.with_name(f"{self.path.name}-wal").exists()
            self._connection = open_database(self.path)
            if alone:
                self._connection.execute("VACUUM")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return alone

    def _repairing(self, action: Callable[[], _T]) -> _T:
        """Call the action; where the index turns out to be damaged, rebuild it and call again."""
        try:
            return action()
        except DamagedIndexError:
            self.rebuild()
            return action()

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except DamagedIndexError:
            return self._rebuilt()

    def _connect(self) -> sqlite3.Connection:
        with store_errors(self.path), replacement_lock(self.path):
            try:
                return open_database(self.path)
            finally:
                self._inode = inode(self.path)

    def _rebuilt(self) -> sqlite3.Connection:
        saved, damaged = rebuild(self.path, self._inode)
        if damaged != self.path:
            self._note(
                f"index: {saved} results saved from the damaged file, which is kept as "
                f"{damaged.name}"
            )
        return self._connect()


class ResultTable:
    """The results in the database. The first one under a key stays; damaged ones are dropped.

    note: called with a line about each damaged result.
    """

    def __init__(self, index: Index, note: Callable[[str], None]) -> None:
        self._index = index
        self._note = note

    def __len__(self) -> int:
        return int(self._index.read("SELECT count(*) FROM results")[0][0])

    def get(self, keys: Iterable[str]) -> dict[str, Result]:
        """The undamaged results under these keys."""
        results, damaged = results_under(self._index.read, keys)
        if damaged:
            self.drop(damaged, "its row does not match its seal")
        return results

    def has(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that have a row, damaged or not."""
        rows = rows_with(self._index.read, "SELECT key FROM results WHERE key", keys)
        return {str(key) for (key,) in rows}

    def provenance(self, keys: Iterable[str]) -> dict[str, str]:
        """The provenance of the results under these keys, as JSON."""
        query = "SELECT key, provenance FROM results WHERE key"
        rows = rows_with(self._index.read, query, keys)
        return {str(key): str(provenance) for key, provenance in rows}

    def put(self, entries: Sequence[StoredResult]) -> dict[str, Result]:
        """Store results, all or none; returns what is stored under each key now.

        Raises StoreFullError without space, and then stores nothing.
        """
        rows = _rows_of(entries)
        keys = {entry.key for entry in entries}
        self.insert(rows)
        stored = self.get(keys)
        if stored.keys() != keys:
            # A damaged row was under a key, and `get` has dropped it.
            self.insert(rows)
            stored = self.get(keys)
        if stored.keys() != keys:
            # SQLite's tree of keys is out of order, which it has not noticed: only a new one helps.
            self._index.rebuild()
            self.insert(rows)
            stored = self.get(keys)
        return stored

    def insert(self, rows: Sequence[Row]) -> None:
        """Add whole rows under keys that have none."""
        self._index.write(INSERT_RESULT, rows)

    def drop(self, keys: Sequence[str], why: str) -> None:
        """Delete damaged results. why: the damage."""
        self._index.write("DELETE FROM results WHERE key = ?", [(key,) for key in keys])
        for key in keys:
            self._note(f"result {key[:12]}: {why}")


def _rows_of(entries: Sequence[StoredResult]) -> list[Row]:
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
