"""Statistics of a store: its results one by one, without their contents, and summed up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from sys import intern

from pytest_cepbench.store.database import INDEX
from pytest_cepbench.store.images import digest_of, list_files
from pytest_cepbench.store.readonly import ReadonlyStore
from pytest_cepbench.store.rows import Read, pages
from pytest_cepbench.store.tables import last_used

_LENGTH = "(ifnull(length(payload), 0) + ifnull(length(provenance), 0) + 2 * length(key) + 80)"


@dataclass(frozen=True, slots=True)
class Entry:
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


def entries(read: Read, *, days: bool = True) -> Iterator[Entry]:
    """Every result. days: whether the store has the table of uses. Raises StoreError."""
    day, source = last_used(days=days)
    lengths = f"SELECT total({_LENGTH}) FROM results"  # noqa: S608 - columns, ours
    rate = _bytes_of_index(read) / max(read(lengths, ())[0][0], 1)
    columns = (
        f"key, kind, provenance, {_LENGTH}, "
        "CASE kind WHEN 'image' THEN CAST(payload AS TEXT) END, "
        f"ifnull(CAST(created AS REAL), 0), {day}"
    )
    for page in pages(read, columns, source):
        for key, kind, provenance, size, image, created, used in page:
            yield Entry(
                str(key),
                intern(str(kind)),
                model_of(str(provenance)),
                round(size * rate),
                image,
                created,
                used,
            )


def _bytes_of_index(read: Read) -> int:
    """Size of the index without its free pages."""
    query = (
        "SELECT (page_count - freelist_count) * page_size "
        "FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    )
    return int(read(query, ())[0][0])


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
    query = "SELECT DISTINCT provenance FROM results"
    if texts:
        query += f" WHERE kind = 'text' AND payload IN ({', '.join('?' * len(texts))})"
    rows = read(query, [text.encode() for text in texts])
    models = {model_of(str(provenance)) for (provenance,) in rows}
    return {model for model in models if model is not None}


@dataclass(frozen=True)
class StoreShare:
    """Results of one kind or one model.

    results: their number.
    bytes: in the index and of their images; an image of several results is counted for each.
    oldest, newest: when the first and the last were stored, seconds since the epoch.
    used: day of the last use, days since the epoch.
    """

    results: int
    bytes: int
    oldest: float
    newest: float
    used: int


def count(
    stored: Iterable[Entry], sizes: Mapping[str, int]
) -> tuple[dict[str, StoreShare], dict[str, StoreShare]]:
    """(shares by kind of result, shares by model, "" for results whose provenance names none).

    sizes: bytes of images by digest.
    """
    kinds: dict[str, StoreShare] = {}
    models: dict[str, StoreShare] = {}
    for entry in stored:
        size = entry.size + sizes.get(entry.image or "", 0)
        share = StoreShare(1, size, entry.created, entry.created, entry.day)
        for shares, name in ((kinds, entry.kind), (models, entry.model or "")):
            known = shares.get(name)
            shares[name] = share if known is None else _sum(known, share)
    return dict(sorted(kinds.items())), dict(sorted(models.items()))


def _sum(first: StoreShare, second: StoreShare) -> StoreShare:
    return StoreShare(
        first.results + second.results,
        first.bytes + second.bytes,
        min(first.oldest, second.oldest),
        max(first.newest, second.newest),
        max(first.used, second.used),
    )


@dataclass(frozen=True)
class StoreStats:
    """A store summed up.

    kinds, models: as `count` returns them.
    images, image_bytes: number and size of the images' files.
    index_bytes: size of the database.
    """

    kinds: Mapping[str, StoreShare]
    models: Mapping[str, StoreShare]
    images: int
    image_bytes: int
    index_bytes: int


def summarize(reader: ReadonlyStore) -> StoreStats:
    """Sum a store up. Raises StoreError."""
    sizes = image_sizes(reader.folder)
    kinds, models = count(entries(reader.read, days=reader.has("used")), sizes)
    index = (reader.folder / f"{INDEX}{suffix}" for suffix in ("", "-wal"))
    return StoreStats(
        kinds=kinds,
        models=models,
        images=len(sizes),
        image_bytes=sum(sizes.values()),
        index_bytes=sum(path.stat().st_size for path in index if path.exists()),
    )


def image_sizes(root: Path) -> dict[str, int]:
    """Size of each image's file in bytes, by digest."""
    named = ((digest_of(path), status.st_size) for path, status in list_files(root))
    return {digest: size for digest, size in named if digest is not None}
