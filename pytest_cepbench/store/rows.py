"""Rows of results that come from elsewhere: what is wrong with them, and when they were stored."""

from __future__ import annotations

import json
import time

from pytest_cepbench.store.lookup import Row
from pytest_cepbench.store.stored_result import ImageRef, is_sealed, unpack

MOST_PAYLOAD = 2**23
"""Bytes; texts, vectors and detections are far below."""

_MOST_PROVENANCE = 10_000  # characters


def look(row: Row) -> tuple[str | None, str | None]:
    """(what is wrong with a row, the digest of the image that it refers to)."""
    key, kind, payload, provenance, _, sealed = row
    if payload is None or (isinstance(payload, bytes) and len(payload) > MOST_PAYLOAD):
        return "larger than any result is", None
    if not is_sealed(key, kind, payload, sealed):
        return "its row does not match its seal", None
    if not _is_provenance(provenance):
        return "its provenance cannot be read", None
    try:
        result = unpack(kind, payload)
    except ValueError:
        return "of a kind that this version does not know", None
    return None, result.digest if isinstance(result, ImageRef) else None


def _is_provenance(found: object) -> bool:
    if not isinstance(found, str) or len(found) > _MOST_PROVENANCE:
        return False
    try:
        read = json.loads(found)
    except (ValueError, RecursionError):
        return False
    return isinstance(read, dict) and all(isinstance(value, str) for value in read.values())


def dated(row: Row) -> Row:
    """The row as it is stored; what claims to come from the future is of now."""
    key, kind, payload, provenance, created, sealed = row
    now = time.time()
    past = isinstance(created, float) and 0 <= created <= now
    return key, kind, payload, provenance, created if past else now, sealed
