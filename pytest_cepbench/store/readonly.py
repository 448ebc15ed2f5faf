"""Stores that are only read: those of other users.

Several of them can lie under a run's own store, which asks them for what it lacks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Self

from pytest_cepbench.artifacts import Artifact
from pytest_cepbench.errors import ArtifactError, DamagedIndexError, StoreError, StoreVersionError
from pytest_cepbench.files import open_regular, tells_of_file
from pytest_cepbench.store.artifact_files import find_artifact, load_artifact
from pytest_cepbench.store.database import (
    BUSY_SECONDS,
    FORMAT,
    FORMER_FORMAT,
    INDEX,
    create_tables,
    decode_text,
    is_damage,
)
from pytest_cepbench.store.rows import MOST_PAYLOAD, Result, Row, column, results_under

_MAGIC = b"SQLite format 3\0"
_HEADER = 100


class ReadonlyStore:
    """The database of a store that is not written to. Any thread may read.

    folder: of the store.
    named: the option and the folder as the user gave them, for errors.
    Raises StoreError where there is no store that this version can read.
    """

    def __init__(self, folder: Path, named: str) -> None:
        self.folder = folder
        self.named = named
        self._lock = Lock()
        path = folder / INDEX
        _check_header(path, named)
        with self._refusing(), ExitStack() as opened:
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro",
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            opened.callback(self.close)
            self._connection.text_factory = decode_text
            for setting in ("trusted_schema=OFF", "cell_size_check=ON", "query_only=ON"):
                self._connection.execute(f"PRAGMA {setting}")
            # It may come from an untrusted source: reading a view or a virtual table named like
            # one of a store could do anything.
            query = "SELECT name, type, sql FROM sqlite_master"
            with closing(sqlite3.connect(":memory:")) as own:
                create_tables(own)
                expected = set(own.execute(query).fetchall())
            if not expected <= set(self._connection.execute(query).fetchall()):
                raise StoreError(_foreign(named))
            opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def read(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """The rows of a query. Raises StoreError where it is damaged, gone, or cannot be read."""
        try:
            with self._lock:
                return self._connection.execute(query, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:
            raise (DamagedIndexError if is_damage(error) else StoreError)(
                f"{self.named} cannot be read: {str(error) or 'no memory is left'}"
            ) from error

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise StoreError(f"{self.named} cannot be read: {error}") from error
            raise StoreError(
                f"{self.named} is a live store, which cannot be read where its folder cannot be "
                f"written ({error}): give a copy of the folder, or share results with --cep-publish"
            ) from error


class Overlay:
    """The stores of `--cep-shared` in folders, asked in their order.

    Damage in them is noted once, and looks like absence.

    root: of the run's own store, which must not be among them.
    folders: of the shared stores.
    note: called with a line about damage.
    Raises StoreError where a folder is no store that can be read.
    """

    def __init__(self, root: Path, folders: Sequence[Path], note: Callable[[str], None]) -> None:
        self._folders = tuple(folders)
        self._note = note
        self._stores: list[ReadonlyStore] = []  # without those that could not be read any more
        self._bad: set[tuple[Path, str]] = set()  # keys and digests by folder
        self._refused: set[str] = set()
        with ExitStack() as opened:
            for folder in folders:
                named = f"--cep-shared {str(folder)!r}"
                if folder.resolve() == root.resolve():
                    raise StoreError(f"{named} is the store itself (--cep-store): remove it")
                self._stores.append(opened.enter_context(ReadonlyStore(folder, named)))
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close all databases."""
        self._opened.close()

    def get(self, keys: Iterable[str]) -> dict[str, Result]:
        """The undamaged result under each key in the first store with one, without refused ones."""
        results: dict[str, Result] = {}
        wanted = [key for key in keys if key not in self._refused]
        for store in self._stores:
            lacking = [key for key in wanted if key not in results]
            try:
                stored, damaged = results_under(store.read, lacking, MOST_PAYLOAD)
            except StoreError as error:
                self._stores = [other for other in self._stores if other is not store]
                self._note_once(store.folder, "", f"{error}; this run does not use it any more")
                continue
            results |= stored
            for key in damaged:
                self._note_once(store.folder, key, f"result {key[:12]} in {store.folder}: damaged")
        return results

    def column(self, name: str, keys: Iterable[str], source: str) -> dict[str, Any]:
        """A column of the results under these keys, from the first store that has each.

        source: as of `pages`.
        """
        values: dict[str, Any] = {}
        wanted = set(keys) - self._refused
        for store in self._stores:
            with suppress(StoreError):  # noted when results are read
                values |= column(store.read, name, wanted - values.keys(), source)
        return values

    def refuse(self, keys: Iterable[str]) -> None:
        """Return nothing under these keys any more: their results turned out to be unusable."""
        self._refused.update(keys)

    def get_artifact(self, digest: str) -> Artifact | None:
        """The image, from the first store that has it undamaged. Raises UnreadError."""
        for folder in self._folders:
            if (folder, digest) in self._bad:
                continue
            try:
                image = load_artifact(folder, digest)
            except ArtifactError as error:
                self._note_once(folder, digest, f"image {digest[:12]} in {folder}: {error}")
                continue
            if image is not None:
                return image
        return None

    def artifact_path(self, digest: str) -> Path | None:
        """Path of the image in the first store that has it."""
        paths = (find_artifact(folder, digest) for folder in self._folders)
        return next((path for path in paths if path is not None), None)

    def _note_once(self, folder: Path, name: str, line: str) -> None:
        if (folder, name) not in self._bad:
            self._bad.add((folder, name))
            self._note(line)


def _check_header(path: Path, named: str) -> None:
    """Raise StoreError where this is no index of this format."""
    if not path.parent.is_dir():
        what = "is a file" if path.parent.exists() else "does not exist"
        raise StoreError(f"{named} {what}: the folder of a store is expected")
    try:
        with open_regular(path) as stream:
            header = stream.read(_HEADER)
    except OSError as error:
        what = _foreign(named) if tells_of_file(error) else f"{named} cannot be read"
        raise StoreError(f"{what} ({INDEX}: {error.strerror})") from error
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        raise StoreError(_foreign(named))
    version = int.from_bytes(header[60:64], "big", signed=True)
    if version not in (0, FORMAT):
        remedy = "give one that was written by the same version of pytest-cepbench"
        if version == FORMER_FORMAT:
            remedy = "run once with it as --cep-store, which rewrites it"
        raise StoreVersionError(
            f"{named} has format {version}, this version reads format {FORMAT}: {remedy}"
        )


def _foreign(named: str) -> str:
    return f"{named} is not the folder of a store: one is made by a run with --cep-store"
