"""The store itself: results by key, images by digest, digests of files by their stamp."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

from pytest_cepbench.artifacts import ImageArtifact, decode_image, encode_image
from pytest_cepbench.errors import ImageError
from pytest_cepbench.store.database import (
    DamagedIndexError,
    explained,
    in_place,
    inode,
    mend,
    open_database,
    transaction,
)
from pytest_cepbench.store.results import Result, StoredResult, is_sealed, pack, seal, unpack

_T = TypeVar("_T")

_MOST_VARIABLES = 500  # keys in one query, well below SQLite's limit

_STALE_SECONDS = 3600.0

_RACY_NS = 2_000_000_000  # a file this young can change again without changing its time stamp


class Store:
    """Results of steps, kept in a folder that any number of processes may use at once.

    The first result stored under a key is the one that counts, for everybody. Reading verifies:
    what is damaged is dropped, noted in `damage`, and looks as if it had never been stored.

    root: the folder; made when absent, with a `.gitignore` of its own. shared: folders of stores
    that are only read, asked in this order for what the root does not hold.
    Raises StoreError and its kinds when the folder cannot be used.
    """

    def __init__(self, root: Path, shared: Sequence[Path] = ()) -> None:
        self.root = root
        self.shared = tuple(shared)
        self.damage: list[str] = []
        self._path = root / "index.sqlite"
        self._images = root / "images"
        with explained(self._path):
            self._images.mkdir(parents=True, exist_ok=True)
            (root / "new").mkdir(exist_ok=True)
            ignore = root / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
            self._sweep()
        self._inode: int | None = None
        self._connection = self._open()

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
        """Release the database."""
        self._connection.close()

    # -- results ---------------------------------------------------------------------------------

    def get(self, keys: Iterable[str]) -> dict[str, Result]:
        """The results that are there, undamaged, under these keys."""
        found: dict[str, Result] = {}
        broken: list[str] = []
        wanted = list(dict.fromkeys(keys))
        for start in range(0, len(wanted), _MOST_VARIABLES):
            part = wanted[start : start + _MOST_VARIABLES]
            marks = ",".join("?" * len(part))
            query = f"SELECT key, kind, payload, seal FROM results WHERE key IN ({marks})"  # noqa: S608 - only question marks are put in
            for key, kind, payload, sealed in self._read(query, part):
                if is_sealed(key, kind, payload, sealed):
                    found[key] = unpack(kind, payload)
                else:
                    broken.append(str(key))
        if broken:
            self.forget(broken, why="its row does not match its seal")
        return found

    def put(self, entries: Sequence[StoredResult]) -> dict[str, Result]:
        """Store results, all or none; returns what counts under each key: the first ever stored.

        Raises StoreFullError without space; nothing is confirmed then.
        """
        rows = []
        for entry in entries:
            kind, payload = pack(entry.result)
            provenance = json.dumps(dict(entry.provenance), sort_keys=True)
            sealed = seal(entry.key, kind, payload)
            rows.append((entry.key, kind, payload, provenance, time.time(), sealed))
        statement = "INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?, ?, ?)"
        keys = {entry.key for entry in entries}
        self._write(statement, rows)
        kept = self.get(keys)
        if kept.keys() != keys:
            # A damaged row was in the way, and `get` has dropped it.
            self._write(statement, rows)
            kept = self.get(keys)
        if kept.keys() != keys:
            # SQLite's tree of keys is out of order and it has not noticed: only a new one helps.
            self._mend()
            self._write(statement, rows)
            kept = self.get(keys)
        return kept

    def forget(self, keys: Sequence[str], *, why: str) -> None:
        """Drop damaged results, so that they are computed again."""
        self._write("DELETE FROM results WHERE key = ?", [(key,) for key in keys])
        self.damage.extend(f"result {key[:12]}: {why}" for key in keys)

    def __len__(self) -> int:
        """Number of results."""
        return int(self._read("SELECT count(*) FROM results", ())[0][0])

    # -- images ----------------------------------------------------------------------------------

    def put_image(self, image: ImageArtifact) -> str:
        """Keep an image; returns its digest. Raises StoreFullError without space."""
        target = self.image_path(image.digest)
        if not target.exists():
            with explained(self._path):
                target.parent.mkdir(exist_ok=True)
                fresh = self.root / "new" / uuid4().hex
                try:
                    fresh.write_bytes(encode_image(image))
                    fresh.replace(target)
                finally:
                    fresh.unlink(missing_ok=True)
        return image.digest

    def get_image(self, digest: str) -> ImageArtifact | None:
        """The image, or None when it is absent or its pixels are not those of the digest."""
        path = self.image_path(digest)
        try:
            image = decode_image(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ImageError, OSError) as error:
            why = str(error)
        else:
            if image.digest == digest:
                return image
            why = "its pixels do not match its name"
        with explained(self._path):
            path.unlink(missing_ok=True)
        self.damage.append(f"image {digest[:12]}: {why}")
        return None

    def image_path(self, digest: str) -> Path:
        """Where the image of this digest lies, if it is there."""
        return self._images / digest[:2] / f"{digest}.webp"

    # -- digests of files ------------------------------------------------------------------------

    def file_digest(self, path: Path, what: str, compute: Callable[[Path], str]) -> str:
        """`compute(path)`, remembered until the file's size, times or inode change.

        what: names the kind of digest ("bytes", "pixels"). A file changed in the last two seconds
        is not remembered: another change could leave the same stamp.
        """
        resolved = path.resolve()
        name = str(resolved).encode("utf-8", "backslashreplace").decode()  # names need not be UTF-8
        stamp = _stamp(resolved)

        def sealed(digest: str) -> str:
            return f"{stamp} {seal(name, what, f'{stamp} {digest}'.encode()).hex()}"

        query = "SELECT stamp, digest FROM files WHERE path = ? AND what = ?"
        for known, digest in self._read(query, (name, what)):
            if known == sealed(str(digest)):
                return str(digest)
        digest = compute(resolved)
        if stamp == _stamp(resolved) and time.time_ns() - resolved.stat().st_mtime_ns > _RACY_NS:
            row = (name, what, sealed(digest), digest)
            self._write("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", [row])
        return digest

    # -- the database ----------------------------------------------------------------------------

    def _read(self, query: str, values: Sequence[str]) -> list[tuple[Any, ...]]:
        def read() -> list[tuple[Any, ...]]:
            with explained(self._path):
                return self._connection.execute(query, values).fetchall()

        return self._mending(read)

    def _write(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run a statement for every row in one transaction: all of them or none."""

        def write() -> None:
            with explained(self._path), transaction(self._connection):
                self._connection.executemany(statement, rows)

        self._mending(write)
        if inode(self._path) != self._inode:
            # Another process mended the index meanwhile and may have missed these rows.
            self._connection.close()
            self._connection = self._open()
            self._mending(write)

    def _mending(self, action: Callable[[], _T]) -> _T:
        """Act; where the index turns out to be damaged, mend it and act once more."""
        try:
            return action()
        except DamagedIndexError:
            self._mend()
            return action()

    def _mend(self) -> None:
        self._connection.close()
        self._connection = self._mended()

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except DamagedIndexError:
            return self._mended()

    def _connect(self) -> sqlite3.Connection:
        with explained(self._path), in_place(self._path):
            try:
                return open_database(self._path)
            finally:
                self._inode = inode(self._path)

    def _mended(self) -> sqlite3.Connection:
        kept, aside = mend(self._path, self._inode)
        if aside != self._path:
            note = f"{kept} results saved from the damaged file, which is kept as {aside.name}"
            self.damage.append(f"index: {note}")
        return self._connect()

    def _sweep(self) -> None:
        """Remove what processes that were killed left half-written."""
        for left in (self.root / "new").iterdir():
            try:
                if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                    left.unlink()
            except FileNotFoundError:
                continue  # another process swept it first


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
