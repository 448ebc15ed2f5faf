"""What a shared store of objects holds, and what a place must do to hold one.

Objects never change and there is no list of them: a marker that says the format, each result under
its key, each image under the digest of its pixels. Who writes the same name second leaves what is
there.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from pytest_cepbench.store.images import MOST_BYTES, image_path
from pytest_cepbench.store.lookup import Row
from pytest_cepbench.store.remote.remote_errors import StoreFailure
from pytest_cepbench.store.rows import MOST_PAYLOAD

FORMAT = 1
"""Version of the layout and of a result's encoding; raised by any change that is misread."""

MARKER = "cepbench-store.json"

RESULTS, IMAGES = "results", "images"

MOST_RESULT = MOST_PAYLOAD + 2**20
"""Bytes of a result's object: its payload, and what is said of it."""

AT_ONCE = 64
"""Objects that are asked for, or written, at the same time."""


@dataclass(frozen=True)
class FetchResult:
    """What was read, by name. Where there is no trouble, what is not found is not there.

    unfit: what there is and was not read, by name, with the reason: too large, or no file.
    """

    found: Mapping[str, bytes]
    trouble: StoreFailure | None = None
    unfit: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WriteResult:
    """What could not be written, by name, with the reason. Whatever is not among it is there now.

    there: names that somebody else had written before.
    """

    failed: Mapping[str, StoreFailure] = field(default_factory=dict)
    there: frozenset[str] = frozenset()


class ObjectStore(Protocol):
    """Bytes under names, somewhere. Any thread may call; nothing raises but an interrupt.

    named: what the user calls the place, without secrets.
    """

    named: str

    def read(self, names: Sequence[str], seconds: float | None = None) -> FetchResult:
        """All of them at once. seconds: after which the place counts as one that does not answer."""
        ...

    def write(
        self,
        objects: Mapping[str, bytes],
        replace: Container[str] = (),
        seconds: float | None = None,
    ) -> WriteResult:
        """All of them at once, each as a whole or not at all. replace: names written over."""
        ...

    def list(self, folder: str) -> dict[str, int]:
        """Bytes of everything below a folder, by name. Raises StoreError."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


def most_bytes(name: str) -> int:
    """How large an object of this name may be; one that is larger is damaged."""
    return MOST_BYTES if name.startswith(f"{IMAGES}/") else MOST_RESULT


def result_name(key: str) -> str:
    """Where the result of a key lies."""
    return f"{RESULTS}/{key[:2]}/{key}"


def image_name(digest: str) -> str:
    """Where an image lies: as in a store's folder."""
    return image_path(Path(), digest).as_posix()


class _Sealed(msgspec.Struct, array_like=True, frozen=True):
    format: int
    kind: str
    payload: bytes
    provenance: str
    created: float
    seal: bytes


_DECODER = msgspec.msgpack.Decoder(_Sealed)


def to_object(row: Row) -> bytes:
    """A row of the local store as an object: MessagePack, which holds data and nothing that runs."""
    _, kind, payload, provenance, created, sealed = row
    return msgspec.msgpack.encode(
        _Sealed(FORMAT, kind, payload, str(provenance), float(created), sealed)
    )


def from_object(key: str, data: bytes) -> Row:
    """The row; whether it is sound is not looked at. Raises ValueError where it is none."""
    try:
        read = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        msg = "it cannot be read"
        raise ValueError(msg) from error
    if read.format != FORMAT:
        msg = f"it has format {read.format}"
        raise ValueError(msg)
    return (key, read.kind, read.payload, read.provenance, read.created, read.seal)


def marker() -> bytes:
    """The object that makes a place a store."""
    return msgspec.json.encode({"format": FORMAT})


def format_of(data: bytes) -> int | None:
    """The format that a marker says; None where it says none."""
    try:
        read: Any = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    found = read.get("format") if isinstance(read, dict) else None
    return found if isinstance(found, int) else None
