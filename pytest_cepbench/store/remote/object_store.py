"""The format of a shared store of objects, the interface of its backends, and their failures.

Objects never change and there is no list of them: a marker with the format, each result under its
key, each image under the digest of its pixels. The first write of a name counts.

Failures are described in our own words, since the errors of the libraries may quote secrets.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import msgspec
from msgspec.structs import astuple

from pytest_cepbench.errors import RedirectError
from pytest_cepbench.store.images import MOST_BYTES, image_path
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

    @classmethod
    def of(cls, answers: Mapping[str, bytes | str | StoreFailure]) -> Self:
        """Sort the answers by name: contents, reasons why objects are unfit, failures."""
        failures = (a for a in answers.values() if isinstance(a, StoreFailure))
        return cls(
            {name: answer for name, answer in answers.items() if isinstance(answer, bytes)},
            next((failure for failure in failures if failure.kind != "absent"), None),
            {name: answer for name, answer in answers.items() if isinstance(answer, str)},
        )


class ObjectStore(Protocol):
    """A backend: bytes under names. Any thread may call it; only an interrupt raises.

    named: the option and the location as the user gave them, without secrets.
    """

    named: str

    def read(self, names: Sequence[str], seconds: float | None = None) -> FetchResult:
        """Read all of them at once. seconds: timeout for one object; None for a long one."""
        ...

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
        ...

    def list(self, folder: str) -> dict[str, int]:
        """Sizes in bytes of all objects below a folder, by name. Raises StoreError."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


def most_bytes(name: str) -> int:
    """Limit in bytes of an object of this name; a larger one is damaged."""
    return MOST_BYTES if name.startswith(f"{IMAGES}/") else MOST_RESULT


def result_name(key: str) -> str:
    """Name of a result's object."""
    return f"{RESULTS}/{key[:2]}/{key}"


def image_name(digest: str) -> str:
    """Name of an image's object, the same as in a store's folder."""
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


@dataclass(frozen=True)
class _ErrorInfo:
    """What an error tells.

    code: of the server, such as NoSuchBucket.
    status: of HTTP.
    number: as in `errno`.
    names: of its classes.
    """

    code: str | None
    status: int | None
    number: int | None
    names: frozenset[str]


_MEANINGS: tuple[tuple[Kind, str, Callable[[_ErrorInfo], bool]], ...] = (
    ("bucket", "there is no such bucket", lambda of: of.code == "NoSuchBucket"),
    ("absent", "it is not there", lambda of: of.status == 404 or "FileNotFoundError" in of.names),
    (
        "no credentials", "no credentials were found for it",
        lambda of: bool(of.names & _NO_CREDENTIALS),
    ),
    (
        "rejected", "the credentials are not accepted",
        lambda of: of.code in _REJECTED or of.status == 401,
    ),
    (
        "region", "it is in another region",
        lambda of: of.code in _REGION or of.status in (301, 307),
    ),
    (
        "forbidden", "access is denied",
        lambda of: (
            of.status == 403 or "PermissionError" in of.names or of.number == errno.EROFS
        ),
    ),
    ("full", "no space is left there", lambda of: of.number in (errno.ENOSPC, errno.EDQUOT)),
    (
        "no answer", "it does not answer",
        lambda of: of.status is None and (bool(of.names & _NO_ANSWER) or of.number in _NETWORK),
    ),
    (
        "no answer", "it answers with an error",
        lambda of: of.status is not None and of.status >= 500,
    ),
)  # fmt: skip
"""(kind, message, test) of errors; the first that fits counts."""


def failure_of(error: BaseException) -> StoreFailure:
    """The failure that an error of a file system, or of the libraries below it, means."""
    if isinstance(error, RedirectError):
        return StoreFailure("redirect", f"it points to {error}, and redirects are not followed")
    code, status = server_answer(error)
    number = error.errno if isinstance(error, OSError) else None
    info = _ErrorInfo(
        code, status, number, frozenset(kind.__name__ for kind in type(error).__mro__)
    )
    unknown: tuple[Kind, str] = ("unknown", "it cannot be used")
    kind, message = next(((kind, text) for kind, text, fits in _MEANINGS if fits(info)), unknown)
    detail = " ".join(str(part) for part in (status, code) if part)
    if kind == "unknown" and not detail:
        detail = type(error).__name__
    return StoreFailure(kind, f"{message} ({detail})" if detail and kind != "bucket" else message)


def write_failure(failure: StoreFailure) -> StoreFailure:
    """The failure as one of a write: what is absent then is not the object, but the bucket."""
    if failure.kind == "absent":
        return StoreFailure("bucket", "there is no such bucket or folder")
    return failure


def write_failures(answers: Mapping[str, object]) -> dict[str, StoreFailure]:
    """The failures among the answers to a write, by name."""
    return {
        name: write_failure(answer)
        for name, answer in answers.items()
        if isinstance(answer, StoreFailure)
    }


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
