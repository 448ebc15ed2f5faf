"""Choosing samples of a table that is too long to be held: the same as of any other data set."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pytest_cepbench.artifacts import digest_text
from pytest_cepbench.datasets.sources.table import Row
from pytest_cepbench.errors import DatasetError

_DROPPED_BITS = 256 - 64
"""Of the digest of an id, of which 64 bits are kept for every row."""


@dataclass(frozen=True)
class SampleChoice:
    """Which samples of a data set are used; see `Dataset.limited` and `Dataset.without`.

    skip: samples of each category that are left out.
    most: samples of each category after these; all of them where None.
    """

    skip: int = 0
    most: int | None = None


class Candidate(NamedTuple):
    """A row that may become a sample.

    id: of the sample.
    categories: those it belongs to, or was chosen for.
    row: of the table.
    """

    id: str
    categories: tuple[str, ...]
    row: Row


def choose(
    read: Callable[[], Iterable[Candidate]],
    choice: SampleChoice,
    refuse: Callable[[str, list[Row]], DatasetError],
    *,
    repeated: bool = False,
) -> tuple[list[Candidate], set[str]]:
    """The chosen rows sorted by id, and all categories that there are.

    read: all rows, each time anew; only chosen ones, and 8 bytes of each other row, are held.
    refuse: makes the error of an id that is there twice, and its rows.
    repeated: whether rows of one id are one sample, the first of them, instead.
    """
    skipped: set[str] = set()
    if choice.skip:
        skipped = set(_ranked(((_digest(c.id), c) for c in read()), choice.skip))
    digests = array("Q")
    categories: set[str] = set()

    def rest() -> Iterator[tuple[int, Candidate]]:
        for candidate in read():
            digest = _digest(candidate.id)
            categories.update(candidate.categories)
            if not repeated:
                digests.append(digest >> _DROPPED_BITS)
            if candidate.id not in skipped:
                yield digest, candidate

    by_id: dict[str, Candidate] = {}
    if choice.most is None:
        for _, candidate in rest():
            by_id.setdefault(candidate.id, candidate)
    else:
        by_id = _ranked(rest(), choice.most)
    _refuse_repeated(digests, read, refuse)
    return [by_id[name] for name in sorted(by_id)], categories


def _digest(name: str) -> int:
    return int(digest_text(name), 16)


def _refuse_repeated(
    digests: array[int],
    read: Callable[[], Iterable[Candidate]],
    refuse: Callable[[str, list[Row]], DatasetError],
) -> None:
    """Raise the error of the first id that is there twice; equal digests are looked into."""
    ordered = np.sort(np.frombuffer(digests, dtype=np.uint64))
    twice = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not twice:
        return
    rows: dict[str, Row] = {}
    for candidate in read():
        if _digest(candidate.id) >> _DROPPED_BITS in twice:
            if candidate.id in rows:
                raise refuse(candidate.id, [rows[candidate.id], candidate.row])
            rows[candidate.id] = candidate.row


def _ranked(candidates: Iterable[tuple[int, Candidate]], most: int) -> dict[str, Candidate]:
    """At most so many of each category, those whose ids have the smallest digests, by id.

    Each is in the categories alone that it was chosen for.
    """
    heaps: dict[str, list[tuple[int, str]]] = {}
    held: dict[str, Candidate] = {}
    uses: Counter[str] = Counter()
    chosen: dict[str, set[str]] = {}
    for digest, candidate in candidates:
        rank = -digest
        own = candidate.categories
        for category in own if len(own) == 1 else dict.fromkeys(own):
            heap = heaps.setdefault(category, [])
            if len(heap) == most and rank <= heap[0][0]:
                continue
            if category in chosen.get(candidate.id, ()):
                continue  # an earlier row of the same sample
            entry = (rank, candidate.id)
            dropped = heapq.heappushpop(heap, entry) if len(heap) == most else None
            if dropped is None:
                heapq.heappush(heap, entry)
            held.setdefault(candidate.id, candidate)
            chosen.setdefault(candidate.id, set()).add(category)
            uses[candidate.id] += 1
            if dropped is not None:
                chosen[dropped[1]].discard(category)
                uses[dropped[1]] -= 1
                if not uses[dropped[1]]:
                    del held[dropped[1]], chosen[dropped[1]], uses[dropped[1]]
    return {
        name: candidate._replace(
            categories=tuple(c for c in candidate.categories if c in chosen[name])
        )
        for name, candidate in held.items()
    }
