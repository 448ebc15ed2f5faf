"""Uploads to a shared store, in the background of a run, which waits for them only at its end."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from math import inf
from pathlib import Path
from threading import Condition, Thread

from pytest_cepbench.errors import CepError, UnreadError
from pytest_cepbench.files import read_regular, tells_of_file
from pytest_cepbench.store.artifact_files import MOST_BYTES, artifact_path
from pytest_cepbench.store.rows import Read, Row, batches, check_row, whole_rows
from pytest_cepbench.store.shared import (
    AT_ONCE,
    SharedStore,
    StoreFailure,
    result_name,
    to_object,
)

_PATIENCE = 1800.0  # seconds without an upload: some dozens of objects, each tried twice, take less

_UPLOAD_PAUSE = 5.0  # seconds; each object was tried twice within one already

_QUIET_SECONDS = 2.0  # of waiting at the end of a run without a word about it

_JOIN_SECONDS = 1.0

_IMAGES_AT_ONCE = 16  # files in memory


def upload(
    shared: SharedStore, read: Read, root: Path, keys: Sequence[str]
) -> dict[str, StoreFailure]:
    """Upload results, each after the image that it refers to, where they do not exist yet.

    read, root: of the local store.
    keys: a few dozen.
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
        files: dict[str, tuple[str, bytes]] = {}  # by the name of the object
        for digest in part:
            try:
                path = artifact_path(root, digest)
                files[path.relative_to(root).as_posix()] = digest, read_regular(path, MOST_BYTES)
            except (OSError, UnreadError) as error:
                if isinstance(error, OSError) and tells_of_file(error):
                    lost[digest] = StoreFailure("absent", "its file is not in the local store")
                else:  # tried again
                    why = f"a file could not be read: {getattr(error, 'strerror', error)}"
                    lost[digest] = StoreFailure("unknown", why)
        contents = {name: data for name, (_, data) in files.items()}
        unwritten = shared.write(contents, shared.bad)
        lost |= {files[name][0]: failure for name, failure in unwritten.items()}
    failed |= {key: lost[image] for key, image in images.items() if image in lost}
    ready = {result_name(key): key for key in rows if key not in failed}
    objects = {name: to_object(rows[key]) for name, key in ready.items()}
    unwritten = shared.write(objects, shared.bad)
    return failed | {ready[name]: failure for name, failure in unwritten.items()}


class Uploader:
    """Uploads results on a thread of its own, in the order in which they were stored.

    shared: the shared store; it is told in the end what was not uploaded.
    root, read: of the local store, which has the results; only their keys wait in memory.
    """

    def __init__(self, shared: SharedStore, root: Path, read: Read) -> None:
        self._shared, self._root, self._read = shared, root, read
        self._keys: dict[str, None] = {}
        self._uploading = 0
        self._failed: Counter[str] = Counter()
        self._given_up = ""
        self._closed = False
        self._changed = Condition()  # with a reentrant lock
        # A daemon: a process that ends without closing the store must not wait for it.
        self._thread = Thread(target=self._work, name="upload", daemon=True)

    def add(self, keys: Iterable[str]) -> None:
        """Queue results of the local store for upload."""
        with self._changed:
            if self._given_up:
                self._failed[self._given_up] += len(set(keys))
                return
            self._keys.update(dict.fromkeys(keys))
            if not self._thread.is_alive() and self._keys:
                self._thread.start()
            self._changed.notify_all()

    def flush(
        self, seconds: float | None = None, waiting: Callable[[int], None] | None = None
    ) -> None:
        """Wait until nothing is left to upload, and remark on what could not be.

        seconds: time after which the rest is left.
        waiting: called once with the number of results left, where it takes long.
        An interrupt ends the waiting, and nothing else; so does a long time without an upload.
        """
        limit = inf if seconds is None else seconds
        quiet = min(_QUIET_SECONDS, limit)

        def left() -> int:
            return len(self._keys) + self._uploading

        def wait(limit: float) -> bool:
            end = time.monotonic() + limit
            while known := left():
                most = min(_PATIENCE, end - time.monotonic())
                if not self._changed.wait_for(lambda known=known: left() != known, most):  # type: ignore[misc] # a default
                    return False
            return True

        with self._changed:
            try:
                if not wait(quiet):
                    if waiting is not None:
                        waiting(left())
                    if not wait(limit - quiet):
                        stuck = f"nothing was uploaded for {_PATIENCE / 60:.0f} minutes"
                        self._give_up(stuck if seconds is None else f"not done within {limit:g} s")
            except KeyboardInterrupt:
                self._give_up("interrupted")
            failed, self._failed = +self._failed, Counter()
        if failed:
            number = sum(failed.values())
            results = "1 result was" if number == 1 else f"{number:,} results were"
            self._shared.remark(
                f"{self._shared.named}: {results} not uploaded ({'; '.join(failed)}): "
                "they stay in the store of this run alone"
            )

    def close(self) -> None:
        """Upload the rest, and end the thread."""
        self.flush()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            with suppress(KeyboardInterrupt):
                self._thread.join(_JOIN_SECONDS)  # after giving up it may wait for a server

    def _give_up(self, why: str) -> None:
        with self._changed:
            self._given_up = self._given_up or why
            self._failed[why] += len(self._keys) + self._uploading
            self._keys.clear()
            self._uploading = 0
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._keys or self._closed or self._given_up)
                    keys = list(islice(self._keys, AT_ONCE))
                    for key in keys:
                        del self._keys[key]
                    self._uploading = len(keys)
                if not keys:
                    return
                failures, reason = self._upload(keys)
                with self._changed:
                    if not self._given_up:  # otherwise they are counted already
                        self._failed.update(failures)
                        self._uploading = 0
                        self._changed.notify_all()
                if reason:
                    self._give_up(reason)
        except BaseException:  # the run must not wait for it
            self._give_up("the thread that uploads has failed")
            raise

    def _upload(self, keys: Sequence[str]) -> tuple[list[str], str]:
        """(why each result was not uploaded, why nothing else can be)."""
        try:
            failed = upload(self._shared, self._read, self._root, keys)
            again = [key for key, failure in failed.items() if failure.transient]
            with self._changed:
                ends = bool(again) and self._changed.wait_for(
                    lambda: self._closed or self._given_up, _UPLOAD_PAUSE
                )
            if again and not ends:
                failed = {key: own for key, own in failed.items() if key not in again}
                failed |= upload(self._shared, self._read, self._root, again)
        except (CepError, sqlite3.ProgrammingError) as error:  # the local store fails, or is closed
            return [str(error)] * len(keys), str(error)
        # Other failures are those of the location, and all objects fail so.
        reasons = (f.message for f in failed.values() if f.kind not in ("absent", "unknown"))
        return [failure.message for failure in failed.values()], next(reasons, "")
