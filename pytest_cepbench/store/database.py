"""The store's SQLite file: open in several processes and threads, repaired where it is damaged.

WAL with synchronous=NORMAL: commits survive a kill of any process at any instant. A power cut can
lose the newest commits, never damage the file; lost results are computed again. WAL needs shared
memory, so the file must not lie on a network file system.
"""

from __future__ import annotations

import errno
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import TypeVar

from filelock import FileLock, Timeout

from pytest_cepbench.errors import DamagedIndexError, StoreError, StoreFullError, StoreVersionError
from pytest_cepbench.files import open_regular
from pytest_cepbench.store.rows import Read, Row, is_sealed, packed, provenance_id, unpacked

INDEX = "index.sqlite"
"""Name of the database in a store's folder."""

_BEGUN = ".begun"
"""Ends the name of a file beside a database that was moved aside, until it is written anew."""

FORMAT = 2
"""Version of the layout on disk; any change that an older version would misread raises it."""

BUSY_SECONDS = 60.0
"""Seconds that SQLite waits for another process that writes."""

PATIENCE = 1800.0
"""Seconds to wait for a process that opens the database or writes it anew."""

# Rows of results lie in the order in which they were stored, which fills their pages; ordered by
# their keys a third of each page stays free. Nearly all rows of a run share a provenance. Days of
# use lie apart: in its row, each would have a page with a vector written anew.
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS results (
        id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, kind TEXT NOT NULL,
        provenance INTEGER NOT NULL, created REAL NOT NULL, seal BLOB NOT NULL,
        payload BLOB NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS provenances (id INTEGER PRIMARY KEY, text TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS files (
        path TEXT NOT NULL, what TEXT NOT NULL, stamp TEXT NOT NULL, digest TEXT NOT NULL,
        PRIMARY KEY (path, what)) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS used (id INTEGER PRIMARY KEY, day INTEGER NOT NULL)",
)

_COLUMNS = "key, kind, payload, provenance, created, seal"
"""Of results."""

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_UNREAD = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM)
"""The file could not be read, which tells nothing of its pages."""

_WINDOW = 500
_EMPTY_WINDOWS = 20  # after which the next row is asked for, wherever it lies
_UNREAD_WINDOWS = 200  # a damaged table has no known end; this many reads of nothing count as one
_LARGEST = 2**62  # number of a row; a larger one is damaged

_T = TypeVar("_T")


def open_database(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    """Open the database, which is created where there is none; to look at it only.

    Raises StoreVersionError for one of another format, StoreFullError without space,
    DamagedIndexError for a damaged file, StoreError for other refusals of the file system.
    """
    with store_errors(path), ExitStack() as opened:
        if readonly or path.exists():
            open_regular(path).close()  # SQLite would wait at a pipe
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={'ro' if readonly else 'rwc'}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        opened.callback(connection.close)
        # A damaged text must get to the check of its seal, which fails.
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        # It may come from anyone: reading a view named like a table could do anything.
        only_read = ("trusted_schema=OFF", "cell_size_check=ON", "query_only=ON")
        for setting in only_read if readonly else ():
            connection.execute(f"PRAGMA {setting}")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, FORMAT):
            raise StoreVersionError(
                f"the store {path.parent} has format {version}, this version reads format {FORMAT}:"
                " give another folder (--cep-store) or delete this one, its results can be "
                "recomputed"
            )
        if not readonly:
            _enter_wal(connection)
            connection.execute("PRAGMA synchronous=NORMAL")
            if version != FORMAT:
                with transaction(connection):
                    for statement in _SCHEMA:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version={FORMAT}")
        opened.pop_all()
    return connection


