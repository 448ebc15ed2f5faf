"""A store that is only read: frozen, as `cepbench store export` leaves it, or somebody's live one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from pytest_cepbench.errors import StoreError, StoreVersionError
from pytest_cepbench.files import open_regular
from pytest_cepbench.store.database import BUSY_SECONDS, FORMAT, create_tables, decode_text
from pytest_cepbench.store.lookup import Row

INDEX = "index.sqlite"

_MAGIC = b"SQLite format 3\0"
_HEADER = 100
_LEGACY = 1  # byte 18 of the header: changes are not in a write-ahead log


class ReadonlyStore:
    """The database of a store that is not written to. Any thread may read.

    named: what the user called the folder, for errors. Raises StoreError where there is no store
    that this version can read.
    """

    def __init__(self, folder: Path, named: str) -> None:
        self.folder = folder
        self.named = named
        self._lock = Lock()
        path = folder / INDEX
        self.frozen = _is_frozen(path, named)
        # What is frozen never changes: SQLite needs neither locks nor files beside it, so that the
        # folder may be on a read-only or a network file system.
        mode = "mode=ro&immutable=1" if self.frozen else "mode=ro"
        try:
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?{mode}",
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise self._refusal(error) from error
        self._connection.text_factory = decode_text
        try:
            self._check()
        except sqlite3.Error as error:
            self.close()
            raise self._refusal(error) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._connection.close()

    def read(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """The rows that a query gives. Raises StoreError where the file is damaged or gone."""
        try:
            with self._lock:
                return self._connection.execute(query, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            msg = f"{self.named} cannot be read: {error}"
            raise StoreError(msg) from error

    def has(self, table: str) -> bool:
        """Whether the store has this table, exactly as this version makes it."""
        query = "SELECT type, sql FROM sqlite_master WHERE name = ?"
        with sqlite3.connect(":memory:") as own:
            create_tables(own)
            expected = own.execute(query, (table,)).fetchall()
        own.close()
        with self._lock:
            return self._connection.execute(query, (table,)).fetchall() == expected

    def _check(self) -> None:
        """Refuse what is no store.

        The file may come from anybody: a view or a virtual table in the place of the results could
        do anything when it is read.
        """
        for setting in ("trusted_schema=OFF", "cell_size_check=ON", "query_only=ON"):
            self._connection.execute(f"PRAGMA {setting}")
        if not self.has("results"):
            raise StoreError(_foreign(self.named))

    def _refusal(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if self.frozen or code not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            return StoreError(f"{self.named} cannot be read: {error}")
        msg = (
            f"{self.named} is a live store, which cannot be read where its folder cannot be written "
            f"({error}): make a frozen copy of it with cepbench store export, and give that"
        )
        return StoreError(msg)


def _is_frozen(path: Path, named: str) -> bool:
    """Whether the file was left for good; raises StoreError where it is no index of this format."""
    if not path.parent.is_dir():
        what = "is a file" if path.parent.exists() else "does not exist"
        msg = (
            f"{named} {what}: the folder of a store is expected (archives are unpacked by cepbench "
            "store import)"
        )
        raise StoreError(msg)
    try:
        with open_regular(path) as stream:
            header = stream.read(_HEADER)
    except OSError as error:
        msg = f"{_foreign(named)} ({INDEX}: {error.strerror})"
        raise StoreError(msg) from error
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        raise StoreError(_foreign(named))
    found = int.from_bytes(header[60:64], "big", signed=True)
    if found not in (0, FORMAT):
        msg = (
            f"{named} has format {found}, this version reads format {FORMAT}: give one that was "
            "written by the same version of pytest-cepbench"
        )
        raise StoreVersionError(msg)
    return header[18] == _LEGACY


def _foreign(named: str) -> str:
    return (
        f"{named} is not the folder of a store: one is made by cepbench store export, or by a run "
        "with --cep-store"
    )
