"""Results as rows of a store's database: their types, encoding, seals, checks, and queries."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Detection, Detections, Failure, Mask, Modality
from pytest_cepbench.artifacts.modality import FILED
from pytest_cepbench.artifacts.outcome import FAILURE_KINDS, FailureKind

MOST_PAYLOAD = 2**23
"""Limit of a payload from another store, in bytes; texts, vectors and detections are far below."""

_MOST_PROVENANCE = 10_000  # characters

_MOST_VARIABLES = 500  # values in one query, well below SQLite's limit

_PAGE = 500

_T = TypeVar("_T")

DAY_SECONDS = 86400

_REMOTE = "away "  # in the name of a note, before the digest of an image in a shared store

_FLOATS = np.dtype("<f4")

_DIGITS = 64

REFERENCE = f"CASE WHEN kind IN ({', '.join(map(repr, FILED))}) THEN CAST(payload AS TEXT) END"
"""Column of a query for results: the digest of the file that a row refers to, or NULL."""


WITH_PROVENANCE = "results LEFT JOIN provenances ON provenances.id = results.provenance"
"""Source of a query for results whose provenance is its column `text`."""


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """An image or a sound in the store, by its digest."""

    digest: str
    kind: Modality = "image"


Vector = npt.NDArray[np.float32]

Result = str | ArtifactRef | Vector | Detections | Failure
"""A text, the file of an artifact, a vector (dimension,) float32, the detections in an image, or a
failure.
"""


@dataclass(frozen=True)
class StoredResult:
    """A result to be stored.

    key: the step's key.
    result: what the step gave.
    provenance: how the result came about (device, batch shape, library versions); it has no
        influence on what the result is.
    """

    key: str
    result: Result
    provenance: Mapping[str, str] = field(default_factory=dict)


Row = tuple[Any, ...]
"""A row of a query. A whole row of results is (key, kind, payload, provenance, created, seal), with
the provenance as JSON.
"""

Read = Callable[[str, Sequence[object]], list[Row]]
"""Runs a query with values for its question marks and returns the rows."""


# -- encoding --------------------------------------------------------------------------------------

_Box = tuple[float, float, float, float]
_MaskRow = tuple[int, int, tuple[int, ...]]
_DetectionRow = tuple[str, float, _Box, _MaskRow | None, str | None]


def pack(result: Result) -> tuple[str, bytes]:
    """(kind, payload) of a result."""
    if isinstance(result, str):
        return "text", result.encode("utf-8", "surrogatepass")
    if isinstance(result, ArtifactRef):
        return result.kind, result.digest.encode()
    if isinstance(result, Failure):
        return "failure", f"{result.kind}\0{result.detail}".encode("utf-8", "replace")
    if isinstance(result, Detections):
        masks = [
            None if own.mask is None else (own.mask.height, own.mask.width, own.mask.runs)
            for own in result.found
        ]
        rows = [
            (own.query, own.score, own.box, mask, own.color)
            for own, mask in zip(result.found, masks, strict=True)
        ]
        # Python writes the shortest digits that read back as the same float; a surrogate left as it
        # is stays one, where two escaped ones would be read as one character.
        text = json.dumps(rows, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return "boxes", text.encode("utf-8", "surrogatepass")
    return "vector", np.ascontiguousarray(result, dtype=_FLOATS).tobytes()


def unpack(kind: str, payload: bytes) -> Result:
    """The result that `pack` encoded. Raises ValueError when kind and payload do not fit."""
    if kind == "text":
        return payload.decode("utf-8", "surrogatepass")
    if kind in FILED:
        digest = payload.decode()
        if len(digest) != _DIGITS or not digest.isalnum():  # it becomes the name of a file
            raise ValueError(f"no digest of an artifact: {digest[:80]!r}")
        return ArtifactRef(digest, FILED[FILED.index(kind)])  # not one more text for each
    if kind == "vector":
        return np.frombuffer(payload, _FLOATS).astype(np.float32)
    if kind == "boxes":
        try:
            document = json.loads(payload.decode("utf-8", "surrogatepass"))
            rows = msgspec.convert(document, list[_DetectionRow])
        except (msgspec.ValidationError, RecursionError) as error:
            raise ValueError(f"no detections: {error}") from error
        return Detections(
            tuple(
                Detection(query, score, box, None if mask is None else Mask(*mask), color)
                for query, score, box, mask, color in rows
            )
        )
    name, _, detail = payload.decode().partition("\0")
    if kind != "failure" or name not in FAILURE_KINDS:
        raise ValueError(f"no such kind of result: {kind} {name}")
    return Failure(cast("FailureKind", name), detail)


# -- seals -----------------------------------------------------------------------------------------


def seal(key: str, kind: str, payload: bytes) -> bytes:
    """A checksum of 16 bytes that is stored with a row and changes with any bit of it."""
    return sha256(f"{key}\0{kind}\0".encode() + payload).digest()[:16]


def seal_stamp(path: str, what: str, stamp: str, digest: str) -> str:
    """A file's stamp with a seal over its whole row."""
    return f"{stamp} {seal(path, what, f'{stamp} {digest}'.encode()).hex()}"


