"""The store's database as one process has it: open, shared by its threads, mended where it is damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import RLock
from typing import TypeVar

from pytest_cepbench.errors import DamagedIndexError
from pytest_cepbench.store.database import (
    explained,
    in_place,
    inode,
    mend,
    open_database,
    transaction,
)
from pytest_cepbench.store.lookup import Row

_T = TypeVar("_T")


class Index:
    """The open database. Any thread may call anything; one at a time is inside of SQLite.

    path: of the file, made when absent. note: told what was damaged.
    Raises StoreError and its kinds.
    """

    def __init__(self, path: Path, note: Callable[[str], None]) -> None:
        self.path = path
        self._note = note
        self._inode: int | None = None
        self._lock = RLock()
        self._connection = self._open()

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._connection.close()

    def read(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """The rows that a query gives."""

        def read() -> list[Row]:
            with explained(self.path):
                return self._connection.execute(query, values).fetchall()

        with self._lock:
            return self._mending(read)

    def write(self, statement: str, rows: Sequence[Row]) -> None:
        """Run a statement for every row in one transaction: all of them or none."""

        def write() -> None:
            with explained(self.path), transaction(self._connection):
                self._connection.executemany(statement, rows)

        with self._lock:
            self._mending(write)
            if inode(self.path) != self._inode:
                # Another process mended the index meanwhile and may have missed these rows.
                self._connection.close()
                self._connection = self._open()
                self._mending(write)

    def mend(self) -> None:
        """Write the database anew with every row of it that can be read and is sealed."""
        with self._lock:
            self._connection.close()
            self._connection = self._mended()

    def compact(self) -> bool:
        """Give free space back to the disk; False, and nothing done, while others have the file open."""
        with self._lock, explained(self.path), in_place(self.path):  # nobody opens it meanwhile
            self._connection.close()
            # Whoever closes a database as the last one removes its log.
            alone = not self.path.with_name(f"{self.path.name}-wal").exists()
            self._connection = open_database(self.path)
            if alone:
                self._connection.execute("VACUUM")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return alone

    def _mending(self, action: Callable[[], _T]) -> _T:
        """Act; where the index turns out to be damaged, mend it and act once more."""
        try:
            return action()
        except DamagedIndexError:
            self.mend()
            return action()

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except DamagedIndexError:
            return self._mended()

    def _connect(self) -> sqlite3.Connection:
        with explained(self.path), in_place(self.path):
            try:
                return open_database(self.path)
            finally:
                self._inode = inode(self.path)

    def _mended(self) -> sqlite3.Connection:
        kept, aside = mend(self.path, self._inode)
        if aside != self.path:
            saved = f"{kept} results saved from the damaged file, which is kept as {aside.name}"
            self._note(f"index: {saved}")
        return self._connect()
