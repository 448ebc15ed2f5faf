"""Finding rows by their keys, in any of the databases that hold results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pytest_cepbench.store.stored_result import Result, is_sealed, unpack

Row = tuple[Any, ...]

Read = Callable[[str, Sequence[object]], list[Row]]
"""The rows that a query gives with these values in the place of its question marks."""

_MOST_VARIABLES = 500  # values in one query, well below SQLite's limit

_PAGE = 500


def among(read: Read, query: str, values: Iterable[str]) -> Iterator[Row]:
    """Rows of a query that ends with the name of a column, where it has one of the values."""
    wanted = list(values)
    for start in range(0, len(wanted), _MOST_VARIABLES):
        part = wanted[start : start + _MOST_VARIABLES]
        yield from read(f"{query} IN ({','.join('?' * len(part))})", part)


def results_under(
    read: Read, keys: Iterable[str], most: int | None = None
) -> tuple[dict[str, Result], list[str]]:
    """(the undamaged results under these keys, the keys of those that are damaged).

    most: bytes of a payload; what is larger counts as damaged, and is not read.
    """
    found: dict[str, Result] = {}
    damaged: list[str] = []
    payload = "payload" if most is None else f"CASE WHEN length(payload) <= {most} THEN payload END"
    query = f"SELECT key, kind, {payload}, seal FROM results WHERE key"  # noqa: S608 - a number, ours
    for key, kind, payload, sealed in among(read, query, keys):
        try:
            if is_sealed(key, kind, payload, sealed):
                found[key] = unpack(kind, payload)
                continue
        except ValueError:  # of a kind that this version does not know
            pass
        damaged.append(str(key))
    return found, damaged


def pages(
    read: Read, columns: str, source: str = "results", most: int = _PAGE
) -> Iterator[list[Row]]:
    """All rows of a table, some at a time, so that no reading holds others up for long.

    columns, source: as SQL has them; the source is `results`, or something joined to it.
    most: rows at a time.
    """
    query = (
        f"SELECT results.rowid, {columns} FROM {source} "  # noqa: S608 - names of columns, ours
        f"WHERE results.rowid > ? ORDER BY results.rowid LIMIT {most}"
    )
    last = -1
    while rows := read(query, (last,)):
        last = int(rows[-1][0])
        yield [row[1:] for row in rows]
