"""The store: results by key, images by digest, digests of files by their stamp."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self, cast

from pytest_cepbench.artifacts import Artifact, Failure, ImageArtifact, Modality
from pytest_cepbench.artifacts.modality import encode_artifact, kind_of_file
from pytest_cepbench.errors import ArtifactError, StoreError
from pytest_cepbench.files import FileStamp, replace_small
from pytest_cepbench.store.artifact_files import (
    FOLDER,
    NEW,
    ArtifactCache,
    artifact_path,
    drop_half_written,
    find_artifact,
    load_artifact,
    own_path,
    write_whole,
)
from pytest_cepbench.store.database import INDEX, Index, store_errors
from pytest_cepbench.store.locks import WorkLocks
from pytest_cepbench.store.rows import (
    WITH_PROVENANCE,
    Result,
    StoredResult,
    column,
    dated,
    file_rows,
    pack,
    packed,
    remote_artifact_note,
    results_under,
    rows_of,
    rows_with,
    seal_stamp,
    today,
    unpack,
)
from pytest_cepbench.store.shared import Location, SharedStore, open_shared
from pytest_cepbench.store.uploads import Uploader

_STALE_SECONDS = 3600.0

_INSERT_USE = (
    "INSERT INTO used VALUES (?, ?) "
    "ON CONFLICT (id) DO UPDATE SET day = excluded.day WHERE day < excluded.day"
)
"""Adds a row's number and the day on which it was used; a later day stays."""

_WRITE_SECONDS = 60.0  # between two writes of a run

_FAILED = "failed "  # in the names of notes, before the id of a run and the key of a step

_FAILURE_DAYS = 30  # longer than any run

_MOST_UNWRITTEN = 200_000  # numbers of rows, some 15 MB of them


