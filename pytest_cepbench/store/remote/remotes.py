"""The remote stores of a run: untrusted ones that it reads, and the one that it publishes to.

Uploads go on in the background of a run, which waits for them only at its end.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path, PurePosixPath
from threading import Condition, Thread

from pytest_cepbench.artifacts import Artifact, Modality
from pytest_cepbench.artifacts.modality import kind_of_file
from pytest_cepbench.errors import ArtifactError, CepError, UnreadError
from pytest_cepbench.files import read_regular, tells_of_file
from pytest_cepbench.store.artifact_files import MOST_BYTES, artifact_path, verify_artifact
from pytest_cepbench.store.remote.location import open_objects
from pytest_cepbench.store.remote.object_store import (
    AT_ONCE,
    ObjectStore,
    StoreFailure,
    artifact_names,
    from_object,
    result_name,
    to_object,
)
from pytest_cepbench.store.rows import Read, Row, batches, check_row, whole_rows

_ABSENT_SECONDS = 600.0
"""Time after which an absent object is looked for again: other runs publish meanwhile."""

Location = str | Path
"""A URL, or a folder."""

Log = Callable[[str], None]
"""Receives one line."""

SharedArtifact = tuple[Artifact, bytes]
"""An undamaged artifact from a remote store, and its file."""

SharedRow = tuple[Row, str | None]
"""An undamaged row from a remote store, and the digest of the artifact that it refers to."""


@dataclass(eq=False)
class RemoteReader:
    """Reads one remote store. Damage in it is noted once, and looks like absence.

    objects: the store.
    note: called with a line about damage.
    remark: called once when the store fails; it is not read any more then.

    bad: names of objects that are damaged, or are to be left alone for another reason.
    """

    objects: ObjectStore
    note: Log
    remark: Log
    bad: set[str] = field(default_factory=set)
    _absent: dict[str, float] = field(default_factory=dict)  # when each was last looked for
    _failed: bool = False

    def rows(self, keys: Iterable[str]) -> list[SharedRow]:
        """The undamaged rows under these keys, read at once."""
        names = {result_name(key): key for key in keys}
        sound = []
        for name, data in self._read(names).items():
            key = names[name]
            try:
                row = from_object(key, data)
                sound.append((row, check_row(row)))
            except ValueError as error:
                self._add_bad(name, f"result {key[:12]}", str(error))
        return sound

    def artifact(self, digest: str, kind: Modality = "image") -> SharedArtifact | None:
        """The image or sound; None when it is absent or damaged. kind: what is looked for first."""
        for name in artifact_names(digest, kind):
            data = self._read([name]).get(name)
            if data is None:
                continue
            try:
                return verify_artifact(data, digest), data
            except ArtifactError as error:
                what = f"{kind_of_file(Path(name))} {digest[:12]}"
                self._add_bad(name, what, str(error))
        return None

    def refuse(self, keys: Sequence[str]) -> None:
        """Return nothing under these keys any more; a publishing run overwrites them."""
        self.bad.update(map(result_name, keys))

    def _read(self, names: Iterable[str]) -> dict[str, bytes]:
        now = time.monotonic()
        wanted = [
            name
            for name in names
            if name not in self.bad and now - self._absent.get(name, -inf) >= _ABSENT_SECONDS
        ]
        if not wanted or self._failed:
            return {}
        fetched = self.objects.read(wanted)
        if fetched.failure is None:
            present = fetched.objects.keys() | fetched.unfit.keys()
            self._absent.update((name, now) for name in wanted if name not in present)
        elif not self._failed:
            self._failed = True
            why = fetched.failure.message
            self.remark(f"{self.objects.named}: {why}; this run does not read it any more")
        for name, why in fetched.unfit.items():
            self._add_bad(name, PurePosixPath(name).stem[:12], why)
        return dict(fetched.objects)

    def _add_bad(self, name: str, what: str, why: str) -> None:
        if name not in self.bad:
            self.bad.add(name)
            self.note(f"{what} in {self.objects.named}: {why}")


# -- uploads ---------------------------------------------------------------------------------------


_IMAGES_AT_ONCE = 16  # files in memory

_MOST_WAITING = 200_000  # keys, some 30 MB of them; a run that is further ahead waits

_RETRY_PAUSE = 5.0  # seconds; each object was tried twice within one already

_QUIET_SECONDS = 2.0  # of waiting at the end of a run without a word about it

_PATIENCE = 1800.0  # seconds without an upload: some dozens of objects, each tried twice, take less

_STUCK = f"nothing was uploaded for {_PATIENCE / 60:.0f} minutes"


def upload(
    objects: ObjectStore, read: Read, root: Path, keys: Sequence[str], replace: Container[str]
) -> dict[str, StoreFailure]:
    """Upload results, each after the image that it refers to, where they do not exist yet.

    read, root: of the local store.
    keys: a few dozen.
    replace: names of objects that are overwritten.
    Returns the failures by key. Raises StoreError where the local store fails.
    """
    rows: dict[str, Row] = {}
    images: dict[str, str | None] = {}
    failed: dict[str, StoreFailure] = {}
    for row in whole_rows(read, keys):
        try:
            images[row[0]], rows[row[0]] = check_row(row), row
        except ValueError:  # it is computed again when it is needed, and uploaded then
            failed[row[0]] = StoreFailure("absent", "the result is damaged in the local store")
    lost: dict[str | None, StoreFailure] = {}  # by digest
    for part in batches(sorted(filter(None, set(images.values()))), _IMAGES_AT_ONCE):
        files: dict[str, bytes] = {}
        names: dict[str, str] = {}
        for digest in part:
            try:
                path = artifact_path(root, digest)
                names[digest] = path.relative_to(root).as_posix()
                files[names[digest]] = read_regular(path, MOST_BYTES)
            except (OSError, UnreadError) as error:
                if isinstance(error, OSError) and tells_of_file(error):
                    lost[digest] = StoreFailure("absent", "its file is not in the local store")
                else:  # tried again
                    why = f"a file could not be read: {getattr(error, 'strerror', error)}"
                    lost[digest] = StoreFailure("unknown", why)
        unwritten = objects.write(files, replace)
        lost |= {d: unwritten[name] for d, name in names.items() if name in unwritten}
    failed |= {key: lost[image] for key, image in images.items() if image in lost}
    ready = {result_name(key): to_object(row) for key, row in rows.items() if key not in failed}
    unwritten = objects.write(ready, replace)
    return failed | {
        key: unwritten[result_name(key)] for key in rows if result_name(key) in unwritten
    }


@dataclass(eq=False)
class Uploader:
    """Uploads results on a thread of its own, in the order in which they were stored.

    objects: the shared store.
    root, read: of the local store, which has the results; only their keys wait in memory.
    replace: names of damaged objects, which are overwritten.
    remark: called in the end with a line about what was not uploaded.
    """

    objects: ObjectStore
    root: Path
    read: Read
    replace: Container[str]
    remark: Log
    _keys: dict[str, None] = field(default_factory=dict)
    _failed: Counter[str] = field(default_factory=Counter)
    _given_up: str | None = None
    _closed: bool = False
    _uploading: int = 0
    _batches: int = 0
    _thread: Thread | None = None
    _changed: Condition = field(default_factory=Condition)  # with a reentrant lock

    def add(self, keys: Iterable[str]) -> None:
        """Queue results of the local store for upload."""
        with self._changed:
            if not self._wait(lambda: len(self._keys) < _MOST_WAITING or bool(self._given_up)):
                self._give_up(_STUCK)
            if self._given_up is not None:
                self._failed[self._given_up] += len(set(keys))
                return
            self._keys.update(dict.fromkeys(keys))
            if self._thread is None and self._keys:
                # A daemon: a process that ends without closing the store must not wait for it.
                self._thread = Thread(target=self._work, name="upload", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(
        self, seconds: float | None = None, waiting: Callable[[int], None] | None = None
    ) -> None:
        """Wait until nothing is left to upload, and remark on what could not be.

        seconds: time after which the rest is left.
        waiting: called once with the number of results left, where it takes long.
        An interrupt ends the waiting, and nothing else.
        """
        limit = inf if seconds is None else seconds
        quiet = min(_QUIET_SECONDS, limit)

        def done() -> bool:
            return not self._keys and not self._uploading

        with self._changed:
            try:
                if not self._wait(done, quiet):
                    if waiting is not None:
                        waiting(len(self._keys) + self._uploading)
                    if not self._wait(done, limit - quiet):
                        in_time = f"not done within {seconds:g} s"
                        self._give_up(_STUCK if seconds is None else in_time)
            except KeyboardInterrupt:
                self._give_up("interrupted")
            failed, self._failed = +self._failed, Counter()
        if failed:
            number = sum(failed.values())
            results = "1 result was" if number == 1 else f"{number:,} results were"
            self.remark(
                f"{self.objects.named}: {results} not uploaded ({'; '.join(failed)}): "
                "they stay in the store of this run alone"
            )

    def close(self) -> None:
        """Upload the rest, and end the thread."""
        self.flush()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            with suppress(KeyboardInterrupt):
                self._thread.join(1.0)  # after giving up it may still wait for a server

    def _wait(self, done: Callable[[], bool], seconds: float = inf) -> bool:
        """Wait, with the condition's lock; False after so long, or `_PATIENCE` without a batch."""
        end = time.monotonic() + seconds
        while not done():
            known = self._batches
            left = min(_PATIENCE, end - time.monotonic())
            if not self._changed.wait_for(lambda k=known: done() or self._batches != k, left):  # type: ignore[misc] # a default
                return False
        return True

    def _give_up(self, why: str) -> None:
        with self._changed:
            if self._given_up is None:
                self._given_up = why
            self._failed[why] += len(self._keys) + self._uploading
            self._keys.clear()
            self._uploading = 0
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while keys := self._take():
                failed, reason = self._upload(keys)
                with self._changed:
                    if self._given_up is None:  # otherwise they are counted already
                        self._failed.update(failed)
                        self._uploading = 0
                        self._batches += 1
                        self._changed.notify_all()
                if reason is not None:
                    self._give_up(reason)
        except BaseException:  # the run must not wait for it
            self._give_up("the thread that uploads has failed")
            raise

    def _take(self) -> list[str]:
        """The next keys; none when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._keys or self._closed or self._given_up)
            keys = list(islice(self._keys, AT_ONCE))
            for key in keys:
                del self._keys[key]
            self._uploading = len(keys)
            self._batches += 1
            self._changed.notify_all()
            return keys

    def _upload(self, keys: Sequence[str]) -> tuple[list[str], str | None]:
        """(why each result was not uploaded, why nothing else can be)."""
        send = partial(upload, self.objects, self.read, self.root, replace=self.replace)
        try:
            failed = send(keys)
            again = [key for key, failure in failed.items() if failure.transient]
            with self._changed:
                ends = bool(again) and self._changed.wait_for(
                    lambda: self._closed or self._given_up is not None, _RETRY_PAUSE
                )
            if again and not ends:
                failed = {key: own for key, own in failed.items() if key not in again} | send(again)
        except (CepError, sqlite3.ProgrammingError) as error:  # the local store fails, or is closed
            return [str(error)] * len(keys), str(error)
        reason = next((f.message for f in failed.values() if f.affects_all), None)
        return [failure.message for failure in failed.values()], reason


def open_remotes(
    shared: Sequence[Location],
    publish: Location | None,
    local: tuple[Path, Read],
    logs: tuple[Log, Log],
    opened: ExitStack,
    *,
    writing: bool,
) -> tuple[list[RemoteReader], Uploader | None]:
    """(readers of stores, in their order, the one that is also published to last; its uploader).

    shared, publish: locations to read, and to publish to.
    local: folder of the run's own store, and its `read`.
    logs: called with a line about damage, and with a line about a store that fails.
    opened: uploads what is left, and closes all connections.
    writing: whether anything is published; without it, a location to publish to that holds no store
        yet is left out.
    Raises CepError kinds.
    """
    readers: list[RemoteReader] = []
    uploader = None
    read_only = [location for location in shared if location != publish]
    for location in read_only if publish is None else [*read_only, publish]:
        source = "--cep-publish" if location == publish else "--cep-shared"
        writes, optional = location == publish and writing, location == publish
        objects = open_objects(location, source, writing=writes, optional=optional)
        if objects is None:
            continue
        opened.callback(objects.close)
        readers.append(RemoteReader(objects, *logs))
        if writes:
            uploader = Uploader(objects, *local, readers[-1].bad, logs[1])
            opened.callback(uploader.close)
    return readers, uploader