def add_rows(connection: sqlite3.Connection, rows: Iterable[Row]) -> int:
    """Add whole rows of results, of which the first under a key stays; returns how many are new.

    Within a transaction: a row has to have its provenance.
    """
    numbers: dict[str, int] = {}

    def values() -> Iterator[Row]:
        for key, kind, payload, provenance, created, sealed in rows:
            text = str(provenance)
            if text not in numbers:
                numbers[text] = provenance_id(text)
                known = (numbers[text], text)
                connection.execute(
                    "INSERT INTO provenances VALUES (?, ?) ON CONFLICT (id) DO UPDATE "
                    "SET text = excluded.text WHERE text IS NOT excluded.text",  # it was damaged
                    known,
                )
            yield packed(unpacked(key)), kind, payload, numbers[text], created, sealed

    insert = f"INSERT OR IGNORE INTO results ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608 - ours
    return connection.executemany(insert, values()).rowcount


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL, which needs the file alone.

    SQLite ignores the busy timeout when two processes switch at once.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One write transaction; rolled back when the body raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system and of SQLite into StoreError and its kinds."""
    try:
        yield
    except (OSError, UnicodeDecodeError, sqlite3.DatabaseError, MemoryError) as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        # SQLite quotes its schema in messages; where the schema is damaged, that may be no text.
        if isinstance(error, UnicodeDecodeError) or code in _DAMAGED:
            raise DamagedIndexError(
                f"the index of the store {path.parent} is damaged: {error} "
                "(another folder: --cep-store)"
            ) from error
        full = code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _no_space(path))
        if full or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreFullError(
                f"no space left for the store {path.parent}: free some, or give another folder "
                "(--cep-store)"
            ) from error
        if isinstance(error, MemoryError):  # as Python's sqlite3 says it too, without a word
            raise StoreError(
                f"the store {path.parent} cannot be used: no memory is left"
            ) from error
        if not isinstance(error, OSError | sqlite3.OperationalError):
            raise  # a mistake in a query, which is a bug of this package
        why = getattr(error, "strerror", None) or error
        raise StoreError(
            f"the store {path.parent} cannot be used: {why} (another folder: --cep-store)"
        ) from error


def _no_space(path: Path) -> bool:
    """Test by writing: SQLite reports a full disk under its shared-memory file as an I/O error."""
    probe = path.with_name(f".probe-{time.monotonic_ns()}")
    try:
        probe.write_bytes(b"\0" * 65536)
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    finally:
        probe.unlink(missing_ok=True)
    return False


@contextmanager
def replacement_lock(path: Path) -> Iterator[None]:
    """A lock for opening or replacing the database, so that no process opens half a replacement.

    Raises StoreError where another process has held it for half an hour.
    """
    lock = FileLock(path.with_name("mend.lock"))
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        raise StoreError(
            f"another process has been opening or repairing the index of the store {path.parent} "
            f"for {PATIENCE / 60:.0f} minutes: end that process, or give another folder "
            "(--cep-store)"
        ) from None
    try:
        yield
    finally:
        lock.release()


def inode(path: Path) -> int | None:
    """Inode of the file, which changes when a repaired one replaces it; None where it is absent."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _parts(path: Path) -> list[Path]:
    """The files of a database, whether or not they exist."""
    suffixes = ("", "-wal", "-shm", "-journal")  # the last one until it is switched to WAL
    return [path.with_name(path.name + suffix) for suffix in suffixes]


def _put_back(path: Path, aside: Path) -> None:
    """Undo a rebuild that did not end: the damaged file lies in its place again."""
    if aside.exists():  # moved last: the other parts are there too, and here lie new ones
        for part in _parts(path):
            part.unlink(missing_ok=True)
    for part, new in zip(_parts(path), _parts(aside), strict=True):
        with suppress(FileNotFoundError):
            new.rename(part)
    aside.with_name(aside.name + _BEGUN).unlink(missing_ok=True)


def _undo_begun(path: Path) -> None:
    """Put back what a process that was killed had moved aside."""
    for begun in path.parent.iterdir():
        if begun.suffix == _BEGUN:
            _put_back(path, begun.with_suffix(""))


