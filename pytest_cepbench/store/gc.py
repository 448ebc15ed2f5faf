"""Making a store smaller: what may go by age, by size, and by what baselines need."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cepbench.store.access_log import today
from pytest_cepbench.store.images import digest_of, image_path, list_files
from pytest_cepbench.store.lookup import Read, pages
from pytest_cepbench.store.stats import Entry, entries, image_sizes
from pytest_cepbench.store.store import Store

_YOUNG_SECONDS = 3600.0  # the result of an image this young may not be stored yet

_AT_ONCE = 500


@dataclass(frozen=True)
class GcCriteria:
    """What may go; one of them at least.

    unused_for: days without use after which a result goes. max_size: bytes that may be left; what
    was used longest ago goes first. needed: models whose results stay whatever else is said, and
    none but theirs where nothing else is said; None where baselines do not matter.
    """

    unused_for: int | None = None
    max_size: int | None = None
    needed: frozenset[str] | None = None


@dataclass(frozen=True)
class Collection:
    """What goes.

    going: results. unused: images that no result refers to already. bytes: freed by both, about.
    kept, kept_bytes: results that stay, and what they need. unnamed: results whose provenance names
    no model, so that nobody can tell whether a baseline needs them; None where none was asked for.
    """

    going: tuple[Entry, ...]
    unused: tuple[str, ...]
    bytes: int
    kept: int
    kept_bytes: int
    unnamed: int | None


def choose(root: Path, read: Read, criteria: GcCriteria, *, days: bool = True) -> Collection:
    """What goes of the store in a folder. days: whether it remembers uses. Raises StoreError."""
    sizes = image_sizes(root)
    everything = list(entries(read, days=days))
    references = Counter(entry.image for entry in everything if entry.image is not None)
    unused = tuple(digest for _, digest, _ in _old_images(root) if digest not in references)
    total = sum(entry.size for entry in everything) + sum(sizes.values())
    freed = sum(sizes[digest] for digest in unused if digest in sizes)
    going = []
    for entry in _by_last_use(everything, criteria):
        if not _goes(entry, criteria, total - freed):
            continue
        going.append(entry)
        freed += entry.size
        if entry.image is not None:
            references[entry.image] -= 1
            freed += 0 if references[entry.image] else sizes.get(entry.image, 0)
    unnamed = None
    if criteria.needed is not None:
        unnamed = sum(entry.model is None for entry in everything)
    return Collection(
        going=tuple(going),
        unused=unused,
        bytes=freed,
        kept=len(everything) - len(going),
        kept_bytes=total - freed,
        unnamed=unnamed,
    )


@dataclass(frozen=True)
class GcSummary:
    """What was deleted.

    bytes: freed, about. waiting: images that nobody refers to any more and that are too young to go.
    compacted: whether the index gave its space back, which it can only while nobody else has it
    open.
    """

    bytes: int
    waiting: int
    compacted: bool


def collect(store: Store, going: Collection) -> GcSummary:
    """Delete it, beside whoever uses the store: what they miss is computed again."""
    keys = [(entry.key,) for entry in going.going]
    for start in range(0, len(keys), _AT_ONCE):
        part = keys[start : start + _AT_ONCE]
        store.index.write("DELETE FROM results WHERE key = ?", part)
        store.index.write("DELETE FROM used WHERE key = ?", part)
    suspects = {*going.unused, *(entry.image for entry in going.going if entry.image is not None)}
    suspects -= _referred_to(store.index.read)
    freed = sum(entry.size for entry in going.going)
    for path, digest, size in _old_images(store.root):
        if digest in suspects:
            path.unlink(missing_ok=True)
            freed += size
            suspects.remove(digest)
    waiting = sum(image_path(store.root, digest).exists() for digest in suspects)
    return GcSummary(freed, waiting, store.index.compact())


def _by_last_use(everything: Sequence[Entry], criteria: GcCriteria) -> list[Entry]:
    """Those that baselines do not protect, first what was used longest ago."""
    needed = criteria.needed or frozenset()
    free = [entry for entry in everything if entry.model not in needed]
    return sorted(free, key=lambda entry: (entry.day, entry.created))


def _goes(entry: Entry, criteria: GcCriteria, size: int) -> bool:
    """Whether a result that no baseline needs goes, with so many bytes left before."""
    if criteria.unused_for is None and criteria.max_size is None:
        return entry.model is not None
    old = criteria.unused_for is not None and entry.day <= today() - criteria.unused_for
    return old or (criteria.max_size is not None and size > criteria.max_size)


def _old_images(root: Path) -> Iterator[tuple[Path, str, int]]:
    """(path, digest, bytes) of images that were not written just now."""
    limit = time.time() - _YOUNG_SECONDS
    for path, status in list_files(root):
        digest = digest_of(path)
        if digest is not None and status.st_mtime < limit:
            yield path, digest, status.st_size


def _referred_to(read: Read) -> set[str]:
    found = pages(read, "CASE kind WHEN 'image' THEN CAST(payload AS TEXT) END")
    return {str(image) for page in found for (image,) in page if image is not None}
