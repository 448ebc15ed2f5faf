"""Taking over the results of another store: what is sound of it, under keys that have none yet."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from pytest_cepbench.errors import ImageError
from pytest_cepbench.store.access_log import REMEMBER, last_used, today
from pytest_cepbench.store.database import explained
from pytest_cepbench.store.images import image_path, verified, write_image
from pytest_cepbench.store.lookup import pages
from pytest_cepbench.store.readonly import INDEX
from pytest_cepbench.store.rows import MOST_PAYLOAD, dated, look
from pytest_cepbench.store.sources import Source
from pytest_cepbench.store.store import INSERT, Store

_AT_ONCE = 100  # rows in memory, of an index that may say that all of them are large


@dataclass
class MergeSummary:
    """What became of the results of another store.

    results, images: taken over. there: keys that had a result already, which stays. refused: how
    many were refused, by the reason.
    """

    results: int = 0
    images: int = 0
    there: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def merge(store: Store, source: Source) -> MergeSummary:
    """Take over what is sound. Raises StoreError where either cannot be used; what was taken stays."""
    merged = MergeSummary()
    day, tables = last_used(days=source.reader.has("used"))
    payload = f"CASE WHEN length(payload) <= {MOST_PAYLOAD} THEN payload END"
    columns = f"key, kind, {payload}, provenance, created, seal, {day}"
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for page in pages(source.reader.read, columns, tables, _AT_ONCE):
            known = store.has(str(row[0]) for row in page)
            fresh = [(row, look(row[:6])) for row in page if row[0] not in known]
            wanted = {image for _, (_, image) in fresh if image is not None}
            absent = {image for image in wanted if not image_path(store.root, image).exists()}
            images = dict(
                zip(absent, threads.map(partial(_take_image, store, source), absent), strict=True)
            )
            problems = [problem or images.get(image or "") for _, (problem, image) in fresh]
            sound = [row for (row, _), why in zip(fresh, problems, strict=True) if why is None]
            store.index.write(INSERT, [dated(row[:6]) for row in sound])
            used = [*sound, *(row for row in page if row[0] in known)]
            store.index.write(REMEMBER, [(row[0], min(row[6], today())) for row in used])
            merged.results += len(sound)
            merged.there += len(page) - len(fresh)
            merged.images += sum(problem is None for problem in images.values())
            merged.refused.update(problem for problem in problems if problem is not None)
    return merged


def _take_image(store: Store, source: Source, digest: str) -> str | None:
    """What is wrong with an image; where nothing is, it is in the store, before its row is."""
    data = source.image(digest)
    if data is None:
        return "its image is not there"
    try:
        verified(data, digest)
    except ImageError:
        return "its image is damaged"
    with explained(store.root / INDEX):
        write_image(store.root, digest, data)
    return None
