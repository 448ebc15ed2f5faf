"""The store itself: results by key, images by digest, digests of files by their stamp."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from pytest_cepbench.artifacts import ImageArtifact, encode_image
from pytest_cepbench.artifacts.stamps import FileStamp
from pytest_cepbench.errors import ImageError
from pytest_cepbench.files import write_small
from pytest_cepbench.store.access_log import AccessLog
from pytest_cepbench.store.database import explained
from pytest_cepbench.store.image_cache import ImageCache
from pytest_cepbench.store.images import FOLDER, image_path, read_image_of, write_image
from pytest_cepbench.store.index import Index
from pytest_cepbench.store.locks import WorkLocks
from pytest_cepbench.store.lookup import Read, among, results_under
from pytest_cepbench.store.overlay import Overlay
from pytest_cepbench.store.readonly import INDEX
from pytest_cepbench.store.remote.object_store import MARKER
from pytest_cepbench.store.remote.remotes import Place, Remotes
from pytest_cepbench.store.rows import dated
from pytest_cepbench.store.stored_result import Result, StoredResult, pack, seal, seal_stamp

INSERT = "INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?, ?, ?)"
"""A row of results; the first one under a key stays."""

_AWAY = "away "  # before the digest of an image in a note that says in which shared store it lies

_STALE_SECONDS = 3600.0


class Store:
    """Results of steps, kept in a folder that any number of processes may use at once.

    The first result stored under a key is the one that counts, for everybody. Reading verifies:
    what is damaged is dropped, noted in `damage`, and looks as if it had never been stored. Every
    method may be called by any thread; images are encoded and decoded outside of the one lock.

    root: the folder; made when absent, with a `.gitignore` of its own. shared: stores that are only
    read, asked for what the root does not hold: folders of stores, from which nothing is copied,
    then URLs, from which copies are kept. publish: URL or folder of a shared store that is read like
    those, and given whatever is put here; made when absent. writing: False where it is to be read
    only. `remarks` says what went wrong with them, and stopped nobody.
    Raises StoreError and its kinds, SpecError and MissingDependencyError when one cannot be used.
    """

    def __init__(
        self,
        root: Path,
        shared: Sequence[Place] = (),
        publish: Place | None = None,
        *,
        writing: bool = True,
    ) -> None:
        self.root = root
        self.damage: list[str] = []
        self.remarks: list[str] = []
        self.recent = ImageCache()
        self._path = root / INDEX
        with explained(self._path):
            (root / FOLDER).mkdir(parents=True, exist_ok=True)
            (root / "new").mkdir(exist_ok=True)
            ignore = root / ".gitignore"
            if not ignore.exists():
                write_small(ignore, "*\n")
            self._sweep()
            self.claims = WorkLocks(root / "claims")
        folders = [Path(one) for one in shared if not _is_remote(one)]
        with ExitStack() as opened:
            self._layers = Overlay(root, folders, self.damage.append)
            opened.callback(self._layers.close)
            self.index = Index(self._path, self.damage.append)
            opened.callback(self.index.close)
            self._uses = AccessLog(self.index)
            opened.callback(self._uses.write)
            self._remotes = Remotes(
                root,
                self.index.read,
                [one for one in shared if _is_remote(one)],
                publish,
                (self.damage.append, self.remarks.append),
                writing=writing,
            )
            opened.callback(self._remotes.close)
            self._opened = opened.pop_all()

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
        """Upload what is left, and release the databases, the own one and those of shared stores."""
        self._opened.close()

    def flush(
        self, seconds: float | None = None, waiting: Callable[[int], None] | None = None
    ) -> None:
        """Wait until what was put is published, where it is; `remarks` has what could not be.

        seconds: after which the rest is left. waiting: told once how many results are left, where it
        takes long. An interrupt ends the waiting.
        """
        self._remotes.flush(seconds, waiting)

    # -- results ---------------------------------------------------------------------------------

    def get(self, keys: Iterable[str]) -> dict[str, Result]:
        """The results that are there, undamaged, under these keys."""
        self.claims.beat()
        wanted = list(dict.fromkeys(keys))
        found = self._own(wanted)
        self._uses.add(found)
        if self._layers and len(found) < len(wanted):
            found |= self._layers.get([key for key in wanted if key not in found])
        if self._remotes and len(found) < len(wanted):
            found |= self._copied([key for key in wanted if key not in found])
        return found

    def _copied(self, keys: Sequence[str]) -> dict[str, Result]:
        """What shared stores hold under these keys; it is in the folder itself from now on."""
        shared = self._remotes.rows(keys)
        if not shared:
            return {}
        # First, so that no row without its image looks as if that were lost.
        self.index.write(
            "INSERT OR REPLACE INTO notes VALUES (?, ?)",
            [(f"{_AWAY}{one.image}", one.place) for one in shared if one.image is not None],
        )
        self.index.write(INSERT, [dated(one.row) for one in shared])
        found = self._own(one.row[0] for one in shared)
        self._uses.add(found)
        return found

    def _own(self, keys: Iterable[str]) -> dict[str, Result]:
        """Those that are in the folder itself."""
        found, damaged = results_under(self.index.read, keys)
        if damaged:
            self._drop(damaged, "its row does not match its seal")
        return found

    def provenance(self, keys: Iterable[str]) -> dict[str, str]:
        """How the results under these keys came about, as JSON; whatever a shared store says of them."""
        wanted = set(keys)
        query = "SELECT key, provenance FROM results WHERE key"
        found = {str(key): str(said) for key, said in among(self.index.read, query, wanted)}
        return self._layers.provenance(wanted - found.keys()) | found

    def has(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that have a result; whether it is undamaged shows when it is read."""
        wanted = set(keys)
        own = among(self.index.read, "SELECT key FROM results WHERE key", wanted)
        there = {str(key) for (key,) in own}
        if self._layers:
            there |= self._layers.get(wanted - there).keys()
        if self._remotes and len(there) < len(wanted):
            there |= self._copied(sorted(wanted - there)).keys()
        return there

    def put(self, entries: Sequence[StoredResult]) -> dict[str, Result]:
        """Store results, all or none; returns what counts under each key: the first ever stored.

        Raises StoreFullError without space; nothing is confirmed then.
        """
        self.claims.beat()
        shared = self._layers.get({entry.key for entry in entries}) if self._layers else {}
        kept = self._put_own([entry for entry in entries if entry.key not in shared])
        self._remotes.publish(kept)
        self._uses.write_now_and_then()
        return shared | self._own(shared) | kept

    def _put_own(self, entries: Sequence[StoredResult]) -> dict[str, Result]:
        rows = []
        notes: dict[int, str] = {}  # the entries of a batch share theirs
        for entry in entries:
            kind, payload = pack(entry.result)
            provenance = notes.get(id(entry.provenance))
            if provenance is None:
                provenance = json.dumps(dict(entry.provenance), sort_keys=True)
                notes[id(entry.provenance)] = provenance
            sealed = seal(entry.key, kind, payload)
            rows.append((entry.key, kind, payload, provenance, time.time(), sealed))
        keys = {entry.key for entry in entries}
        self.index.write(INSERT, rows)
        kept = self._own(keys)
        if kept.keys() != keys:
            # A damaged row was in the way, and `_own` has dropped it.
            self.index.write(INSERT, rows)
            kept = self._own(keys)
        if kept.keys() != keys:
            # SQLite's tree of keys is out of order and it has not noticed: only a new one helps.
            self.index.mend()
            self.index.write(INSERT, rows)
            kept = self._own(keys)
        return kept

    def forget(self, keys: Sequence[str], *, why: str) -> None:
        """Drop damaged results, so that they are computed again; shared ones are not read any more."""
        self._layers.refuse(keys)
        self._remotes.refuse(keys)
        self._drop(keys, why)

    def _drop(self, keys: Sequence[str], why: str) -> None:
        self.index.write("DELETE FROM results WHERE key = ?", [(key,) for key in keys])
        self.damage.extend(f"result {key[:12]}: {why}" for key in keys)

    def __len__(self) -> int:
        """Number of results in the folder itself."""
        return int(self.index.read("SELECT count(*) FROM results")[0][0])

    # -- images ----------------------------------------------------------------------------------

    def put_image(self, image: ImageArtifact) -> str:
        """Keep an image; returns its digest. Raises StoreFullError without space."""
        target = image_path(self.root, image.digest)
        with explained(self._path):
            try:
                os.utime(target)  # young again: it is wanted, and its result may come yet
            except FileNotFoundError:
                write_image(self.root, image.digest, encode_image(image))
        self.recent.add(image)
        return image.digest

    def get_image(self, digest: str) -> ImageArtifact | None:
        """The image, or None when it is absent or its pixels are not those of the digest."""
        try:
            image = read_image_of(self.root, digest)
        except ImageError as error:
            image = None
            with explained(self._path):
                image_path(self.root, digest).unlink(missing_ok=True)
            self.damage.append(f"image {digest[:12]}: {error}")
        if image is None:
            image = self._layers.get_image(digest)
        return self._fetched(digest) if image is None and self._remotes else image

    def _fetched(self, digest: str) -> ImageArtifact | None:
        """The image from a shared store; it is in the folder itself from now on."""
        shared = self._remotes.image(digest)
        if shared is None:
            return None
        with explained(self._path):
            write_image(self.root, digest, shared.data)
        return shared.image

    def image_path(self, digest: str) -> Path:
        """Where the image of this digest lies, if it is there; in the folder itself if it is not.

        What shared results refer to is fetched for it.
        """
        own = image_path(self.root, digest)
        if own.exists():
            return own
        shared = self._layers.image_path(digest)
        if shared is None and self._remotes and self.noted([f"{_AWAY}{digest}"]):
            self._fetched(digest)
        return shared or own

    # -- digests of files ------------------------------------------------------------------------

    def file_digest(self, path: Path, what: str, compute: Callable[[Path], str]) -> str:
        """`compute(path)`, remembered until the file's size, times or inode change.

        what: names the kind of digest ("bytes", "pixels"). Of a file that was written to in the two
        seconds before it was looked at nothing is remembered: see `FileStamp.settled`.
        """
        resolved = path.resolve()
        name = str(resolved).encode("utf-8", "backslashreplace").decode()  # names need not be UTF-8
        seen = FileStamp.of(resolved)
        stamp = str(seen)

        query = "SELECT stamp, digest FROM files WHERE path = ? AND what = ?"
        for known, digest in self.index.read(query, (name, what)):
            if known == seal_stamp(name, what, stamp, str(digest)):
                return str(digest)
        digest = compute(resolved)
        if seen.settled and seen == FileStamp.of(resolved):
            row = (name, what, seal_stamp(name, what, stamp, digest), digest)
            self.index.write("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", [row])
        return digest

    # -- notes -----------------------------------------------------------------------------------

    def note(self, name: str, value: str) -> None:
        """Remember something small that may change; it is lost when the index is mended."""
        self.index.write("INSERT OR REPLACE INTO notes VALUES (?, ?)", [(name, value)])

    def noted(self, names: Iterable[str]) -> dict[str, str]:
        """What was last noted under these names, of those that were."""
        query = "SELECT name, value FROM notes WHERE name"
        return {str(name): str(value) for name, value in among(self.index.read, query, names)}

    def _sweep(self) -> None:
        """Remove what processes that were killed left half-written."""
        for left in (self.root / "new").iterdir():
            try:
                if time.time() - left.stat().st_mtime <= _STALE_SECONDS:
                    continue
                if left.is_dir():  # of an archive that was being imported
                    shutil.rmtree(left)
                else:
                    left.unlink()
            except FileNotFoundError:
                continue  # another process swept it first


def images_away(read: Read) -> set[str]:
    """Digests of images that results refer to and that lie in a shared store; some are here as well."""
    if not read("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'notes'", ()):
        return set()  # of an earlier version
    rows = read("SELECT name FROM notes WHERE name GLOB ?", (f"{_AWAY}*",))
    return {str(name).removeprefix(_AWAY) for (name,) in rows}


def _is_remote(place: Place) -> bool:
    """Whether a shared store is one of objects; a folder of such has no index."""
    return isinstance(place, str) or ((place / MARKER).exists() and not (place / INDEX).exists())
