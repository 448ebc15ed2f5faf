"""What the store keeps of one step, and how a row says that it is undamaged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import cast

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.outcome import FAILURE_KINDS, FailureKind


@dataclass(frozen=True)
class ImageRef:
    """An image in the store, by its digest."""

    digest: str


Vector = npt.NDArray[np.float32]

Result = str | ImageRef | Vector | Failure
"""A text, an image, a vector (dimension,) float32, or the failure of the step."""


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
    return "vector", np.ascontiguousarray(result, dtype="<f4").tobytes()


def unpack(kind: str, payload: bytes) -> Result:
    """The result that `pack` took apart. Raises ValueError when the two do not fit."""
    if kind == "text":
        return payload.decode("utf-8", "surrogatepass")
    if kind == "image":
        return ImageRef(payload.decode())
    if kind == "vector":
        return np.frombuffer(payload, dtype="<f4").astype(np.float32)
    name, _, detail = payload.decode().partition("\0")
    if kind != "failure" or name not in FAILURE_KINDS:
        msg = f"no such kind of result: {kind} {name}"
        raise ValueError(msg)
    return Failure(cast("FailureKind", name), detail)


def seal(key: str, kind: str, payload: bytes) -> bytes:
    """16 bytes that change with any bit of the row."""
    return sha256(f"{key}\0{kind}\0".encode() + payload).digest()[:16]


def is_sealed(key: object, kind: object, payload: object, found: object) -> bool:
    """Whether a row as it was read is undamaged; damage can change the type of a column too."""
    if not (isinstance(key, str) and isinstance(kind, str) and isinstance(payload, bytes)):
        return False
    return found == seal(key, kind, payload)