def is_sealed(key: object, kind: object, payload: object, stored_seal: object) -> bool:
    """True where a row as it was read is undamaged; damage can change a column's type too."""
    if not (isinstance(key, str) and isinstance(kind, str) and isinstance(payload, bytes)):
        return False
    return stored_seal == seal(key, kind, payload)


def unseal(key: object, kind: object, payload: object, stored_seal: object) -> Result | None:
    """The result of a row; None where the row is damaged, or of a kind from a newer version."""
    if not is_sealed(key, kind, payload, stored_seal):
        return None
    assert isinstance(kind, str)
    assert isinstance(payload, bytes)
    try:
        return unpack(kind, payload)
    except ValueError:
        return None


# -- rows -----------------------------------------------------------------------------------------


def packed(key: str) -> bytes | str:
    """A key as the database keeps it, in half the bytes; one that is no digest stays as it is."""
    with suppress(ValueError):
        raw = bytes.fromhex(key)
        if len(raw) == _DIGITS // 2 and raw.hex() == key:
            return raw
    return key


def unpacked(key: object) -> str:
    """The key of a column of the database, which damage can have made anything."""
    return key.hex() if isinstance(key, bytes) else str(key)


def provenance_id(text: str) -> int:
    """The number under which the database keeps a provenance: the same in every process, and made
    of the text, so that one that was damaged does not fit it.
    """
    digest = sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def check_row(row: Row) -> str | None:
    """The digest of the artifact that a row of results refers to, if it does.

    Raises ValueError, which says what is wrong with the row.
    """
    key, kind, payload, provenance, _, sealed = row
    if payload is None or (isinstance(payload, bytes) and len(payload) > MOST_PAYLOAD):
        raise ValueError("larger than any result is")
    if not is_sealed(key, kind, payload, sealed):
        raise ValueError("its row does not match its seal")
    try:
        short = isinstance(provenance, str) and len(provenance) <= _MOST_PROVENANCE
        document = json.loads(provenance) if short else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not all(isinstance(v, str) for v in document.values()):
        raise ValueError("its provenance cannot be read")
    try:
        result = unpack(kind, payload)
    except ValueError as error:
        raise ValueError("of a kind that this version does not know") from error
    return result.digest if isinstance(result, ArtifactRef) else None


def dated(row: Row) -> Row:
    """The row with a time of creation that is not in the future: now, where it was."""
    key, kind, payload, provenance, created, sealed = row
    now = time.time()
    past = isinstance(created, float) and 0 <= created <= now
    return key, kind, payload, provenance, created if past else now, sealed


def rows_of(entries: Sequence[StoredResult]) -> list[Row]:
    """Whole rows of results that are stored now."""
    rows = []
    documents: dict[int, str] = {}  # by id, since the entries of a batch share their provenance
    for entry in entries:
        kind, payload = pack(entry.result)
        provenance = documents.get(id(entry.provenance))
        if provenance is None:
            provenance = json.dumps(dict(entry.provenance), sort_keys=True)
            documents[id(entry.provenance)] = provenance
        sealed = seal(entry.key, kind, payload)
        rows.append((entry.key, kind, payload, provenance, time.time(), sealed))
    return rows


