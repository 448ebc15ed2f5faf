"""Bringing a whole store to a shared one of objects, and back; and looking at all of a shared one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePosixPath

from pytest_cepbench.errors import StoreError
from pytest_cepbench.store.database import explained
from pytest_cepbench.store.images import SUFFIX, image_path, write_image
from pytest_cepbench.store.lookup import pages
from pytest_cepbench.store.merge import MergeSummary
from pytest_cepbench.store.readonly import INDEX, ReadonlyStore
from pytest_cepbench.store.remote.object_store import AT_ONCE, IMAGES, RESULTS, ObjectStore
from pytest_cepbench.store.remote.reader import RemoteReader
from pytest_cepbench.store.remote.uploader import upload
from pytest_cepbench.store.rows import dated
from pytest_cepbench.store.store import INSERT, Store, images_away

_DIGEST = re.compile(r"[0-9a-f]{64}")

_THREADS = 16  # images that are fetched and decoded at once


@dataclass
class PushSummary:
    """What became of a local store's results. there: how many were uploaded before. failed: why some
    were not, by key.
    """

    results: int = 0
    there: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def push(reader: ReadonlyStore, objects: ObjectStore) -> PushSummary:
    """Upload what a local store has and a shared one lacks.

    Raises StoreError where either cannot be used; what was uploaded stays.
    """
    pushed = PushSummary()
    there = _digests(objects.list(RESULTS))
    for page in pages(reader.read, "key", most=AT_ONCE):
        lacking = [str(key) for (key,) in page if key not in there]
        failed = upload(objects, reader.read, reader.folder, lacking)
        pushed.there += len(page) - len(lacking)
        pushed.results += len(lacking) - len(failed)
        pushed.failed |= {key: trouble.words for key, trouble in failed.items()}
        for trouble in failed.values():
            if trouble.everywhere:
                msg = (
                    f"{objects.named}: {trouble.words}; {pushed.results:,} results were uploaded, the "
                    "same command again uploads the rest"
                )
                raise StoreError(msg)
    return pushed


def pull(store: Store, objects: ObjectStore) -> MergeSummary:
    """Take over what a shared store has and the local one lacks, with images.

    Raises StoreError where either cannot be used; what was taken stays.
    """
    merged = MergeSummary()
    with _reading(objects) as (reader, damaged), ThreadPoolExecutor(_THREADS) as threads:

        def fetch(digest: str) -> bool:
            """Whether the image is here now."""
            if image_path(store.root, digest).exists():
                return True
            shared = reader.image(digest)
            if shared is not None:
                with explained(store.root / INDEX):
                    write_image(store.root, digest, shared.data)
                merged.images += 1
            return shared is not None

        for keys in _parts(_digests(objects.list(RESULTS)), AT_ONCE):
            known = store.has(keys)
            shared = reader.rows(key for key in keys if key not in known)
            digests = {one.image for one in shared if one.image is not None}
            here = dict(zip(digests, threads.map(fetch, digests), strict=True))
            whole = [one.row for one in shared if one.image is None or here[one.image]]
            store.index.write(INSERT, [dated(row) for row in whole])
            merged.there += len(known)
            merged.results += len(whole)
            merged.refused["its image is not there"] += len(shared) - len(whole)
        list(threads.map(fetch, images_away(store.index.read)))
        merged.refused["damaged"] += len(damaged)
    merged.refused = +merged.refused
    return merged


@dataclass
class RemoteReport:
    """What is in a shared store. bytes: of all objects. damaged: what, and why. lost: keys of results
    whose image is not there.
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
        for part in _parts(keys, AT_ONCE):
            rows = reader.rows(part)
            lost += [str(one.row[0]) for one in rows if one.image and one.image not in digests]
        for part in _parts(digests, AT_ONCE):
            list(threads.map(reader.image, part))
    size = sum(results.values()) + sum(images.values())
    return RemoteReport(len(keys), len(digests), size, tuple(damaged), tuple(lost))


@contextmanager
def _reading(objects: ObjectStore) -> Iterator[tuple[RemoteReader, list[str]]]:
    """A reader, and what it finds damaged. Raises StoreError where the place stopped answering."""
    damaged: list[str] = []
    lost: list[str] = []
    yield RemoteReader(objects, damaged.append, lost.append), damaged
    if lost:
        raise StoreError(lost[0])


def _digests(names: Iterable[str]) -> dict[str, None]:
    """What objects are named by: keys of results, digests of images."""
    last = (PurePosixPath(name).name.removesuffix(SUFFIX) for name in names)
    return dict.fromkeys(name for name in last if _DIGEST.fullmatch(name))


def _parts(names: Iterable[str], most: int) -> Iterator[list[str]]:
    rest = iter(names)
    while part := list(islice(rest, most)):
        yield part
