"""The format of a shared store of objects, the interface of its backends, and their failures.

Objects never change and there is no list of them: a marker with the format, each result under its
key, each image under the digest of its pixels. The first write of a name counts.

Failures are described in our own words, since the errors of the libraries may quote secrets.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import astuple

from pytest_cepbench.artifacts import Modality
from pytest_cepbench.artifacts.modality import kind_of_file
from pytest_cepbench.errors import RedirectError
from pytest_cepbench.store.artifact_files import MOST_BYTES, paths_of
from pytest_cepbench.store.rows import MOST_PAYLOAD, Row

FORMAT = 1
"""Version of the layout and of a result's encoding; any change that would be misread raises it."""

MARKER = "cepbench-store.json"

RESULTS, IMAGES = "results", "images"

MOST_RESULT = MOST_PAYLOAD + 2**20
"""Limit in bytes of a result's object: its payload, and the fields around it."""

AT_ONCE = 64
"""Objects that are read, or written, at the same time."""


Kind = Literal[
    "absent", "bucket", "no credentials", "rejected", "forbidden", "no answer", "redirect",
    "region", "full", "unknown",
]  # fmt: skip


@dataclass(frozen=True)
class StoreFailure:
    """A failed access to a shared store.

    kind: "absent" for a missing object, "bucket" for a missing bucket or folder, "no credentials",
        "rejected" for credentials that are not accepted, "forbidden" for credentials without the
        right, "no answer", "redirect", "region" for a bucket in another one, "full" for a lack of
        space, "unknown" for anything else.
    message: what happened, in a clause about the location.
    """

    kind: Kind
    message: str

    @property
    def transient(self) -> bool:
        """Whether trying again soon may help."""
        return self.kind in ("no answer", "unknown")

    @property
    def affects_all(self) -> bool:
        """Whether all other objects of the location fail as well."""
        return self.kind not in ("absent", "unknown")


@dataclass(frozen=True)
class FetchResult:
    """Objects that were read.

    objects: contents by name. Without a failure, a name that is not here does not exist.
    failure: the first failure other than absence.
    unfit: names that exist and were not read, with the reason: too large, or not a file.
    """

    objects: Mapping[str, bytes]
    failure: StoreFailure | None = None
    unfit: Mapping[str, str] = field(default_factory=dict)


class ObjectStore(ABC):
    """Bytes under names below a location. Any thread may call it; only an interrupt raises.

    named: the option and the location as the user gave them, without secrets.
    """

    def __init__(self, named: str) -> None:
        self.named = named

    def read(self, names: Sequence[str], seconds: float | None = None) -> FetchResult:
        """Read all of them at once. seconds: timeout for one object; None for a long one."""
        answers = self._for_each(names, self._read, seconds)
        failures = (a for a in answers.values() if isinstance(a, StoreFailure))
        return FetchResult(
            {name: answer for name, answer in answers.items() if isinstance(answer, bytes)},
            next((failure for failure in failures if failure.kind != "absent"), None),
            {name: answer for name, answer in answers.items() if isinstance(answer, str)},
        )

    def write(
        self,
        objects: Mapping[str, bytes],
        replace: Container[str] = (),
        seconds: float | None = None,
    ) -> dict[str, StoreFailure]:
        """Write all of them at once, each whole or not at all; the first write of a name counts.

        replace: names that are overwritten.
        seconds: timeout for one object; None for a long one.
        Returns the failures by name; every other name exists now.
        """

        def write(name: str, limit: float) -> Any:
            return self._write(name, objects[name], limit, replace=name in replace)

        answers = self._for_each(objects, write, seconds)
        return {
            name: write_failure(answer)
            for name, answer in answers.items()
            if isinstance(answer, StoreFailure)
        }

    @abstractmethod
    def list(self, folder: str) -> dict[str, int]:
        """Sizes in bytes of all objects below a folder, by name. Raises StoreError."""

    @abstractmethod
    def close(self) -> None:
        """Release connections."""

    @abstractmethod
    def _for_each(
        self, names: Iterable[str], action: Callable[[str, float], Any], seconds: float | None
    ) -> dict[str, Any]:
        """What the action returns for each name, or a StoreFailure. seconds: as of `read`."""

    @abstractmethod
    def _read(self, name: str, seconds: float) -> Any:
        """The object's bytes, or a text that says why it is unfit; a coroutine may give them."""

    @abstractmethod
    def _write(self, name: str, data: bytes, seconds: float, *, replace: bool) -> Any:
        """Write an object; a coroutine may do it."""


def most_bytes(name: str) -> int:
    """Limit in bytes of an object of this name; a larger one is damaged."""
    return MOST_BYTES if name.startswith(f"{IMAGES}/") else MOST_RESULT


def result_name(key: str) -> str:
    """Name of a result's object."""
    return f"{RESULTS}/{key[:2]}/{key}"


