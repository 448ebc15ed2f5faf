"""The remote stores of a run: untrusted ones that it reads, and the one that it publishes to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.errors import ImageError
from pytest_cepbench.store.images import verify_image
from pytest_cepbench.store.remote.location import open_objects
from pytest_cepbench.store.remote.object_store import (
    ObjectStore,
    StoreFailure,
    from_object,
    image_name,
    result_name,
)
from pytest_cepbench.store.remote.uploader import Uploader
from pytest_cepbench.store.rows import Read, Row, check_row

_ABSENT_SECONDS = 600.0
"""Time after which an absent object is looked for again: other runs publish meanwhile."""

Location = str | Path
"""A URL, or a folder."""

Log = Callable[[str], None]
"""Receives one line."""


@dataclass(frozen=True)
class SharedRow:
    """A sound row from a remote store.

    row: the row.
    image: digest of the image that it refers to.
    source: the store, for notes.
    """

    row: Row
    image: str | None
    source: str


@dataclass(frozen=True)
class SharedImage:
    """A sound image from a remote store.

    image: its pixels.
    data: its file.
    """

    image: ImageArtifact
    data: bytes


class RemoteReader:
    """Reads one remote store. Damage in it is noted once, and looks like absence.

    objects: the store.
    note: called with a line about damage.
    remark: called once when the store fails; it is not read any more then.

    bad: names of damaged objects.
    """

    def __init__(self, objects: ObjectStore, note: Log, remark: Log) -> None:
        self.named = objects.named
        self.bad: set[str] = set()
        self._objects = objects
        self._note = note
        self._remark = remark
        self._absent: dict[str, float] = {}  # when each was last looked for, by name
        self._failed = False

    def rows(self, keys: Iterable[str]) -> list[SharedRow]:
        """The undamaged rows under these keys, read at once."""
        names = {result_name(key): key for key in keys}
        sound = []
        for name, data in self._read(names).items():
            key = names[name]
            try:
                row = from_object(key, data)
            except ValueError as error:
                self._add_bad(name, f"result {key[:12]}", str(error))
                continue
            problem, image = check_row(row)
            if problem is None:
                sound.append(SharedRow(row, image, self.named))
            else:
                self._add_bad(name, f"result {key[:12]}", problem)
        return sound

    def image(self, digest: str) -> SharedImage | None:
        """The image, or None when it is absent or damaged."""
        name = image_name(digest)
        data = self._read([name]).get(name)
        if data is None:
            return None
        try:
            return SharedImage(verify_image(data, digest), data)
        except ImageError as error:
            self._add_bad(name, f"image {digest[:12]}", str(error))
            return None

    def _read(self, names: Iterable[str]) -> dict[str, bytes]:
        now = time.monotonic()
        wanted = [
            name for name in names if name not in self.bad and not self._was_absent(name, now)
        ]
        if not wanted or self._failed:
            return {}
        fetched = self._objects.read(wanted)
        if fetched.failure is None:
            present = fetched.objects.keys() | fetched.unfit.keys()
            self._absent.update((name, now) for name in wanted if name not in present)
        else:
            self._fail(fetched.failure)
        for name, why in fetched.unfit.items():
            self._add_bad(name, PurePosixPath(name).stem[:12], why)
        return dict(fetched.objects)

    def _was_absent(self, name: str, now: float) -> bool:
        checked = self._absent.get(name)
        return checked is not None and now - checked < _ABSENT_SECONDS

    def _fail(self, failure: StoreFailure) -> None:
        if not self._failed:
            self._failed = True
            self._remark(f"{self.named}: {failure.message}; this run does not read it any more")

    def _add_bad(self, name: str, what: str, why: str) -> None:
        if name not in self.bad:
            self.bad.add(name)
            self._note(f"{what} in {self.named}: {why}")


class Remotes:
    """Stores that are read, in their order, and last the one that is also published to.

    root, read: of the run's own store.
    shared: locations to read.
    publish: location to publish to.
    logs: called with a line about damage, and with a line about a store that fails.
    writing: whether anything is published; without it, a location to publish to that holds no store
        yet is left out.
    Raises CepError kinds.
    """

    def __init__(
        self,
        root: Path,
        read: Read,
        shared: Sequence[Location],
        publish: Location | None,
        logs: tuple[Log, Log],
        *,
        writing: bool,
    ) -> None:
        note, remark = logs
        self._readers: list[RemoteReader] = []
        self._uploader: Uploader | None = None
        self._overwritten: set[str] = set()
        self._refused: set[str] = set()
        read_only = [location for location in shared if location != publish]
        with ExitStack() as opened:
            for location in read_only if publish is None else [*read_only, publish]:
                source = "--cep-publish" if location == publish else "--cep-shared"
                writes, optional = location == publish and writing, location == publish
                objects = open_objects(location, source, writing=writes, optional=optional)
                if objects is None:
                    continue
                opened.callback(objects.close)
                self._readers.append(RemoteReader(objects, note, remark))
                if writes:
                    self._overwritten = self._readers[-1].bad
                    self._uploader = Uploader(objects, read, root, self._overwritten, remark)
                    opened.callback(self._uploader.close)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Upload what is left, and close all connections."""
        self._opened.close()

    def rows(self, keys: Iterable[str]) -> list[SharedRow]:
        """The row under each key in the first store that has it, refused ones left out."""
        rows: list[SharedRow] = []
        wanted = {key for key in keys if key not in self._refused}
        for reader in self._readers:
            shared = reader.rows(wanted)
            rows += shared
            wanted -= {row.row[0] for row in shared}
        return rows

    def image(self, digest: str) -> SharedImage | None:
        """The image, from the first store that has it undamaged."""
        images = (reader.image(digest) for reader in self._readers)
        return next((image for image in images if image is not None), None)

    def refuse(self, keys: Iterable[str]) -> None:
        """Return nothing under these keys any more, and overwrite them: they are unusable."""
        keys = list(keys)
        self._refused.update(keys)
        self._overwritten.update(result_name(key) for key in keys)

    def publish(self, keys: Iterable[str]) -> None:
        """Upload these results, where there is a location to publish to."""
        if self._uploader is not None:
            self._uploader.add(keys)

    def flush(self, seconds: float | None, waiting: Callable[[int], None] | None) -> None:
        """Wait until everything is uploaded; see `Uploader.flush`."""
        if self._uploader is not None:
            self._uploader.flush(seconds, waiting)