def _copy_rows(damaged: Path, sound: sqlite3.Connection) -> int:
    """Copy every sealed row that can be read, by ascending rowid, past the pages that cannot."""
    saved, low, empty = 0, 0, 0
    with closing(sqlite3.connect(damaged)) as source:

        def read(query: str, *values: object) -> list[Row] | None:
            """The rows of a query; None where they cannot be read, since they are damaged."""
            try:
                return source.execute(query, values).fetchall()
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF in _UNREAD:
                    raise
                return None

        @lru_cache(maxsize=4096)
        def text_of(provenance: object) -> str:
            found = read("SELECT text FROM provenances WHERE id = ?", provenance)
            fits = found and provenance_id(str(found[0][0])) == provenance
            return str(found[0][0]) if found and fits else "{}"

        between = f"SELECT {_COLUMNS} FROM results WHERE rowid >= ? AND rowid < ?"  # noqa: S608 - ours
        if read("SELECT rowid FROM results LIMIT 0") is None:
            return 0  # no database, or one without this table
        while empty < _UNREAD_WINDOWS:
            rows = read(between, low, low + _WINDOW)
            if rows is None:
                singles = (read(between, rowid, rowid + 1) for rowid in range(low, low + _WINDOW))
                rows = [row for single in singles if single for row in single]
            for key, kind, payload, provenance, created, sealed in rows:
                if is_sealed(name := unpacked(key), kind, payload, sealed):
                    row = name, kind, payload, text_of(provenance), created, sealed
                    with transaction(sound):
                        saved += add_rows(sound, [row])
            empty = 0 if rows else empty + 1
            low += _WINDOW
            if empty >= _EMPTY_WINDOWS:  # not at once: a damaged number may be the largest of all
                following = read("SELECT min(rowid) FROM results WHERE rowid >= ?", low)
                if following is not None:
                    if following[0][0] is None or following[0][0] > _LARGEST:
                        break
                    # Numbers stay as they are: what was deleted leaves gaps of any size.
                    low, empty = following[0][0], 0
    return saved


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
        self._lost = False  # where a connection was closed to open another, which failed
        self._connection = self._open()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def read(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """The rows of a query."""
        with self._lock:
            return self._repairing(lambda: self._connection.execute(query, values).fetchall())

    def write(self, statement: str, rows: Sequence[Row]) -> None:
        """Run a statement for every row in one transaction: all of them or none."""
        self._write(lambda: self._connection.executemany(statement, rows))

    def add(self, rows: Sequence[Row]) -> None:
        """Add whole rows of results, all or none; the first one under a key stays."""
        self._write(lambda: add_rows(self._connection, rows))

    def _write(self, action: Callable[[], object]) -> None:
        def write() -> None:
            with transaction(self._connection):
                action()

        with self._lock:
            self._repairing(write)
            if inode(self.path) != self._inode:
                # Another process rebuilt the index meanwhile and may have missed these rows.
                self._replace(self._open)
                self._repairing(write)

    def rebuild(self) -> None:
        """Move the file aside and write it anew, with every row that can be read and is sealed.

        One process rebuilds a damaged file; the others wait, find another file, and open that.
        Raises StoreError where the file could not be read or the new one not be written; it lies in
        its place then, as before.
        """
        with self._lock:
            self._replace(self._rebuilt)

    def _replace(self, opened: Callable[[], sqlite3.Connection]) -> None:
        self._connection.close()
        self._lost = True
        self._connection = opened()
        self._lost = False

    def compact(self) -> bool:
        """Give free space back to the disk.

        False, and nothing done, while others use the file, or without room to write it anew.
        """
        with self._lock, store_errors(self.path), replacement_lock(self.path):
            self._connection.close()
            # SQLite removes the log when the last process closes the database.
            alone = not self.path.with_name(f"{self.path.name}-wal").exists()
            self._replace(lambda: open_database(self.path))
            if not alone:
                return False
            with suppress(StoreFullError), store_errors(self.path):
                # Only here does no process add a row of a provenance that none has any more.
                self._connection.execute(
                    "DELETE FROM provenances WHERE id NOT IN (SELECT provenance FROM results)"
                )
                self._connection.execute("VACUUM")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                return True
            return False

    def _repairing(self, action: Callable[[], _T]) -> _T:
        """Call the action; where the index turns out to be damaged, rebuild it and call again."""
        if self._lost:
            self._replace(self._open)
        try:
            with store_errors(self.path):
                return action()
        except DamagedIndexError:
            self.rebuild()
            with store_errors(self.path):
                return action()

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except DamagedIndexError:
            return self._rebuilt()

    def _connect(self) -> sqlite3.Connection:
        with store_errors(self.path), replacement_lock(self.path):
            try:
                _undo_begun(self.path)
                return open_database(self.path)
            finally:
                self._inode = inode(self.path)

    def _rebuilt(self) -> sqlite3.Connection:
        path = self.path
        aside = path.with_name(f"{path.stem}.damaged-{time.time_ns()}{path.suffix}")
        with store_errors(path), replacement_lock(path):
            _undo_begun(path)
            if inode(path) == self._inode:
                begun = aside.with_name(aside.name + _BEGUN)
                try:
                    begun.touch()
                    # Before they are copied: who stores meanwhile sees that it is another file.
                    for part, new in reversed(list(zip(_parts(path), _parts(aside), strict=True))):
                        with suppress(FileNotFoundError):
                            part.rename(new)
                    with closing(open_database(path)) as sound:
                        saved = _copy_rows(aside, sound)
                except BaseException:
                    _put_back(path, aside)
                    raise
                begun.unlink()
                kept = f"from the damaged file, which is kept as {aside.name}"
                self._note(f"index: {saved} results saved {kept}")
        return self._connect()


@contextmanager
def open_readonly(folder: Path) -> Iterator[Read]:
    """What runs queries in the database of a store, which is neither made nor mended.

    Raises StoreError where there is no store that this version can read.
    """
    path = folder / INDEX
    with closing(open_database(path, readonly=True)) as connection:

        def read(query: str, values: Sequence[object]) -> list[Row]:
            with store_errors(path):
                return connection.execute(query, values).fetchall()

        yield read
