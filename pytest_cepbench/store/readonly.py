"""Stores that are only read: exported copies, and live stores of other users.

Several of them can lie under a run's own store, which asks them for what it lacks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Self

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.errors import ImageError, StoreError, StoreVersionError
from pytest_cepbench.files import open_regular
from pytest_cepbench.store.database import BUSY_SECONDS, FORMAT, INDEX, create_tables, decode_text
from pytest_cepbench.store.images import image_path, load_image
from pytest_cepbench.store.rows import MOST_PAYLOAD, Result, Row, results_under, rows_with

_MAGIC = b"SQLite format 3\0"
_HEADER = 100
_LEGACY = 1  # byte 18 of the header: changes are not in a write-ahead log


class ReadonlyStore:
    """The database of a store that is not written to. Any thread may read.

    folder: of the store.
    named: the option and the folder as the user gave them, for errors.
    exported: True for a copy that `cepbench store export` made, which never changes.
    Raises StoreError where there is no store that this version can read.
    """

    def __init__(self, folder: Path, named: str) -> None:
        self.folder = folder
        self.named = named
        self._lock = Lock()
        path = folder / INDEX
        self.exported = _is_exported(path, named)
        # An exported copy never changes: SQLite needs neither locks nor files beside it, and its
        # folder may be on a read-only or a network file system.
        mode = "mode=ro&immutable=1" if self.exported else "mode=ro"
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def read(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """The rows of a query. Raises StoreError where the file is damaged or gone."""
        try:
            with self._lock:
                return self._connection.execute(query, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            msg = f"{self.named} cannot be read: {error}"
            raise StoreError(msg) from error

    def has(self, table: str) -> bool:
        """True where the store has this table, exactly as this version makes it."""
        query = "SELECT type, sql FROM sqlite_master WHERE name = ?"
        with sqlite3.connect(":memory:") as own:
            create_tables(own)
            expected = own.execute(query, (table,)).fetchall()
        own.close()
        with self._lock:
            return self._connection.execute(query, (table,)).fetchall() == expected

    def _check(self) -> None:
        """Refuse a file that is not a store's.

        It may come from an untrusted source: reading a view or a virtual table named like the
        results could do anything.
        """
        for setting in ("trusted_schema=OFF", "cell_size_check=ON", "query_only=ON"):
            self._connection.execute(f"PRAGMA {setting}")
        if not self.has("results"):
            raise StoreError(_foreign(self.named))

    def _refusal(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if self.exported or code not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            return StoreError(f"{self.named} cannot be read: {error}")
        msg = (
            f"{self.named} is a live store, which cannot be read where its folder cannot be "
            f"written ({error}): make a copy with cepbench store export, and give that"
        )
        return StoreError(msg)


class SharedStore:
    """A store of `--cep-shared`. Damage in it is noted once, and looks like absence.

    folder: of the store.
    note: called with a line about damage.
    Raises StoreError where the folder is no store that can be read.
    """

    def __init__(self, folder: Path, note: Callable[[str], None]) -> None:
        self.folder = folder
        self._note = note
        self._store = ReadonlyStore(folder, f"--cep-shared {str(folder)!r}")
        self._bad: set[str] = set()
        self._failed = False

    def close(self) -> None:
        """Close the database."""
        self._store.close()

    def get(self, keys: Iterable[str]) -> dict[str, Result]:
        """The undamaged results under these keys."""
        if self._failed:
            return {}
        try:
            results, damaged = results_under(self._store.read, keys, MOST_PAYLOAD)
        except StoreError as error:
            self._failed = True
            self._note(f"{error}; this run does not use it any more")
            return {}
        for key in damaged:
            self._note_once(key, f"result {key[:12]} in {self.folder}: damaged")
        return results

    def provenance(self, keys: Iterable[str]) -> dict[str, str]:
        """How the results under these keys came about; see `Store.provenance`."""
        if self._failed:
            return {}
        query = "SELECT key, provenance FROM results WHERE key"
        try:
            rows = list(rows_with(self._store.read, query, keys))
        except StoreError:  # noted when results are read
            return {}
        return {str(key): str(provenance) for key, provenance in rows}

    def get_image(self, digest: str) -> ImageArtifact | None:
        """The image, or None when it is absent or damaged."""
        if digest in self._bad:
            return None
        try:
            return load_image(self.folder, digest)
        except ImageError as error:
            self._note_once(digest, f"image {digest[:12]} in {self.folder}: {error}")
            return None

    def _note_once(self, name: str, line: str) -> None:
        if name not in self._bad:
            self._bad.add(name)
            self._note(line)


class Overlay:
    """All shared stores in folders, asked in their order.

    root: of the run's own store, which must not be among them.
    folders: of the shared stores.
    note: called with a line about damage.
    """

    def __init__(self, root: Path, folders: Sequence[Path], note: Callable[[str], None]) -> None:
        self._refused: set[str] = set()
        with ExitStack() as opened:
            self._stores: list[SharedStore] = []
            for folder in folders:
                if folder.resolve() == root.resolve():
                    msg = (
                        f"--cep-shared {str(folder)!r} is the store itself (--cep-store): remove it"
                    )
                    raise StoreError(msg)
                store = SharedStore(folder, note)
                opened.callback(store.close)
                self._stores.append(store)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close all databases."""
        self._opened.close()

    def get(self, keys: Iterable[str]) -> dict[str, Result]:
        """The result under each key in the first store that has it, refused ones left out."""
        results: dict[str, Result] = {}
        wanted = [key for key in keys if key not in self._refused]
        for store in self._stores:
            results |= store.get([key for key in wanted if key not in results])
        return results

    def provenance(self, keys: Iterable[str]) -> dict[str, str]:
        """How the results under these keys came about, from the first store that has each."""
        provenance: dict[str, str] = {}
        wanted = set(keys) - self._refused
        for store in self._stores:
            provenance |= store.provenance(wanted - provenance.keys())
        return provenance

    def refuse(self, keys: Iterable[str]) -> None:
        """Return nothing under these keys any more: their results turned out to be unusable."""
        if self._stores:
            self._refused.update(keys)

    def get_image(self, digest: str) -> ImageArtifact | None:
        """The image, from the first store that has it undamaged."""
        images = (store.get_image(digest) for store in self._stores)
        return next((image for image in images if image is not None), None)

    def image_path(self, digest: str) -> Path | None:
        """Path of the image in the first store that has it."""
        paths = (image_path(store.folder, digest) for store in self._stores)
        return next((path for path in paths if path.exists()), None)


def _is_exported(path: Path, named: str) -> bool:
    """True for an exported copy's index. Raises StoreError where it is no index of this format."""
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
    version = int.from_bytes(header[60:64], "big", signed=True)
    if version not in (0, FORMAT):
        msg = (
            f"{named} has format {version}, this version reads format {FORMAT}: give one that was "
            "written by the same version of pytest-cepbench"
        )
        raise StoreVersionError(msg)
    return header[18] == _LEGACY


def _foreign(named: str) -> str:
    return (
        f"{named} is not the folder of a store: one is made by cepbench store export, or by a run "
        "with --cep-store"
    )
