"""Garbage collection of a store: by age, by size, and by what baselines need."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cepbench.store.images import digest_of, image_path, list_files
from pytest_cepbench.store.rows import Read, batches, pages
from pytest_cepbench.store.stats import Entry, entries, image_sizes
from pytest_cepbench.store.store import Store
from pytest_cepbench.store.tables import today

_YOUNG_SECONDS = 3600.0  # the result of an image this young may not be stored yet

_PART = 500  # keys of one transaction


@dataclass(frozen=True)
class GcCriteria:
    """Rules for what is deleted; at least one of them is given.

    unused_for: days without use after which a result is deleted.
    max_size: bytes to be left; results are deleted in the order of their last use.
    needed: models whose results always stay; without another rule, the results of all other models
        are deleted. None where baselines do not matter.
    accepted: keys of results that always stay, whatever model their provenance names: answers that
        were accepted, which no run makes again.
    """

    unused_for: int | None = None
    max_size: int | None = None
    needed: frozenset[str] | None = None
    accepted: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Collection:
    """What is to be deleted.

    entries: results.
    unused: digests of images that no result refers to.
    bytes: freed by both, about.
    kept, kept_bytes: results that stay, and the size that they need.
    unnamed: results whose provenance names no model, so that it is unknown whether a baseline needs
        them; None where baselines do not matter.
    """

    entries: tuple[Entry, ...]
    unused: tuple[str, ...]
    bytes: int
    kept: int
    kept_bytes: int
    unnamed: int | None


def choose(root: Path, read: Read, criteria: GcCriteria, *, days: bool = True) -> Collection:
    """Select what is to be deleted from the store in a folder; nothing is deleted.

    days: whether the store has the table of uses.
    Raises StoreError.
    """
    sizes = image_sizes(root)
    stored = list(entries(read, days=days))
    references = Counter(entry.image for entry in stored if entry.image is not None)
    unused = tuple(digest for _, digest, _ in _old_images(root) if digest not in references)
    total = sum(entry.size for entry in stored) + sum(sizes.values())
    freed = sum(sizes[digest] for digest in unused if digest in sizes)
    chosen = []
    for entry in _by_last_use(stored, criteria):
        if not _is_chosen(entry, criteria, total - freed):
            continue
        chosen.append(entry)
        freed += entry.size
        if entry.image is not None:
            references[entry.image] -= 1
            freed += 0 if references[entry.image] else sizes.get(entry.image, 0)
    unnamed = None
    if criteria.needed is not None:
        unnamed = sum(e.model is None and e.key not in criteria.accepted for e in stored)
    return Collection(
        entries=tuple(chosen),
        unused=unused,
        bytes=freed,
        kept=len(stored) - len(chosen),
        kept_bytes=total - freed,
        unnamed=unnamed,
    )


@dataclass(frozen=True)
class GcSummary:
    """Counts of a collection.

    bytes: freed, about.
    waiting: images that no result refers to and that are too young to be deleted.
    compacted: whether the index gave its space back to the disk, which it can only while no other
        process has it open.
    """

    bytes: int
    waiting: int
    compacted: bool


def collect(store: Store, collection: Collection) -> GcSummary:
    """Delete it. Other processes may use the store meanwhile and compute what they miss again."""
    for part in batches([(entry.key,) for entry in collection.entries], _PART):
        store.index.write("DELETE FROM results WHERE key = ?", part)
        store.index.write("DELETE FROM used WHERE key = ?", part)
    deleted = collection.entries
    images = {*collection.unused, *(entry.image for entry in deleted if entry.image is not None)}
    images -= _referenced_images(store.index.read)
    freed = sum(entry.size for entry in deleted)
    for path, digest, size in _old_images(store.root):
        if digest in images:
            path.unlink(missing_ok=True)
            freed += size
            images.remove(digest)
    waiting = sum(image_path(store.root, digest).exists() for digest in images)
    return GcSummary(freed, waiting, store.index.compact())


def _by_last_use(stored: Sequence[Entry], criteria: GcCriteria) -> list[Entry]:
    """Results that no baseline needs, in the order of their last use."""
    needed = criteria.needed or frozenset()
    free = [e for e in stored if e.model not in needed and e.key not in criteria.accepted]
    return sorted(free, key=lambda entry: (entry.day, entry.created))


def _is_chosen(entry: Entry, criteria: GcCriteria, size: int) -> bool:
    """Whether a result that no baseline needs is deleted. size: bytes of the store before that."""
    if criteria.unused_for is None and criteria.max_size is None:
        return entry.model is not None
    old = criteria.unused_for is not None and entry.day <= today() - criteria.unused_for
    return old or (criteria.max_size is not None and size > criteria.max_size)


def _old_images(root: Path) -> Iterator[tuple[Path, str, int]]:
    """(path, digest, bytes) of images that were not written within the last hour."""
    limit = time.time() - _YOUNG_SECONDS
    for path, status in list_files(root):
        digest = digest_of(path)
        if digest is not None and status.st_mtime < limit:
            yield path, digest, status.st_size


def _referenced_images(read: Read) -> set[str]:
    images = pages(read, "CASE kind WHEN 'image' THEN CAST(payload AS TEXT) END")
    return {str(image) for page in images for (image,) in page if image is not None}
