"""A shared store of objects as a run reads it: never trusted, and never waited for twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.errors import ImageError
from pytest_cepbench.store.images import verified
from pytest_cepbench.store.lookup import Row
from pytest_cepbench.store.remote.object_store import (
    FetchResult,
    ObjectStore,
    from_object,
    image_name,
    result_name,
)
from pytest_cepbench.store.rows import look

_ASK_AGAIN = 600.0
"""Seconds after which what was not there may be: others publish meanwhile."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class SharedRow:
    """A sound row. image: digest of the one that it refers to. place: where that lies."""

    row: Row
    image: str | None
    place: str


@dataclass(frozen=True)
class SharedImage:
    """An image whose pixels are those of its digest, and its file."""

    image: ImageArtifact
    data: bytes


class RemoteReader:
    """Reads one shared store. What is damaged in it is noted once, and is as if it were not there.

    note: told of damage. remark: told once where the place does not answer any more; it is not
    asked again then. bad: names of objects that are damaged.
    """

    def __init__(self, objects: ObjectStore, note: Say, remark: Say) -> None:
        self.named = objects.named
        self.bad: set[str] = set()
        self._objects = objects
        self._note = note
        self._remark = remark
        self._absent: dict[str, float] = {}
        self._lost = False

    def rows(self, keys: Iterable[str]) -> list[SharedRow]:
        """What is there, undamaged, under these keys; all are asked for at once."""
        names = {result_name(key): key for key in keys}
        sound = []
        for name, data in self._read(names).items():
            key = names[name]
            try:
                row = from_object(key, data)
            except ValueError as error:
                self._is_bad(name, f"result {key[:12]}", str(error))
                continue
            problem, image = look(row)
            if problem is None:
                sound.append(SharedRow(row, image, self.named))
            else:
                self._is_bad(name, f"result {key[:12]}", problem)
        return sound

    def image(self, digest: str) -> SharedImage | None:
        """The image, or None when it is absent or damaged."""
        name = image_name(digest)
        data = self._read([name]).get(name)
        if data is None:
            return None
        try:
            return SharedImage(verified(data, digest), data)
        except ImageError as error:
            self._is_bad(name, f"image {digest[:12]}", str(error))
            return None

    def _read(self, names: Iterable[str]) -> dict[str, bytes]:
        now = time.monotonic()
        asked = [name for name in names if name not in self.bad and not self._was_absent(name, now)]
        if not asked or self._lost:
            return {}
        fetched = self._objects.read(asked)
        if fetched.trouble is None:
            there = fetched.found.keys() | fetched.unfit.keys()
            self._absent.update((name, now) for name in asked if name not in there)
        else:
            self._lose(fetched)
        for name, why in fetched.unfit.items():
            self._is_bad(name, PurePosixPath(name).stem[:12], why)
        return dict(fetched.found)

    def _was_absent(self, name: str, now: float) -> bool:
        asked = self._absent.get(name)
        return asked is not None and now - asked < _ASK_AGAIN

    def _lose(self, fetched: FetchResult) -> None:
        if not self._lost and fetched.trouble is not None:
            self._lost = True
            self._remark(f"{self.named}: {fetched.trouble.words}; nothing of it is read any more")

    def _is_bad(self, name: str, what: str, why: str) -> None:
        if name not in self.bad:
            self.bad.add(name)
            self._note(f"{what} in {self.named}: {why}")
