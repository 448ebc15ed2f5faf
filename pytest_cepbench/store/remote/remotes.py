"""All shared stores of objects that a run names, as its own store sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from pytest_cepbench.store.lookup import Read
from pytest_cepbench.store.remote.location import open_objects
from pytest_cepbench.store.remote.object_store import ObjectStore, result_name
from pytest_cepbench.store.remote.reader import RemoteReader, Say, SharedImage, SharedRow
from pytest_cepbench.store.remote.uploader import Uploader

Place = str | Path
"""A URL, or a folder."""


class Remotes:
    """Stores that are read, in their order, and the one that is written to as well, last.

    root, read: of the own store. shared, publish: the places. writing: whether anything is
    published; without, a place to publish to that holds nothing yet is left out. note, remark:
    told of damage, and of places that fail. Raises CepError kinds.
    """

    def __init__(
        self,
        root: Path,
        read: Read,
        shared: Sequence[Place],
        publish: Place | None,
        say: tuple[Say, Say],
        *,
        writing: bool,
    ) -> None:
        note, remark = say
        self._readers: list[RemoteReader] = []
        self._publisher: Uploader | None = None
        self._overwritten: set[str] = set()
        self._refused: set[str] = set()
        with ExitStack() as opened:

            def open_one(
                place: Place, source: str, *, writing: bool, fine: bool
            ) -> ObjectStore | None:
                objects = open_objects(place, source, writing=writing, absent_is_fine=fine)
                if objects is not None:
                    opened.callback(objects.close)
                    self._readers.append(RemoteReader(objects, note, remark))
                return objects

            for place in shared:
                if place != publish:
                    open_one(place, "--cep-shared", writing=False, fine=False)
            if publish is not None:
                target = open_one(publish, "--cep-publish", writing=writing, fine=not writing)
                if target is not None and writing:
                    replace = self._readers[-1].bad
                    self._overwritten = replace
                    self._publisher = Uploader(target, read, root, replace, remark)
                    opened.callback(self._publisher.close)
            self._opened = opened.pop_all()

    def __bool__(self) -> bool:
        return bool(self._readers)

    def close(self) -> None:
        """Upload what is left, and release all connections."""
        self._opened.close()

    def rows(self, keys: Iterable[str]) -> list[SharedRow]:
        """What the first that has it holds under each key."""
        found: list[SharedRow] = []
        wanted = {key for key in keys if key not in self._refused}
        for reader in self._readers:
            rows = reader.rows(wanted)
            found += rows
            wanted -= {one.row[0] for one in rows}
        return found

    def image(self, digest: str) -> SharedImage | None:
        """The image, from the first that has it undamaged."""
        found = (reader.image(digest) for reader in self._readers)
        return next((image for image in found if image is not None), None)

    def refuse(self, keys: Iterable[str]) -> None:
        """Read nothing under these keys any more, and write over it: it turned out to be of no use."""
        keys = list(keys)
        self._refused.update(keys)
        self._overwritten.update(result_name(key) for key in keys)

    def publish(self, keys: Iterable[str]) -> None:
        """Have these uploaded, where anything is."""
        if self._publisher is not None:
            self._publisher.add(keys)

    def flush(self, seconds: float | None, waiting: Callable[[int], None] | None) -> None:
        """Wait until everything is uploaded; see `Publisher.flush`."""
        if self._publisher is not None:
            self._publisher.flush(seconds, waiting)
