"""Writing what a run computes into a shared store, beside the run: nobody waits for it but the end."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Condition, Thread

from pytest_cepbench.errors import CepError
from pytest_cepbench.files import read_regular
from pytest_cepbench.store.images import MOST_BYTES, image_path
from pytest_cepbench.store.lookup import Read, Row, among
from pytest_cepbench.store.remote.object_store import (
    AT_ONCE,
    ObjectStore,
    image_name,
    result_name,
    to_object,
)
from pytest_cepbench.store.remote.remote_errors import StoreFailure
from pytest_cepbench.store.rows import look

_IMAGES_AT_ONCE = 16  # files in memory

_MOST_WAITING = 200_000  # keys, some 30 MB of them; a run that is further ahead than that waits

_PAUSE = 5.0  # seconds before what may have passed is tried again

_QUIET_SECONDS = 2.0

_PATIENCE = (
    1800.0  # seconds without anything uploaded: some dozens of objects, each tried twice, take less
)

_STUCK = f"nothing was uploaded for {_PATIENCE / 60:.0f} minutes"


def upload(
    objects: ObjectStore, read: Read, root: Path, keys: Sequence[str], replace: Container[str] = ()
) -> dict[str, StoreFailure]:
    """Write results, each after the image that it names, if they are not there yet.

    read, root: of the local store. keys: a few dozen. replace: names of objects written over.
    Returns what could not be written, by key. Raises StoreError where the local store fails.
    """
    rows: dict[str, Row] = {}
    images: dict[str, str] = {}
    query = "SELECT key, kind, payload, provenance, created, seal FROM results WHERE key"
    for row in among(read, query, keys):
        problem, image = look(row)
        if problem is not None:
            continue  # it is computed again when it is needed, and then published
        rows[row[0]] = row
        if image is not None:
            images[row[0]] = image
    lost = _upload_images(objects, root, sorted(set(images.values())), replace)
    failed = {key: lost[image] for key, image in images.items() if image in lost}
    ready = {result_name(key): to_object(row) for key, row in rows.items() if key not in failed}
    written = objects.write(ready, replace)
    return failed | {key: t for key in rows if (t := written.failed.get(result_name(key)))}


def _upload_images(
    objects: ObjectStore, root: Path, digests: Iterable[str], replace: Container[str]
) -> dict[str, StoreFailure]:
    """What could not be written, by digest."""
    failed: dict[str, StoreFailure] = {}
    rest = iter(digests)
    while part := list(islice(rest, _IMAGES_AT_ONCE)):
        files: dict[str, bytes] = {}
        for digest in part:
            try:
                files[image_name(digest)] = read_regular(image_path(root, digest), MOST_BYTES)
            except OSError:
                failed[digest] = StoreFailure("absent", "the image is not in the local store")
        written = objects.write(files, replace)
        failed |= {d: t for d in part if (t := written.failed.get(image_name(d)))}
    return failed


class Uploader:
    """Uploads results on a thread of its own, in the order in which they were stored.

    read, root: of the local store, where the results are; only their keys wait in memory. replace:
    names of objects that are written over, since they are damaged. remark: told in the end what
    was not uploaded, and how it can be.
    """

    def __init__(
        self,
        objects: ObjectStore,
        read: Read,
        root: Path,
        replace: Container[str],
        remark: Callable[[str], None],
    ) -> None:
        self._objects = objects
        self._read = read
        self._root = root
        self._replace = replace
        self._remark = remark
        self._keys: dict[str, None] = {}
        self._failed: Counter[str] = Counter()
        self._given_up: str | None = None
        self._closing = False
        self._busy = 0
        self._moved = 0
        self._thread: Thread | None = None
        self._changed = Condition()  # its lock may be taken again by the thread that has it

    def add(self, keys: Iterable[str]) -> None:
        """Have these uploaded. They are in the local store."""
        with self._changed:
            if not self._wait_moving(
                lambda: len(self._keys) < _MOST_WAITING or bool(self._given_up)
            ):
                self._give_up(_STUCK)
            if self._given_up is not None:
                self._failed[self._given_up] += len(set(keys))
                return
            self._keys.update(dict.fromkeys(keys))
            if self._thread is None and self._keys:
                # A daemon: a process that ends without closing the store must not wait for a server.
                self._thread = Thread(target=self._work, name="publish", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(
        self, seconds: float | None = None, waiting: Callable[[int], None] | None = None
    ) -> None:
        """Wait until nothing is left to upload, and remark on what could not be.

        seconds: after which the rest is left. waiting: told once how many are left, where it takes
        long. An interrupt ends the waiting, and nothing else.
        """
        try:
            self._wait(seconds, waiting)
        except KeyboardInterrupt:
            self._give_up("interrupted")
        with self._changed:
            failed, self._failed = +self._failed, Counter()
        if failed:
            number = sum(failed.values())
            self._remark(
                f"{self._objects.named}: {number:,} {'result was' if number == 1 else 'results were'} "
                f"not uploaded ({'; '.join(failed)}): cepbench store push does it later"
            )

    def close(self) -> None:
        """Upload the rest, and end the thread."""
        self.flush()
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            with suppress(KeyboardInterrupt):
                self._thread.join(1.0)  # where it was given up it may be waiting for a server still

    def _wait(self, seconds: float | None, waiting: Callable[[int], None] | None) -> None:
        def done() -> bool:
            return not self._keys and not self._busy

        start = time.monotonic()
        with self._changed:
            quiet = _QUIET_SECONDS if seconds is None else min(_QUIET_SECONDS, seconds)
            if self._changed.wait_for(done, quiet):
                return
            if waiting is not None:
                waiting(len(self._keys) + self._busy)
            if seconds is None:
                if not self._wait_moving(done):
                    self._give_up(_STUCK)
                return
            if self._changed.wait_for(done, seconds - (time.monotonic() - start)):
                return
        self._give_up(f"not done within {seconds:g} s")

    def _wait_moving(self, done: Callable[[], bool]) -> bool:
        """Wait, the condition held; False where the thread has got on with nothing for long."""
        while not done():
            moved = self._moved
            if not self._changed.wait_for(lambda: done() or self._moved != moved, _PATIENCE):  # noqa: B023 - asked here only
                return False
        return True

    def _give_up(self, why: str) -> None:
        with self._changed:
            if self._given_up is None:
                self._given_up = why
            self._failed[why] += len(self._keys) + self._busy
            self._keys.clear()
            self._busy = 0
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while keys := self._take():
                failed, lost = self._upload(keys)
                with self._changed:
                    if self._given_up is None:  # or they are counted
                        self._failed.update(failed.values())
                        self._busy = 0
                        self._moved += 1
                        self._changed.notify_all()
                if lost is not None:
                    self._give_up(lost)
        except BaseException:
            self._give_up("the thread that uploads has failed")  # nobody may wait for it
            raise

    def _take(self) -> list[str]:
        """The next keys; none when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._keys or self._closing or self._given_up)
            keys = list(islice(self._keys, AT_ONCE))
            for key in keys:
                del self._keys[key]
            self._busy = len(keys)
            self._moved += 1
            self._changed.notify_all()
            return keys

    def _upload(self, keys: list[str]) -> tuple[dict[str, str], str | None]:
        """(why what was not uploaded, by key; why nothing else can be)."""
        try:
            failed = upload(self._objects, self._read, self._root, keys, self._replace)
            again = [key for key, trouble in failed.items() if trouble.passing]
            if again and not self._stops_within(_PAUSE):
                failed = {key: trouble for key, trouble in failed.items() if not trouble.passing}
                failed |= upload(self._objects, self._read, self._root, again, self._replace)
        except (CepError, sqlite3.ProgrammingError) as error:  # the local store fails, or is closed
            return dict.fromkeys(keys, str(error)), str(error)
        lost = next((t.words for t in failed.values() if t.everywhere), None)
        return {key: trouble.words for key, trouble in failed.items()}, lost

    def _stops_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: self._closing or self._given_up is not None, seconds
            )
