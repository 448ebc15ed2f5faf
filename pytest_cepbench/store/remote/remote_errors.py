"""What goes wrong with a shared store, in words: the errors of its libraries may quote secrets."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pytest_cepbench.errors import RedirectError

Kind = Literal[
    "absent", "bucket", "nobody", "refused", "forbidden", "silent", "elsewhere", "region", "full",
    "odd",
]  # fmt: skip


@dataclass(frozen=True)
class StoreFailure:
    """Something that went wrong. words: what, said of the place.

    kind: absent: the object is not there. bucket: nor is the bucket or folder. nobody: no credentials.
    refused: credentials are not accepted. forbidden: they may not do this. silent: no answer.
    elsewhere: it points to another place. region: another one is meant. full: no space. odd: anything else.
    """

    kind: Kind
    words: str

    @property
    def passing(self) -> bool:
        """Whether trying again soon may help."""
        return self.kind in ("silent", "odd")

    @property
    def everywhere(self) -> bool:
        """Whether all other objects of the place meet it as well."""
        return self.kind not in ("absent", "odd")


_REFUSED = {
    "ExpiredToken", "InvalidAccessKeyId", "InvalidSecurity", "InvalidToken", "NotSignedUp",
    "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
}  # fmt: skip

_REGION = {
    "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect",
    "Redirect", "TemporaryRedirect",
}  # fmt: skip

# By name, since the libraries may not be installed.
_NOBODY = {
    "CredentialRetrievalError", "DefaultCredentialsError", "NoAuthTokenError", "NoCredentialsError",
    "PartialCredentialsError", "ProfileNotFound", "SSOError", "TokenRetrievalError",
}  # fmt: skip
_SILENT = {
    "ClientError",
    "ConnectionError",
    "HTTPClientError",
    "ProxyConnectionError",
    "TimeoutError",
}

_NETWORK = {
    errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETDOWN,
    errno.ENETUNREACH, errno.ENOTCONN, errno.EPIPE, errno.ESTALE, errno.ETIMEDOUT,
}  # fmt: skip


@dataclass(frozen=True)
class _Signs:
    """What an error says of itself. number: as in `errno`. names: of its classes."""

    code: str | None
    status: int | None
    number: int | None
    names: frozenset[str]


_MEANINGS: tuple[tuple[Kind, str, Callable[[_Signs], bool]], ...] = (
    ("bucket", "there is no such bucket", lambda of: of.code == "NoSuchBucket"),
    ("absent", "it is not there", lambda of: of.status == 404 or "FileNotFoundError" in of.names),
    ("nobody", "no credentials were found for it", lambda of: bool(of.names & _NOBODY)),
    (
        "refused", "the credentials are not accepted",
        lambda of: of.code in _REFUSED or of.status == 401,
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
        "silent", "it does not answer",
        lambda of: of.status is None and (bool(of.names & _SILENT) or of.number in _NETWORK),
    ),
    ("silent", "it answers with an error", lambda of: of.status is not None and of.status >= 500),
)  # fmt: skip
"""Of which kind an error is: the first that fits."""


def trouble_of(error: BaseException) -> StoreFailure:
    """What an error of a file system, or of the libraries below it, means."""
    if isinstance(error, RedirectError):
        return StoreFailure("elsewhere", f"it points to {error}, and redirects are not followed")
    code, status = answer_of(error)
    number = error.errno if isinstance(error, OSError) else None
    signs = _Signs(code, status, number, frozenset(kind.__name__ for kind in type(error).__mro__))
    odd: tuple[Kind, str] = ("odd", "it cannot be used")
    kind, words = next(((kind, words) for kind, words, fits in _MEANINGS if fits(signs)), odd)
    said = " ".join(str(part) for part in (status, code) if part)
    if kind == "odd" and not said:
        said = type(error).__name__
    return StoreFailure(kind, f"{words} ({said})" if said and kind != "bucket" else words)


def unwritten(trouble: StoreFailure) -> StoreFailure:
    """What cannot be found when it is written to is not the object."""
    if trouble.kind == "absent":
        return StoreFailure("bucket", "there is no such bucket or folder")
    return trouble


def answer_of(error: BaseException) -> tuple[str | None, int | None]:
    """(code, HTTP status) of a server's answer: botocore's behind s3fs, aiohttp's, or gcsfs's."""
    for one in (error, error.__cause__):
        response: Any = getattr(one, "response", None)
        if isinstance(response, dict):
            code = response.get("Error", {}).get("Code")
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return str(code)[:60] if code else None, status if isinstance(status, int) else None
        for name in ("status", "code"):
            status = getattr(one, name, None)
            if isinstance(status, int):
                return None, status
    return None, None