def today() -> int:
    """Days since the epoch."""
    return int(time.time() // DAY_SECONDS)


# -- queries ---------------------------------------------------------------------------------------


def batches(items: Iterable[_T], most: int) -> Iterator[list[_T]]:
    """The items in lists of at most so many."""
    rest = iter(items)
    while batch := list(islice(rest, most)):
        yield batch


def rows_with(read: Read, query: str, values: Iterable[str | bytes]) -> Iterator[Row]:
    """Rows of a query, which ends with the name of a column, that have one of the values there."""
    for part in batches(values, _MOST_VARIABLES):
        yield from read(f"{query} IN ({','.join('?' * len(part))})", part)


def file_rows(read: Read, places: Iterable[tuple[str, str]]) -> Iterator[Row]:
    """Rows of files by (path, kind of digest): those, and maybe others of the same paths."""
    for part in batches(places, _MOST_VARIABLES // 2):
        lists = [sorted({place[column] for place in part}) for column in (0, 1)]
        paths, kinds = (",".join("?" * len(values)) for values in lists)
        query = f"SELECT * FROM files WHERE path IN ({paths}) AND what IN ({kinds})"  # noqa: S608
        yield from read(query, [*lists[0], *lists[1]])


def column(read: Read, name: str, keys: Iterable[str], source: str = "results") -> dict[str, Any]:
    """A column of the results under these keys, unchecked. source: as of `pages`."""
    query = f"SELECT key, {name} FROM {source} WHERE key"  # noqa: S608 - our names
    asked = {packed(key): key for key in keys}
    return {asked.get(key) or unpacked(key): value for key, value in rows_with(read, query, asked)}


def whole_rows(read: Read, keys: Iterable[str]) -> Iterator[Row]:
    """The whole rows of results under these keys, unchecked."""
    query = f"SELECT key, kind, payload, text, created, seal FROM {WITH_PROVENANCE} WHERE key"  # noqa: S608 - ours
    for key, *rest in rows_with(read, query, map(packed, keys)):
        yield unpacked(key), *rest


def results_under(
    read: Read, keys: Iterable[str], used: set[int] | None = None
) -> tuple[dict[str, Result], list[str]]:
    """(the undamaged results under these keys, the keys of the damaged ones).

    used: receives the numbers of the rows that were stored before today.
    """
    results: dict[str, Result] = {}
    damaged: list[str] = []
    query = "SELECT id, created, key, kind, payload, seal FROM results WHERE key"
    midnight = today() * DAY_SECONDS
    asked = {packed(key): key for key in keys}  # whoever keeps a key keeps no second one beside it
    for number, created, stored, *row in rows_with(read, query, asked):
        key = asked.get(stored) or unpacked(stored)
        result = unseal(key, *row)
        if result is None:
            damaged.append(key)
            continue
        results[key] = result
        if used is not None and not (isinstance(created, float) and created >= midnight):
            used.add(number)
    return results, damaged


def pages(read: Read, columns: str, source: str = "results") -> Iterator[list[Row]]:
    """All rows of a table in parts, so that no query keeps other processes waiting for long.

    columns, source: as SQL has them; the source is `results`, or something joined to it.
    """
    query = (
        f"SELECT results.rowid, {columns} FROM {source} "  # noqa: S608 - names of columns, ours
        f"WHERE results.rowid > ? ORDER BY results.rowid LIMIT {_PAGE}"
    )
    last = -1
    while rows := read(query, (last,)):
        last = int(rows[-1][0])
        yield [row[1:] for row in rows]


def remote_artifact_note(digest: str) -> str:
    """Name of the note that says in which shared store an image lies."""
    return f"{_REMOTE}{digest}"


def remote_artifacts(read: Read) -> set[str]:
    """Digests of images of results that lie in a shared store; some may be here as well."""
    rows = read("SELECT name FROM notes WHERE name GLOB ?", (f"{_REMOTE}*",))
    return {str(name).removeprefix(_REMOTE) for (name,) in rows}