def artifact_names(digest: str, kind: Modality = "image") -> list[str]:
    """Names that an artifact's object can have, as in a store's folder; that of its kind first."""
    names = [path.as_posix() for path in paths_of(Path(), digest)]
    return sorted(names, key=lambda name: kind_of_file(Path(name)) != kind)


class _Sealed(msgspec.Struct, array_like=True, frozen=True):
    format: int
    kind: str
    payload: bytes
    provenance: str
    created: float
    seal: bytes


_DECODER = msgspec.msgpack.Decoder(_Sealed)


def to_object(row: Row) -> bytes:
    """A row of the local store as an object: MessagePack, which holds data and no code."""
    _, kind, payload, provenance, created, sealed = row
    return msgspec.msgpack.encode(
        _Sealed(FORMAT, kind, payload, str(provenance), float(created), sealed)
    )


def from_object(key: str, data: bytes) -> Row:
    """The row, unchecked. Raises ValueError where the object cannot be decoded."""
    try:
        decoded = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError("it cannot be read") from error
    if decoded.format != FORMAT:
        raise ValueError(f"it has format {decoded.format}")
    return (key, *astuple(decoded)[1:])


def marker() -> bytes:
    """Content of the marker, which makes a location a store."""
    return msgspec.json.encode({"format": FORMAT})


def format_of(data: bytes) -> int | None:
    """The format in a marker; None where there is none."""
    try:
        document: Any = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    version = document.get("format") if isinstance(document, dict) else None
    return version if isinstance(version, int) else None


_REJECTED = {
    "ExpiredToken", "InvalidAccessKeyId", "InvalidSecurity", "InvalidToken", "NotSignedUp",
    "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
}  # fmt: skip

_REGION = {
    "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect",
    "Redirect", "TemporaryRedirect",
}  # fmt: skip

# By name, since the libraries may not be installed.
_NO_CREDENTIALS = {
    "CredentialRetrievalError", "DefaultCredentialsError", "NoAuthTokenError", "NoCredentialsError",
    "PartialCredentialsError", "ProfileNotFound", "SSOError", "TokenRetrievalError",
}  # fmt: skip
_NO_ANSWER = {
    "ClientError", "ConnectionError", "HTTPClientError", "ProxyConnectionError", "TimeoutError",
}  # fmt: skip

_NETWORK = {
    errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETDOWN,
    errno.ENETUNREACH, errno.ENOTCONN, errno.EPIPE, errno.ESTALE, errno.ETIMEDOUT,
}  # fmt: skip


def failure_of(error: BaseException) -> StoreFailure:
    """The failure that an error of a file system, or of the libraries below it, means."""
    if isinstance(error, RedirectError):
        return StoreFailure("redirect", f"it points to {error}, and redirects are not followed")
    code, status = server_answer(error)
    number = error.errno if isinstance(error, OSError) else None
    names = {kind.__name__ for kind in type(error).__mro__}
    silent = status is None and (bool(names & _NO_ANSWER) or number in _NETWORK)
    denied = status == 403 or "PermissionError" in names or number == errno.EROFS
    meanings: tuple[tuple[Kind, str, bool], ...] = (
        ("bucket", "there is no such bucket", code == "NoSuchBucket"),
        ("absent", "it is not there", status == 404 or "FileNotFoundError" in names),
        ("no credentials", "no credentials were found for it", bool(names & _NO_CREDENTIALS)),
        ("rejected", "the credentials are not accepted", code in _REJECTED or status == 401),
        ("region", "it is in another region", code in _REGION or status in (301, 307)),
        ("forbidden", "access is denied", denied),
        ("full", "no space is left there", number in (errno.ENOSPC, errno.EDQUOT)),
        ("no answer", "it does not answer", silent),
        ("no answer", "it answers with an error", status is not None and status >= 500),
        ("unknown", "it cannot be used", True),
    )
    kind, message = next((kind, message) for kind, message, fits in meanings if fits)
    detail = " ".join(str(part) for part in (status, code) if part)
    if kind == "unknown" and not detail:
        detail = type(error).__name__
    return StoreFailure(kind, f"{message} ({detail})" if detail and kind != "bucket" else message)


def write_failure(failure: StoreFailure) -> StoreFailure:
    """The failure as one of a write: what is absent then is not the object, but the bucket."""
    if failure.kind == "absent":
        return StoreFailure("bucket", "there is no such bucket or folder")
    return failure


def server_answer(error: BaseException) -> tuple[str | None, int | None]:
    """(code, HTTP status) of a server's answer: botocore's behind s3fs, aiohttp's, or gcsfs's."""
    for source in (error, error.__cause__):
        response: Any = getattr(source, "response", None)
        if isinstance(response, dict):
            code = response.get("Error", {}).get("Code")
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return str(code)[:60] if code else None, status if isinstance(status, int) else None
        for name in ("status", "code"):
            status = getattr(source, name, None)
            if isinstance(status, int):
                return None, status
    return None, None
