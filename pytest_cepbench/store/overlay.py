"""Shared stores below the own one: asked for what that does not hold, and never written to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.errors import ImageError, StoreError
from pytest_cepbench.store.images import image_path, read_image_of
from pytest_cepbench.store.lookup import among, results_under
from pytest_cepbench.store.readonly import ReadonlyStore
from pytest_cepbench.store.rows import MOST_PAYLOAD
from pytest_cepbench.store.stored_result import Result


class SharedStore:
    """One shared store. What is damaged in it is noted once, and is as if it were not there.

    note: told of damage. Raises StoreError where the folder is no store that can be read.
    """

    def __init__(self, folder: Path, note: Callable[[str], None]) -> None:
        self.folder = folder
        self._note = note
        self._reader = ReadonlyStore(folder, f"--cep-shared {str(folder)!r}")
        self._bad: set[str] = set()
        self._lost = False

    def close(self) -> None:
        """Release the database."""
        self._reader.close()

    def get(self, keys: Iterable[str]) -> dict[str, Result]:
        """The results that are there, undamaged, under these keys."""
        if self._lost:
            return {}
        try:
            found, damaged = results_under(self._reader.read, keys, MOST_PAYLOAD)
        except StoreError as error:
            self._lost = True
            self._note(f"{error}; nothing of it is used any more")
            return {}
        for key in damaged:
            self._note_once(key, f"result {key[:12]} in {self.folder}: damaged")
        return found

    def provenance(self, keys: Iterable[str]) -> dict[str, str]:
        """How the results under these keys came about; see `Store.provenance`."""
        if self._lost:
            return {}
        query = "SELECT key, provenance FROM results WHERE key"
        try:
            return {str(key): str(said) for key, said in among(self._reader.read, query, keys)}
        except StoreError:  # it is told of when results are asked for
            return {}

    def get_image(self, digest: str) -> ImageArtifact | None:
        """The image, or None when it is absent or damaged."""
        if digest in self._bad:
            return None
        try:
            return read_image_of(self.folder, digest)
        except ImageError as error:
            self._note_once(digest, f"image {digest[:12]} in {self.folder}: {error}")
            return None

    def _note_once(self, name: str, what: str) -> None:
        if name not in self._bad:
            self._bad.add(name)
            self._note(what)


class Overlay:
    """All shared stores, asked in their order.

    root: of the own store, which must not be among them.
    """

    def __init__(self, root: Path, folders: Sequence[Path], note: Callable[[str], None]) -> None:
        self._refused: set[str] = set()
        with ExitStack() as opened:
            self._layers: list[SharedStore] = []
            for folder in folders:
                if folder.resolve() == root.resolve():
                    msg = f"--cep-shared {str(folder)!r} is the store itself (--cep-store): leave it out"
                    raise StoreError(msg)
                layer = SharedStore(folder, note)
                opened.callback(layer.close)
                self._layers.append(layer)
            self._opened = opened.pop_all()

    def __bool__(self) -> bool:
        return bool(self._layers)

    def close(self) -> None:
        """Release all databases."""
        self._opened.close()

    def get(self, keys: Iterable[str]) -> dict[str, Result]:
        """What the first that has it holds under each key, without those that were refused."""
        found: dict[str, Result] = {}
        wanted = [key for key in keys if key not in self._refused]
        for layer in self._layers:
            found |= layer.get([key for key in wanted if key not in found])
        return found

    def provenance(self, keys: Iterable[str]) -> dict[str, str]:
        """How the results under these keys came about, as the first says that has them."""
        found: dict[str, str] = {}
        wanted = set(keys) - self._refused
        for layer in self._layers:
            found |= layer.provenance(wanted - found.keys())
        return found

    def refuse(self, keys: Iterable[str]) -> None:
        """Give nothing under these keys any more: it turned out to be of no use."""
        if self._layers:
            self._refused.update(keys)

    def get_image(self, digest: str) -> ImageArtifact | None:
        """The image, from the first that has it undamaged."""
        found = (layer.get_image(digest) for layer in self._layers)
        return next((image for image in found if image is not None), None)

    def image_path(self, digest: str) -> Path | None:
        """Where the image lies, in the first that has it."""
        places = (image_path(layer.folder, digest) for layer in self._layers)
        return next((place for place in places if place.exists()), None)
