"""A whole shared store: taken over into a local one, or verified."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from pytest_cepbench.errors import StoreError
from pytest_cepbench.store.artifact_files import SUFFIXES, has_artifact, write_artifact
from pytest_cepbench.store.database import INDEX, store_errors
from pytest_cepbench.store.remote.object_store import AT_ONCE, IMAGES, RESULTS, ObjectStore
from pytest_cepbench.store.remote.remotes import RemoteReader
from pytest_cepbench.store.rows import batches, dated, remote_artifacts
from pytest_cepbench.store.store import Store

_DIGEST = re.compile(r"[0-9a-f]{64}")

_THREADS = 16  # that fetch and decode images


@dataclass
class PullSummary:
    """Counts of a pull.

    results, images: taken over.
    present: keys that had a result already, which stays.
    refused: results that were not taken over, by the reason.
    """

    results: int = 0
    images: int = 0
    present: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def pull(store: Store, objects: ObjectStore) -> PullSummary:
    """Download what a shared store has and the local one lacks, with images.

    Raises StoreError where either cannot be used; what was downloaded before stays.
    """
    summary = PullSummary()
    taken: list[str] = []  # digests
    with _reading(objects) as (reader, damaged), ThreadPoolExecutor(_THREADS) as threads:

        def fetch(digest: str) -> bool:
            """Download an image; False where it is not available."""
            if has_artifact(store.root, digest):
                return True
            shared = reader.artifact(digest)
            if shared is not None:
                with store_errors(store.root / INDEX):
                    write_artifact(store.root, *shared)
                taken.append(digest)
            return shared is not None

        for keys in batches(_digests(objects.list(RESULTS)), AT_ONCE):
            known = store.has(keys)
            shared = reader.rows(key for key in keys if key not in known)
            digests = {image for _, image in shared if image is not None}
            fetched = dict(zip(digests, threads.map(fetch, digests), strict=True))
            whole = [row for row, image in shared if image is None or fetched[image]]
            store.index.add([dated(row) for row in whole])
            summary.present += len(known)
            summary.results += len(whole)
            summary.refused["its file is not there"] += len(shared) - len(whole)
        list(threads.map(fetch, remote_artifacts(store.index.read)))
        summary.refused["damaged"] += len(damaged)
    summary.images, summary.refused = len(taken), +summary.refused
    return summary


@dataclass
class RemoteReport:
    """Contents of a shared store, and what is wrong with them.

    results, images: their numbers.
    bytes: of all objects.
    damaged: a line for each damaged object.
    lost: keys of results whose image is not there.
    """

    results: int
    images: int
    bytes: int
    damaged: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged or missing."""
        return not (self.damaged or self.lost)


def inspect_objects(objects: ObjectStore) -> RemoteReport:
    """Read all of a shared store: every result, every pixel. Raises StoreError."""
    results, images = objects.list(RESULTS), objects.list(IMAGES)
    keys, digests = _digests(results), _digests(images)
    lost: list[str] = []
    with _reading(objects) as (reader, damaged), ThreadPoolExecutor(_THREADS) as threads:
        for part in batches(keys, AT_ONCE):
            rows = reader.rows(part)
            lost += [str(row[0]) for row, image in rows if image and image not in digests]
        for part in batches(digests, AT_ONCE):
            list(threads.map(reader.artifact, part))
    size = sum(results.values()) + sum(images.values())
    return RemoteReport(len(keys), len(digests), size, tuple(damaged), tuple(lost))


@contextmanager
def _reading(objects: ObjectStore) -> Iterator[tuple[RemoteReader, list[str]]]:
    """A reader, and the damage that it finds. Raises StoreError where the store stops answering."""
    damaged: list[str] = []
    failures: list[str] = []
    yield RemoteReader(objects, damaged.append, failures.append), damaged
    if failures:
        raise StoreError(failures[0])


def _digests(names: Iterable[str]) -> dict[str, None]:
    """Keys of results, or digests of images, from the names of objects."""
    paths = map(PurePosixPath, names)
    last = (path.stem for path in paths if path.suffix in ("", *SUFFIXES))
    return dict.fromkeys(name for name in last if _DIGEST.fullmatch(name))