class Store:
    """Results of steps, kept in a folder that any number of processes may use at once.

    The first result stored under a key counts, for every process. Reading verifies: what is damaged
    is dropped, noted in `damage`, and looks as if it had never been stored. Every method may be
    called by any thread; images are encoded and decoded outside of the one lock.

    root: the folder; created when absent, with a `.gitignore` of its own.
    shared: locations of shared stores for what the root does not hold, which keeps copies.
    publish: URL or folder of a shared store that is read like those, and that receives whatever is
        put here; created when absent.
    writing: False where the published store is only to be read.
    run: id that the processes of a run share, see `keep_failures`; empty outside of a run.

    damage: a line for each damaged item that was found.
    remarks: a line for each problem with a shared store; a run goes on without that store.
    locks: the work locks of the processes that use the folder.
    artifact_cache: images in memory.
    Raises StoreError and its kinds, SpecError and MissingDependencyError when one cannot be used.
    """

    def __init__(
        self,
        root: Path,
        shared: Sequence[Location] = (),
        publish: Location | None = None,
        *,
        writing: bool = True,
        run: str = "",
    ) -> None:
        self.root = root
        self._failed = f"{_FAILED}{run} " if run else ""  # begins the notes of the run's failures
        self.damage: list[str] = []
        self.remarks: list[str] = []
        self.artifact_cache = ArtifactCache()
        self._path = root / INDEX
        with store_errors(self._path):
            (root / FOLDER).mkdir(parents=True, exist_ok=True)
            (root / NEW).mkdir(exist_ok=True)
            ignore = root / ".gitignore"
            if not ignore.exists():
                replace_small(ignore, b"*\n")
            drop_half_written(root, _STALE_SECONDS)
            self.locks = WorkLocks(root / "claims")  # the name that earlier versions lock under
        with ExitStack() as opened:
            self.index = Index(self._path, self.damage.append)
            opened.callback(self.index.close)
            # Numbers of rows, collected: a cache hit must not cost a write. Where another process
            # rebuilds the index they are those of other rows, which then look younger.
            self._used: set[int] = set()
            self._uses_written = time.monotonic()
            opened.callback(self._write_uses)
            if run:
                self._drop_old_failures()
            self._shared: list[SharedStore] = []
            self._uploader: Uploader | None = None
            read_only = [location for location in shared if location != publish]
            for location in read_only if publish is None else [*read_only, publish]:
                published = location == publish
                source = "--cep-publish" if published else "--cep-shared"
                own = open_shared(
                    location, source, writing=published and writing, optional=published
                )
                if own is None:  # nothing was published yet, and nothing is to be
                    continue
                opened.callback(own.close)
                own.note, own.remark = self.damage.append, self.remarks.append
                self._shared.append(own)
                if published and writing:
                    self._uploader = Uploader(own, root, self.index.read)
                    opened.callback(self._uploader.close)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Upload what is left, and close connections and the database."""
        self._opened.close()

    def flush(
        self, seconds: float | None = None, waiting: Callable[[int], None] | None = None
    ) -> None:
        """Wait until every result is published; `remarks` has what could not be.

        seconds: time after which the rest is left.
        waiting: called once with the number of results left, where it takes long.
        An interrupt ends the waiting.
        """
        if self._uploader is not None:
            self._uploader.flush(seconds, waiting)

    # -- results ---------------------------------------------------------------------------------

    def get(self, keys: Iterable[str]) -> dict[str, Result]:
        """The undamaged results under these keys, from here and from shared stores.

        Of a step that failed in this run, its failure.
        """
        wanted = list(dict.fromkeys(keys))
        results = self._own(wanted)
        results |= self._fetch_results([key for key in wanted if key not in results])
        return results | self._kept_failures(wanted)

    def _own(self, keys: Iterable[str]) -> dict[str, Result]:
        """The undamaged results in the folder itself; damaged ones are dropped."""
        used: set[int] = set()
        results, damaged = results_under(self.index.read, keys, used=used)
        self._drop(damaged, "its row does not match its seal")
        self._used.update(used)
        if len(self._used) > _MOST_UNWRITTEN:
            self._write_uses()
        return results

    def _drop(self, keys: Sequence[str], why: str) -> None:
        if keys:
            self.index.write("DELETE FROM results WHERE key = ?", [(packed(key),) for key in keys])
        self.damage += [f"result {key[:12]}: {why}" for key in keys]

    def _fetch_results(self, keys: Sequence[str]) -> dict[str, Result]:
        """Copy results from remote stores into the folder; returns them."""
        stored: set[str] = set()
        for source in self._shared:
            shared = source.rows(key for key in keys if key not in stored)
            if shared:
                # Notes first: a row whose image is not here and has no note would count as damaged.
                self.note_all({remote_artifact_note(i): source.named for _, i in shared if i})
                self.index.add([dated(row) for row, _ in shared])
                stored.update(row[0] for row, _ in shared)
        return self._own(stored) if stored else {}

    def _write_uses(self) -> None:
        """Write the rows that were used, and the day; the day on which they were stored counts too.

        They are written when the store writes anyway, or is closed. Where a process is killed
        before, results look older than they are, nothing worse.
        """
        used, self._used, day = self._used, set(), today()
        self._uses_written = time.monotonic()
        # A run that only reads must not fail because a disk is full; the days are a hint.
        with suppress(StoreError):
            if used:
                self.index.write(_INSERT_USE, [(number, day) for number in sorted(used)])

    def provenance(self, keys: Iterable[str]) -> dict[str, str]:
        """How the results under these keys came about, as JSON."""
        texts = column(self.index.read, "text", keys, WITH_PROVENANCE)
        return {key: str(text) for key, text in texts.items()}

    def has(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that have a result; damage in it shows when it is read."""
        wanted = set(keys)
        present = set(column(self.index.read, "key", wanted))
        return present | self._fetch_results(sorted(wanted - present)).keys()

    def put(self, entries: Sequence[StoredResult]) -> dict[str, Result]:
        """Store results, all or none; returns what counts under each key: the first ever stored.

        Raises StoreFullError without space, and then stores nothing.
        """
        rows = rows_of(entries)
        keys = {row[0] for row in rows}
        for tries in range(3):
            if tries == 2:
                # SQLite's tree of keys is out of order, which it has not noticed.
                self.index.rebuild()
            self.index.add(rows)
            stored = self._own(keys)
            if stored.keys() == keys:  # else a damaged row was under a key, and was dropped
                break
        if self._uploader is not None:
            self._uploader.add(stored)
        if self._used and time.monotonic() - self._uses_written > _WRITE_SECONDS:
            self._write_uses()
        return stored | self._kept_failures(keys)

    def keep_failures(self, failures: Mapping[str, Failure]) -> dict[str, Result]:
        """Keep failures that are not stored, since another run may do better, for this run.

        A server may answer at the second try what it refused at first: all cases of a run, in
        whatever process, have to rest on one result of a step. Returns what counts under each key:
        what was stored meanwhile, else the first failure of the run.
        """
        if self._failed and failures:
            # As one statement, so that of a result and a failure only the first one counts.
            statement = (
                "INSERT OR IGNORE INTO notes SELECT ?, ? "
                "WHERE NOT EXISTS (SELECT 1 FROM results WHERE key = ?)"
            )
            rows = [
                (f"{self._failed}{key}", f"{today()} {pack(own)[1].decode()}", packed(key))
                for key, own in failures.items()
            ]
            self.index.write(statement, rows)
        return {**failures, **self.get(failures)} if failures else {}

    def _kept_failures(self, keys: Iterable[str]) -> dict[str, Failure]:
        """Those of this run; read after results, since none counts that is later than a failure."""
        if not self._failed:
            return {}
        failures = {}
        for name, value in self.notes(f"{self._failed}{key}" for key in keys).items():
            _, _, text = value.partition(" ")
            with suppress(ValueError):  # a damaged note: the step is asked for again
                failure = cast("Failure", unpack("failure", text.encode()))
                failures[name.removeprefix(self._failed)] = failure
        return failures

    def drop_failures(self) -> None:
        """Have what failed in this run tried again."""
        self.index.write(
            "DELETE FROM notes WHERE name BETWEEN ? AND ?", [(self._failed, f"{self._failed}~")]
        )

    def _drop_old_failures(self) -> None:
        """Drop those of earlier runs by their age: whether a run is over cannot be known."""
        old = f"name BETWEEN '{_FAILED}' AND '{_FAILED}~' AND CAST(value AS INTEGER) < ?"
        limit = (today() - _FAILURE_DAYS,)
        with suppress(StoreError):  # a disk may be full, and they do no harm
            if self.index.read(f"SELECT 1 FROM notes WHERE {old} LIMIT 1", limit):  # noqa: S608 - ours
                self.index.write(f"DELETE FROM notes WHERE {old}", [limit])  # noqa: S608 - ours

    def forget(self, keys: Sequence[str], *, why: str) -> None:
        """Drop damaged results, so that they are computed again, and refuse those of shared stores.

        why: the damage.
        """
        for source in self._shared:
            source.refuse(keys)
        self._drop(keys, why)

    def __len__(self) -> int:
        """Number of results in the folder itself."""
        return int(self.index.read("SELECT count(*) FROM results")[0][0])

    # -- artifacts -------------------------------------------------------------------------------

    def put_artifact(self, artifact: Artifact) -> str:
        """Store an image or a sound; returns its digest. Raises StoreFullError without space."""
        target = own_path(self.root, artifact)
        with store_errors(self._path):
            try:
                # Made young again, so that gc spares it until its result is stored.
                os.utime(target)
            except FileNotFoundError:
                write_whole(self.root, target, encode_artifact(artifact))
        self.artifact_cache.add(artifact)
        return artifact.digest

    def get_artifact(self, digest: str, kind: Modality = "image") -> Artifact | None:
        """The image or sound, or None when it is absent or its content does not match the digest.

        kind: what shared stores are asked for first.
        Raises UnreadError, and deletes nothing, where it could not be read.
        """
        try:
            artifact = load_artifact(self.root, digest)
        except ArtifactError as error:
            artifact = None
            with store_errors(self._path):
                path = artifact_path(self.root, digest)
                path.unlink(missing_ok=True)
            self.damage.append(f"{kind_of_file(path)} {digest[:12]}: {error}")
        return self._fetch_artifact(digest, kind) if artifact is None else artifact

    def get_image(self, digest: str) -> ImageArtifact | None:
        """As `get_artifact`, of what can be an image alone: None where it is a sound."""
        artifact = self.get_artifact(digest)
        return artifact if isinstance(artifact, ImageArtifact) else None

    def _fetch_artifact(self, digest: str, kind: Modality = "image") -> Artifact | None:
        """Copy an artifact from a remote store into the folder; returns it."""
        for source in self._shared:
            shared = source.artifact(digest, kind)
            if shared is not None:
                artifact, data = shared
                with store_errors(self._path):
                    write_whole(self.root, own_path(self.root, artifact), data)
                return artifact
        return None

    def artifact_path(self, digest: str) -> Path:
        """Path of the artifact; in the folder itself where it is absent.

        One of a remote store, known from its result, is fetched first.
        """
        found = find_artifact(self.root, digest)
        if found is None and self.notes([remote_artifact_note(digest)]):
            self._fetch_artifact(digest)
        return found or artifact_path(self.root, digest)

    # -- what is remembered beside them ----------------------------------------------------------

    def file_digest(self, path: Path, what: str, compute: Callable[[Path], str]) -> str:
        """`compute(path)`, remembered until the file's size, times or inode change.

        what: names the kind of digest ("bytes", "pixels").
        A file that was written to in the two seconds before is computed each time, since its stamp
        cannot be trusted yet: see `FileStamp.settled`.
        """
        known = self.known_digests([(path, what)])
        if known:
            return known[path, what]
        resolved = path.resolve()
        before = FileStamp.of(resolved)
        digest = compute(resolved)
        if before.settled and before == FileStamp.of(resolved):
            name = _file_name(resolved)
            row = (name, what, seal_stamp(name, what, str(before), digest), digest)
            self.index.write("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", [row])
        return digest

    def known_digests(self, files: Iterable[tuple[Path, str]]) -> dict[tuple[Path, str], str]:
        """What `file_digest` remembers of files, by path and kind, as far as they are the same."""
        stamps: dict[tuple[Path, str], tuple[str, FileStamp]] = {}
        folders: dict[Path, Path] = {}  # resolved once: many files lie in few of them
        for path, what in files:
            folder = path.parent
            # Who reads the file says what is wrong with it: Python 3.11 and 3.12 raise RuntimeError
            # for a link that leads back to itself.
            with suppress(OSError, RuntimeError):
                if folder not in folders:
                    folders[folder] = folder.resolve()
                place = folders[folder] / path.name
                if path.name in ("", "..") or place.is_symlink():
                    place = path.resolve()
                stamps[path, what] = _file_name(place), FileStamp.of(place)
        places = {(name, what) for (_, what), (name, _) in stamps.items()}
        rows = {(name, what): row for name, what, *row in file_rows(self.index.read, places)}
        known: dict[tuple[Path, str], str] = {}
        for (path, what), (name, stamp) in stamps.items():
            sealed, digest = rows.get((name, what), (None, ""))
            if sealed == seal_stamp(name, what, str(stamp), str(digest)):
                known[path, what] = str(digest)
        return known

    def note(self, name: str, value: str) -> None:
        """Remember something small that may change; it is lost when the index is rebuilt."""
        self.note_all({name: value})

    def note_all(self, values: Mapping[str, str]) -> None:
        """Remember several such values, by name."""
        if values:
            self.index.write("INSERT OR REPLACE INTO notes VALUES (?, ?)", list(values.items()))

    def notes(self, names: Iterable[str]) -> dict[str, str]:
        """The values last noted under these names, where there are any."""
        rows = rows_with(self.index.read, "SELECT name, value FROM notes WHERE name", names)
        return {str(name): str(value) for name, value in rows}


def _file_name(path: Path) -> str:
    """A path as the index keeps it: it need not be UTF-8."""
    return str(path).encode("utf-8", "backslashreplace").decode()
