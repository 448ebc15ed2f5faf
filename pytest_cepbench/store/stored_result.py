"""What the store keeps of one step, and how a row says that it is undamaged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Detection, Detections, Failure, Mask
from pytest_cepbench.artifacts.outcome import FAILURE_KINDS, FailureKind


@dataclass(frozen=True)
class ImageRef:
    """An image in the store, by its digest."""

    digest: str


_FLOATS = np.dtype("<f4")

_DIGITS = 64

Vector = npt.NDArray[np.float32]

Result = str | ImageRef | Vector | Detections | Failure
"""A text, an image, a vector (dimension,) float32, what was found in an image, or the failure of the
step."""

_Box = tuple[float, float, float, float]
_MaskRow = tuple[int, int, tuple[int, ...]]
_DetectionRow = tuple[str, float, _Box, _MaskRow | None, str | None]


@dataclass(frozen=True)
class StoredResult:
    """A result to be stored under a key.

    provenance: what is worth knowing of how it came about and must not decide what it is
    (device, batch shape, library versions).
    """

    key: str
    result: Result
    provenance: Mapping[str, str] = field(default_factory=dict)


def pack(result: Result) -> tuple[str, bytes]:
    """(kind, payload) of a result."""
    if isinstance(result, str):
        return "text", result.encode("utf-8", "surrogatepass")
    if isinstance(result, ImageRef):
        return "image", result.digest.encode()
    if isinstance(result, Failure):
        return "failure", f"{result.kind}\0{result.detail}".encode("utf-8", "replace")
    if isinstance(result, Detections):
        rows = [_to_row(detection) for detection in result.found]
        # Python writes the shortest digits that read back as the same float; a surrogate left as it
        # is stays one, where two escaped ones would be read as one character.
        text = json.dumps(rows, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return "boxes", text.encode("utf-8", "surrogatepass")
    return "vector", np.ascontiguousarray(result, dtype=_FLOATS).tobytes()


def unpack(kind: str, payload: bytes) -> Result:
    """The result that `pack` took apart. Raises ValueError when the two do not fit."""
    if kind == "text":
        return payload.decode("utf-8", "surrogatepass")
    if kind == "image":
        digest = payload.decode()
        if len(digest) != _DIGITS or not digest.isalnum():  # it becomes the name of a file
            msg = f"no digest of an image: {digest[:80]!r}"
            raise ValueError(msg)
        return ImageRef(digest)
    if kind == "vector":
        return np.frombuffer(payload, _FLOATS).astype(np.float32)
    if kind == "boxes":
        return _unpack_boxes(payload)
    name, _, detail = payload.decode().partition("\0")
    if kind != "failure" or name not in FAILURE_KINDS:
        msg = f"no such kind of result: {kind} {name}"
        raise ValueError(msg)
    return Failure(cast("FailureKind", name), detail)


def _to_row(detection: Detection) -> list[Any]:
    mask = detection.mask
    runs = None if mask is None else [mask.height, mask.width, mask.runs]
    return [detection.query, detection.score, detection.box, runs, detection.color]


def _unpack_boxes(payload: bytes) -> Detections:
    try:
        read = json.loads(payload.decode("utf-8", "surrogatepass"))
        rows = msgspec.convert(read, list[_DetectionRow])
    except (msgspec.ValidationError, RecursionError) as error:
        msg = f"no detections: {error}"
        raise ValueError(msg) from error
    return Detections(
        tuple(
            Detection(query, score, box, None if mask is None else Mask(*mask), color)
            for query, score, box, mask, color in rows
        )
    )


def seal(key: str, kind: str, payload: bytes) -> bytes:
    """16 bytes that change with any bit of the row."""
    return sha256(f"{key}\0{kind}\0".encode() + payload).digest()[:16]


def seal_stamp(path: str, what: str, stamp: str, digest: str) -> str:
    """A file's stamp, with a seal over everything that its row says."""
    return f"{stamp} {seal(path, what, f'{stamp} {digest}'.encode()).hex()}"


def is_sealed(key: object, kind: object, payload: object, found: object) -> bool:
    """Whether a row as it was read is undamaged; damage can change the type of a column too."""
    if not (isinstance(key, str) and isinstance(kind, str) and isinstance(payload, bytes)):
        return False
    return found == seal(key, kind, payload)
