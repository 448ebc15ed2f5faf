"""Which results were used, and when last: what tells what may be thrown away."""

from __future__ import annotations

import time
from collections.abc import Iterable

from pytest_cepbench.errors import StoreError
from pytest_cepbench.store.index import Index

DAY_SECONDS = 86400

REMEMBER = (
    "INSERT INTO used VALUES (?, ?) "
    "ON CONFLICT (key) DO UPDATE SET day = excluded.day WHERE day < excluded.day"
)
"""A key and the day on which it was used; a later day stays."""

_NOW_AND_THEN = 60.0

_MOST_WAITING = 200_000  # keys, some 30 MB of them


def today() -> int:
    """Days since the epoch."""
    return int(time.time() // DAY_SECONDS)


class AccessLog:
    """Keys that were used, gathered in memory: a hit must not cost a write.

    They are written when the store writes anyway, or is closed. What a killed process had not
    written makes results look older than they are, nothing worse.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._keys: set[str] = set()
        self._written = time.monotonic()

    def add(self, keys: Iterable[str]) -> None:
        """These were used."""
        self._keys.update(keys)
        if len(self._keys) > _MOST_WAITING:
            self.write()

    def write_now_and_then(self) -> None:
        """Write if that was long ago."""
        if self._keys and time.monotonic() - self._written > _NOW_AND_THEN:
            self.write()

    def write(self) -> None:
        """Write what has gathered, in one transaction."""
        keys, self._keys = self._keys, set()
        self._written = time.monotonic()
        if not keys:
            return
        day = today()
        try:
            self._index.write(REMEMBER, [(key, day) for key in sorted(keys)])
        except StoreError:
            # A run that only reads must not fail because a disk is full; the days are a hint.
            return


def last_used(*, days: bool) -> tuple[str, str]:
    """(column, tables) that give the day of a result's last use in a query.

    days: whether the store remembers uses, which those of earlier versions do not.
    """
    stored = f"CAST(ifnull(CAST(created AS REAL), 0) / {DAY_SECONDS} AS INTEGER)"
    if not days:
        return stored, "results"
    return (
        f"max({stored}, CAST(ifnull(used.day, 0) AS INTEGER))",
        "results LEFT JOIN used USING (key)",
    )
