"""Upkeep of a whole store: statistics, garbage collection, verification and repair."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from sys import intern

from pytest_cepbench.errors import ArtifactError, DamagedIndexError
from pytest_cepbench.store.artifact_files import (
    artifact_path,
    find_artifact,
    list_files,
    load_artifact,
)
from pytest_cepbench.store.rows import (
    DAY_SECONDS,
    REFERENCE,
    WITH_PROVENANCE,
    ArtifactRef,
    Read,
    batches,
    is_sealed,
    packed,
    pages,
    provenance_id,
    remote_artifacts,
    seal_stamp,
    today,
    unpacked,
    unseal,
)
from pytest_cepbench.store.store import Store

_LENGTH = "(ifnull(length(payload), 0) + 2 * length(key) + 80)"


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A result without its content.

    key: of its step.
    kind: text, image, vector, boxes or failure.
    model: the model in its provenance, the first 16 digits of a fingerprint; None without one.
    size: its share of the index, in bytes.
    image: digest of the image that it refers to.
    created: when it was stored, seconds since the epoch.
    day: of its last use, days since the epoch.
    """

    key: str
    kind: str
    model: str | None
    size: int
    image: str | None
    created: float
    day: int


def entries(read: Read) -> Iterator[StoredEntry]:
    """Every result. Raises StoreError."""
    stored = f"CAST(ifnull(CAST(created AS REAL), 0) / {DAY_SECONDS} AS INTEGER)"
    day = f"max({stored}, CAST(ifnull(used.day, 0) AS INTEGER))"
    lengths = f"SELECT total({_LENGTH}) FROM results"  # noqa: S608 - columns, ours
    without_free_pages = (
        "SELECT (page_count - freelist_count) * page_size "
        "FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    )
    rate = read(without_free_pages, ())[0][0] / max(read(lengths, ())[0][0], 1)
    columns = f"key, kind, text, {_LENGTH}, {REFERENCE}, ifnull(CAST(created AS REAL), 0), {day}"
    for page in pages(read, columns, f"{WITH_PROVENANCE} LEFT JOIN used ON used.id = results.id"):
        for key, kind, text, size, image, created, used in page:
            model, share = model_of(str(text)), round(size * rate)
            yield StoredEntry(unpacked(key), intern(str(kind)), model, share, image, created, used)


@lru_cache(maxsize=4096)
def model_of(provenance: str) -> str | None:
    """The model in a provenance, or None."""
    try:
        model = json.loads(provenance)["model"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None  # provenance has no influence on results, so no seal covers it
    return model if isinstance(model, str) else None


def models_in(read: Read, texts: Sequence[str] = ()) -> set[str]:
    """All models in the provenance of results. texts: of those alone that are one of these."""
    of_texts = f"WHERE kind = 'text' AND payload IN ({', '.join('?' * len(texts))})"
    used = f"SELECT provenance FROM results {of_texts if texts else ''}"  # noqa: S608 - question marks
    query = f"SELECT text FROM provenances WHERE id IN ({used})"  # noqa: S608 - ours
    rows = read(query, [text.encode() for text in texts])
    models = {model_of(str(provenance)) for (provenance,) in rows}
    return {model for model in models if model is not None}


@dataclass
class StoreShare:
    """Results of one kind or one model.

    results: their number.
    bytes: in the index and of their images; an image of several results is counted for each.
    used: day of the last use, days since the epoch.
    """

    results: int = 0
    bytes: int = 0
    used: int = -1


def count(
    stored: Iterable[StoredEntry], sizes: Mapping[str, int]
) -> tuple[dict[str, StoreShare], dict[str, StoreShare]]:
    """(shares by kind of result, shares by model, "" for results whose provenance names none).

    sizes: bytes of images by digest.
    """
    kinds: defaultdict[str, StoreShare] = defaultdict(StoreShare)
    models: defaultdict[str, StoreShare] = defaultdict(StoreShare)
    for entry in stored:
        for share in (kinds[entry.kind], models[entry.model or ""]):
            share.results += 1
            share.bytes += entry.size + sizes.get(entry.image or "", 0)
            share.used = max(share.used, entry.day)
    return dict(sorted(kinds.items())), dict(sorted(models.items()))


def image_sizes(root: Path) -> dict[str, int]:
    """Size of each image's file in bytes, by digest."""
    files = list_files(root)
    return {digest: status.st_size for _, digest, status in files if digest is not None}


# -- garbage collection ----------------------------------------------------------------------------


_YOUNG_SECONDS = 3600.0  # the result of an image this young may not be stored yet

_KEYS_AT_ONCE = 500  # keys of one transaction


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

    entries: tuple[StoredEntry, ...]
    unused: tuple[str, ...]
    bytes: int
    kept: int
    kept_bytes: int
    unnamed: int | None


def choose(
    root: Path,
    read: Read,
    *,
    unused_for: int | None = None,
    max_size: int | None = None,
    needed: AbstractSet[str] | None = None,
    accepted: AbstractSet[str] = frozenset(),
) -> Collection:
    """Select what is to be deleted from the store in a folder; nothing is deleted.

    unused_for: days without use after which a result is deleted.
    max_size: bytes to be left; results are deleted in the order of their last use.
    needed: models whose results always stay; without another rule, the results of all other models
        are deleted. None where baselines do not matter.
    accepted: keys of results that always stay, whatever model their provenance names: answers that
        were accepted, which no run makes again.
    Raises StoreError.
    """
    sizes = image_sizes(root)
    stored = list(entries(read))
    references = Counter(entry.image for entry in stored if entry.image is not None)
    unused = tuple(digest for _, digest, _ in _old_images(root) if digest not in references)
    total = sum(entry.size for entry in stored) + sum(sizes.values())
    freed = sum(sizes[digest] for digest in unused if digest in sizes)
    oldest = None if unused_for is None else today() - unused_for
    chosen = []
    for entry in sorted(stored, key=lambda entry: (entry.day, entry.created)):
        if entry.model in (needed or ()) or entry.key in accepted:
            continue
        old = oldest is not None and entry.day <= oldest
        large = max_size is not None and total - freed > max_size
        unneeded = oldest is None and max_size is None and entry.model is not None
        if not (old or large or unneeded):
            continue
        chosen.append(entry)
        freed += entry.size
        if entry.image is not None:
            references[entry.image] -= 1
            freed += 0 if references[entry.image] else sizes.get(entry.image, 0)
    unnamed = None
    if needed is not None:
        unnamed = sum(entry.model is None and entry.key not in accepted for entry in stored)
    return Collection(
        entries=tuple(chosen),
        unused=unused,
        bytes=freed,
        kept=len(stored) - len(chosen),
        kept_bytes=total - freed,
        unnamed=unnamed,
    )


def collect(store: Store, collection: Collection) -> tuple[int, int, bool]:
    """Delete it. Other processes may use the store meanwhile and compute what they miss again.

    Returns the bytes freed, about; how many images that no result refers to are too young to be
    deleted; and whether the index gave its space back to the disk, as `Index.compact` says.
    """
    for part in batches([(packed(entry.key),) for entry in collection.entries], _KEYS_AT_ONCE):
        own = "WHERE id = (SELECT id FROM results WHERE key = ?)"
        store.index.write(f"DELETE FROM used {own}", part)  # noqa: S608 - ours
        store.index.write("DELETE FROM results WHERE key = ?", part)
    deleted = collection.entries
    images = {*collection.unused, *(entry.image for entry in deleted if entry.image is not None)}
    for page in pages(store.index.read, REFERENCE):
        images -= {str(image) for (image,) in page}
    freed = sum(entry.size for entry in deleted)
    for path, digest, size in _old_images(store.root):
        if digest in images:
            path.unlink(missing_ok=True)
            freed += size
            images.remove(digest)
    waiting = sum(find_artifact(store.root, digest) is not None for digest in images)
    return freed, waiting, store.index.compact()


def _old_images(root: Path) -> Iterator[tuple[Path, str, int]]:
    """(path, digest, bytes) of images that were not written within the last hour."""
    limit = time.time() - _YOUNG_SECONDS
    for path, digest, status in list_files(root):
        if digest is not None and status.st_mtime < limit:
            yield path, digest, status.st_size


# -- verification ----------------------------------------------------------------------------------


_IMAGES_AT_ONCE = 64  # images that threads hold in memory at once


@dataclass
class VerifyReport:
    """What is wrong with a store, and what is merely left over.

    results, images: number of those checked.
    index: SQLite's complaints about its file.
    rows: keys of results that do not match their seals.
    provenances: (number, results that have it) of those whose text is damaged or lost.
    files: paths whose remembered digests do not match their seals.
    damaged_images: (digest, reason).
    lost: keys of results whose image is not there.
    remote: images that lie in a shared store and are fetched when needed.
    unused: images that no result refers to.
    foreign: files between the images that are not images of a store.
    """

    results: int = 0
    images: int = 0
    index: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    provenances: list[tuple[object, int]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    damaged_images: list[tuple[str, str]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    remote: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    foreign: list[Path] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged or missing."""
        damaged = self.index or self.rows or self.provenances or self.files or self.damaged_images
        return not (damaged or self.lost)


def inspect(root: Path, read: Read) -> VerifyReport:
    """Read all of the store in a folder: every row, every pixel. Changes nothing.

    Raises StoreError where the index cannot be read, UnreadError where an image cannot: neither
    says that it is damaged.
    """
    report = VerifyReport()
    try:
        complaints = [str(line) for (line,) in read("PRAGMA integrity_check(20)", ())]
        report.index = [] if complaints == ["ok"] else complaints
    except DamagedIndexError as error:
        report.index = [str(error)]
    present: set[str] = set()
    wanted: set[str] = set()
    remote: set[str] = set()
    for path, digest, _ in list_files(root):
        if digest is None:
            report.foreign.append(path)
        else:
            present.add(digest)
    try:
        remote = remote_artifacts(read) - present
        for _, key, damaged, image in _rows(read):
            report.results += 1
            if image is not None:
                wanted.add(image)
            if damaged:
                report.rows.append(key)
            elif not (image is None or image in present or image in remote):
                report.lost.append(key)
        report.provenances = _damaged_provenances(read)
        report.files = [str(path) for path, *_ in _damaged_files(read)]
    except DamagedIndexError as error:
        report.index.append(str(error))

    def check(digest: str) -> None:
        try:
            load_artifact(root, digest)
        except ArtifactError as error:
            report.damaged_images.append((digest, str(error)))

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for part in batches(sorted(present), _IMAGES_AT_ONCE):
            list(threads.map(check, part))
    report.images = len(present)
    report.damaged_images.sort()
    report.foreign.sort()
    report.remote, report.unused = sorted(remote & wanted), sorted(present - wanted)
    return report


def repair(store: Store, report: VerifyReport) -> None:
    """Drop what is damaged and what has lost its image: it is computed again when it is needed."""
    if report.index:
        store.index.rebuild()
    damaged = {digest for digest, _ in report.damaged_images}
    for digest in damaged:
        artifact_path(store.root, digest).unlink(missing_ok=True)
    read = store.index.read
    remote = remote_artifacts(read) - damaged
    dropped = [
        (rowid,)
        for rowid, _, broken, image in _rows(read)
        if broken or not (image is None or find_artifact(store.root, image) or image in remote)
    ]
    store.index.write("DELETE FROM results WHERE rowid = ?", dropped)
    if numbers := [(number,) for number, _ in _damaged_provenances(read)]:
        store.index.write("DELETE FROM provenances WHERE id = ?", numbers)
        unknown = provenance_id("{}")  # as a rebuilt index has it
        store.index.write("INSERT OR IGNORE INTO provenances VALUES (?, '{}')", [(unknown,)])
        without = "provenance NOT IN (SELECT id FROM provenances)"
        store.index.write(f"UPDATE results SET provenance = ? WHERE {without}", [(unknown,)])  # noqa: S608 - ours
    outdated = [(path, what) for _, path, what in _damaged_files(read)]
    own = "CAST(path AS BLOB) = ? AND CAST(what AS BLOB) = ?"
    store.index.write(f"DELETE FROM files WHERE {own}", outdated)  # noqa: S608 - ours


def _rows(read: Read) -> Iterator[tuple[int, str, bool, str | None]]:
    """(number, key, whether it is damaged, digest of the image that it refers to) of all rows.

    One that fits its seal is not damaged, whatever it is: another version has stored it.
    """
    for page in pages(read, "results.rowid, key, kind, payload, seal"):
        for rowid, key, kind, payload, sealed in page:
            result = unseal(unpacked(key), kind, payload, sealed)
            image = result.digest if isinstance(result, ArtifactRef) else None
            damaged = result is None and not is_sealed(unpacked(key), kind, payload, sealed)
            yield rowid, unpacked(key), damaged, image


def _damaged_provenances(read: Read) -> list[tuple[object, int]]:
    """(number, results that have it) of those whose text does not fit the number or is lost."""
    texts = read("SELECT id, text FROM provenances", ())
    sound = {number for number, text in texts if provenance_id(str(text)) == number}
    counts = "SELECT provenance, count(*) FROM results GROUP BY provenance"
    used: dict[object, int] = dict(read(counts, ()))
    wrong = dict.fromkeys([*(number for number, _ in texts), *used])
    return [(number, used.get(number, 0)) for number in wrong if number not in sound]


def _damaged_files(read: Read) -> Iterator[tuple[str, bytes, bytes]]:
    """(path, path and kind as they are) of remembered digests that do not match their seals."""
    columns = "*, CAST(path AS BLOB), CAST(what AS BLOB)"  # which may be no text any more
    for path, what, sealed, digest, *raw in read(f"SELECT {columns} FROM files", ()):  # noqa: S608 - ours
        stamp, _, _ = str(sealed).rpartition(" ")
        if sealed != seal_stamp(str(path), str(what), stamp, str(digest)):
            yield str(path), raw[0], raw[1]
