"""Shared stores: objects below a URL or in a folder, which runs read, and one publishes to.

Objects never change and there is no list of them: a marker with the format, each result under its
key, each image under the digest of its pixels. The first write of a name counts. What is read is
untrusted: it is checked, and damage looks like absence. Failures are described in our own words,
since the errors of libraries may quote secrets.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from math import inf
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pytest_cepbench.artifacts import Artifact, Modality
from pytest_cepbench.artifacts.modality import kind_of_file
from pytest_cepbench.errors import (
    ArtifactError,
    MissingDependencyError,
    SpecError,
    StoreError,
    StoreVersionError,
    UnfitFileError,
    unknown_name,
)
from pytest_cepbench.files import read_regular
from pytest_cepbench.option_values import is_url
from pytest_cepbench.store.artifact_files import (
    MOST_BYTES,
    drop_half_written,
    paths_of,
    verify_artifact,
    write_whole,
)
from pytest_cepbench.store.database import INDEX
from pytest_cepbench.store.rows import MOST_PAYLOAD, Row, batches, check_row

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

FORMAT = 1
"""Version of the layout and of a result's encoding; any change that would be misread raises it."""

MARKER = "cepbench-store.json"

RESULTS, IMAGES = "results", "images"

AT_ONCE = 64
"""Objects that are read, or written, at the same time."""

Location = str | Path
"""A URL, or a folder."""

Log = Callable[[str], None]
"""Receives one line."""

_MOST_RESULT = MOST_PAYLOAD + 2**20  # bytes of a result's object: payload, and fields around it

_ABSENT_SECONDS = 600.0  # after which an absent object is looked for again

_ABSENT = "results/absent"

_SECONDS = 120.0  # for one object, both tries

_OPENING_SECONDS = 10.0  # for each of the first objects

_CLOSING_SECONDS = 1.0

_RETRY_PAUSE = 1.0  # seconds

_STALE_SECONDS = 86400.0  # clocks of machines differ, but not by a day

_PROTOCOLS = ("abfs", "file", "gs", "hdfs", "s3", "sftp", "smb")
"""For suggestions; any other that fsspec knows works too, but for the web's."""

_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "'pytest-cepbench[s3]'"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "az"), "adlfs"),
}
"""Protocol -> what `pip install` needs."""


# -- failures --------------------------------------------------------------------------------------

Kind = Literal["absent", "bucket", "credentials", "forbidden", "no answer", "full", "unknown"]

_REMEDIES: dict[Kind, str] = {
    "bucket": "create it, or give another",
    "credentials": "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or other "
    "settings of its library (FSSPEC_...), whether they have expired, and the clock",
    "no answer": "check the network, and AWS_ENDPOINT_URL where the server is not Amazon's",
    "full": "free some space, or give another location",
    "unknown": "check the URL, and AWS_ENDPOINT_URL where the server is not Amazon's",
}

_REJECTED = {
    "ExpiredToken", "InvalidAccessKeyId", "InvalidSecurity", "InvalidToken", "NotSignedUp",
    "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
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
class StoreFailure:
    """A failed access to a shared store.

    kind: "absent" for a missing object, "bucket" for a missing bucket or folder, "credentials" for
        none or those that are not accepted, "forbidden" for credentials without the right, "no
        answer", "full" for a lack of space, "unknown" for anything else.
    message: what happened, in a clause about the location.
    """

    kind: Kind
    message: str

    @property
    def transient(self) -> bool:
        """Whether trying again soon may help."""
        return self.kind in ("no answer", "unknown")


_NO_PLACE = StoreFailure("bucket", "there is no such bucket or folder")


def failure_of(error: BaseException) -> StoreFailure:
    """The failure that an error of a file system, or of the libraries below it, means."""
    code, status = server_answer(error)
    number = error.errno if isinstance(error, OSError) else None
    names = {kind.__name__ for kind in type(error).__mro__}
    silent = status is None and (bool(names & _NO_ANSWER) or number in _NETWORK)
    denied = status == 403 or "PermissionError" in names or number == errno.EROFS
    meanings: tuple[tuple[Kind, str, bool], ...] = (
        ("bucket", "there is no such bucket", code == "NoSuchBucket"),
        ("absent", "it is not there", status == 404 or "FileNotFoundError" in names),
        ("credentials", "no credentials were found for it", bool(names & _NO_CREDENTIALS)),
        ("credentials", "the credentials are not accepted", code in _REJECTED or status == 401),
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


# -- objects ---------------------------------------------------------------------------------------


_DECODER = msgspec.msgpack.Decoder(tuple[int, str, bytes, str, float, bytes])
"""Of the format, and a row without its key."""


def to_object(row: Row) -> bytes:
    """A row of the local store as an object: MessagePack, which holds data and no code."""
    _, kind, payload, provenance, created, sealed = row
    return msgspec.msgpack.encode((FORMAT, kind, payload, str(provenance), float(created), sealed))


def from_object(key: str, data: bytes) -> Row:
    """The row, unchecked. Raises ValueError where the object cannot be decoded."""
    try:
        version, *row = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError("it cannot be read") from error
    if version != FORMAT:
        raise ValueError(f"it has format {version}")
    return key, *row


def result_name(key: str) -> str:
    """Name of a result's object."""
    return f"{RESULTS}/{key[:2]}/{key}"


def artifact_names(digest: str, kind: Modality = "image") -> list[str]:
    """Names that an artifact's object can have, as in a store's folder; that of its kind first."""
    names = [path.as_posix() for path in paths_of(Path(), digest)]
    return sorted(names, key=lambda name: kind_of_file(Path(name)) != kind)


def most_bytes(name: str) -> int:
    """Limit in bytes of an object of this name; a larger one is damaged."""
    return MOST_BYTES if name.startswith(f"{IMAGES}/") else _MOST_RESULT


class SharedStore:
    """One shared store. Any thread may call it; only an interrupt raises.

    fs: a file system of fsspec, or a `Folder`; used by this object only.
    root: the path there.
    named: the option and the location as the user gave them, without secrets.
    note: called once with a line about each damaged object.
    remark: called once when the store fails; it is not read any more then.
    bad: names of objects that are damaged, or are to be left alone for another reason; a publishing
    run overwrites them.
    """

    def __init__(self, fs: AbstractFileSystem | Folder, root: str, named: str) -> None:
        self.named = named
        self.note: Log = lambda _: None
        self.remark: Log = lambda _: None
        self.bad: set[str] = set()
        self._fs, self._root = fs, root.rstrip("/")
        self._can_create = True  # until the file system refuses a conditional write
        self._absent: dict[str, float] = {}  # when each was last looked for
        self._failed = False

    def _write(self, name: str, data: bytes, *, replace: bool) -> None:
        """Write an object, whole or not at all; unless it is replaced the first write counts."""
        path = f"{self._root}/{name}"
        if self._can_create and not replace:
            try:
                self._fs.pipe_file(path, data, mode="create")
            except FileExistsError:
                return
            except (TypeError, NotImplementedError):
                # Not every implementation of this method has modes, or has this one.
                self._can_create = False
            except OSError as error:
                _, status = server_answer(error)
                if status in (409, 412):  # not all servers name the condition that failed
                    return
                if error.errno != errno.ENOSYS and status != 501:
                    raise
                self._can_create = False
            else:
                return
        self._fs.pipe_file(path, data)

    def read(
        self, names: Iterable[str], seconds: float | None = None
    ) -> dict[str, bytes | str | StoreFailure]:
        """The content of each, or in words why it is unfit, or its failure; all at once.

        seconds: limit for each object; None for a long one.
        """

        def read(name: str) -> bytes:
            end = most_bytes(name) + 1  # a byte beyond the limit shows that it is too large
            try:
                data: bytes = self._fs.cat_file(f"{self._root}/{name}", start=0, end=end)
            except Exception as error:
                if server_answer(error)[1] == 416:  # an empty object has no range
                    return b""
                raise
            if len(data) >= end:
                raise UnfitFileError(f"it has more than {end - 1:,} bytes")
            return data

        return self._for_each(names, read, seconds)

    def write(
        self,
        objects: Mapping[str, bytes],
        replace: Container[str] = (),
        seconds: float | None = None,
    ) -> dict[str, StoreFailure]:
        """Write all of them at once; returns the failures by name: every other name exists now.

        replace: names that are overwritten.
        seconds: as of `read`.
        """

        def write(name: str) -> None:
            self._write(name, objects[name], replace=name in replace)

        answers = self._for_each(objects, write, seconds)
        failures = {n: f for n, f in answers.items() if isinstance(f, StoreFailure)}
        # What is absent when it is written is not the object.
        return {n: _NO_PLACE if f.kind == "absent" else f for n, f in failures.items()}

    def _for_each(
        self, names: Iterable[str], action: Callable[[str], Any], seconds: float | None
    ) -> dict[str, Any]:
        """What the action returns for each name; a transient failure is tried once more.

        A thread that gets no answer is left to itself; being a daemon, it keeps no process.
        """
        answers: dict[str, Any] = {}

        def work(name: str) -> None:
            answer: Any = None
            for pause in (0.0, _RETRY_PAUSE):
                time.sleep(pause)
                try:
                    answer = action(name)
                except UnfitFileError as error:
                    answer = str(error)
                except Exception as error:  # noqa: BLE001 - libraries raise anything
                    answer = failure_of(error)
                if not (isinstance(answer, StoreFailure) and answer.transient):
                    break
            answers[name] = answer

        names = list(names)
        for part in batches(names, AT_ONCE):
            threads = [Thread(target=work, args=(name,), daemon=True) for name in part]
            for thread in threads:
                thread.start()
            end = time.monotonic() + (seconds or _SECONDS)
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
            if any(name not in answers for name in part):
                break
        silent = StoreFailure("no answer", "it does not answer")
        return {name: answers.get(name, silent) for name in names}

    def close(self) -> None:
        """Close the connections that s3fs keeps open; other file systems' end with the process."""
        fs: Any = self._fs
        if hasattr(fs, "set_session"):
            from fsspec.asyn import sync

            async def close() -> None:
                await (await fs.set_session()).close()  # as its documentation has it

            with suppress(Exception):  # whatever it is, the run is over
                sync(fs.loop, close, timeout=_CLOSING_SECONDS)

    # -- checked reading -------------------------------------------------------------------------

    def rows(self, keys: Iterable[str]) -> list[tuple[Row, str | None]]:
        """The undamaged rows under these keys, with the digest of the artifact that each refers to.

        Read at once.
        """
        names = {result_name(key): key for key in keys}
        sound = []
        for name, data in self._known(names).items():
            key = names[name]
            try:
                row = from_object(key, data)
                sound.append((row, check_row(row)))
            except ValueError as error:
                self._add_bad(name, f"result {key[:12]}", str(error))
        return sound

    def artifact(self, digest: str, kind: Modality = "image") -> tuple[Artifact, bytes] | None:
        """The image or sound with its file; None when it is absent or damaged.

        kind: what is looked for first.
        """
        for name in artifact_names(digest, kind):
            data = self._known([name]).get(name)
            if data is None:
                continue
            try:
                return verify_artifact(data, digest), data
            except ArtifactError as error:
                self._add_bad(name, f"{kind_of_file(Path(name))} {digest[:12]}", str(error))
        return None

    def refuse(self, keys: Sequence[str]) -> None:
        """Return nothing under these keys any more."""
        self.bad.update(map(result_name, keys))

    def _known(self, names: Iterable[str]) -> dict[str, bytes]:
        now = time.monotonic()
        wanted = [
            name
            for name in names
            if name not in self.bad and now - self._absent.get(name, -inf) >= _ABSENT_SECONDS
        ]
        if not wanted or self._failed:
            return {}
        known: dict[str, bytes] = {}
        for name, answer in self.read(wanted).items():
            if isinstance(answer, bytes):
                known[name] = answer
            elif isinstance(answer, str):
                self._add_bad(name, Path(name).stem[:12], answer)
            elif answer.kind == "absent":
                self._absent[name] = now
            elif not self._failed:
                self._failed = True
                self.remark(f"{self.named}: {answer.message}; this run does not read it any more")
        return known

    def _add_bad(self, name: str, what: str, why: str) -> None:
        if name not in self.bad:
            self.bad.add(name)
            self.note(f"{what} in {self.named}: {why}")


class Folder:
    """A folder, such as one that machines mount, with the two methods of fsspec that are needed.

    fsspec's own for local files write them in place, so that others could read a half of one.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def cat_file(self, path: str, *, start: int, end: int) -> bytes:  # noqa: ARG002 - fsspec's
        """The bytes of a file. Raises UnfitFileError where it has `end` or more, or is no file."""
        return read_regular(Path(path), end - 1)

    def pipe_file(self, path: str, data: bytes, mode: str = "overwrite") -> None:
        """Write a file, whole or not at all. Raises FileExistsError as mode `create` says."""
        write_whole(self._root, Path(path), data, replace=mode != "create")


# -- opening ---------------------------------------------------------------------------------------


def open_shared(
    location: Location, source: str, *, writing: bool, optional: bool = False
) -> SharedStore | None:
    """Open a shared store and check that it answers.

    location: URL or folder.
    source: the option or command that names it, for errors.
    writing: whether it must be writable; it is created where there is none.
    optional: whether None is returned where there is no store, instead of an error.
    Raises CepError kinds, in one line.
    """
    shared = _connect(location, source, writing=writing)
    # Without the right to list, Amazon calls an absent object forbidden: find that out now.
    answers = shared.read([MARKER, _ABSENT], _OPENING_SECONDS)
    for answer in answers.values():
        if isinstance(answer, StoreFailure) and answer.kind != "absent":
            raise _store_error(shared, answer, "read")
    data = answers[MARKER]
    if isinstance(data, bytes) and _format_of(data) != FORMAT:
        raise StoreVersionError(
            f"{shared.named} holds a store of format {_format_of(data)}, this version works "
            f"with format {FORMAT}: give another location, or use the same version of "
            "pytest-cepbench everywhere"
        )
    if not isinstance(data, bytes) and not writing:
        if optional:
            return None
        raise StoreError(
            f"{shared.named} holds no shared store (no {MARKER}): one is made by a run with "
            "--cep-publish"
        )
    if writing:
        # Also over an existing marker, which stays: missing rights to write show now.
        marker = msgspec.json.encode({"format": FORMAT})
        for failure in shared.write({MARKER: marker}, seconds=_OPENING_SECONDS).values():
            raise _store_error(shared, failure, "write")
    return shared


def _format_of(data: bytes) -> int | None:
    """The format in a marker; None where there is none."""
    try:
        document: Any = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    version = document.get("format") if isinstance(document, dict) else None
    return version if isinstance(version, int) else None


def _connect(location: Location, source: str, *, writing: bool) -> SharedStore:
    text = str(location)
    if isinstance(location, Path) or not is_url(text):
        return _folder(Path(text), f"{source} {text!r}", writing=writing)
    protocol, _, rest = text.partition("://")
    host, slash, path = rest.partition("?")[0].partition("/")
    named = f"{source} {protocol}://{host.rpartition('@')[2]}{slash}{path}"
    if "@" in rest.partition("/")[0] or "?" in rest:
        raise SpecError(
            f"{named}: a URL may hold no user, password or query, since it is shown and stored: "
            "give credentials in the environment (AWS_..., FSSPEC_...)"
        )
    if protocol in ("file", "local"):
        if not rest.startswith("/"):
            raise SpecError(f"{named}: an absolute path is expected, such as file:///mnt/shared")
        return _folder(Path(rest), named, writing=writing)
    if find_spec("fsspec") is None:
        raise _not_installed(named, protocol)
    import fsspec
    from fsspec.config import conf

    try:
        fsspec.get_filesystem_class(protocol)
    except ValueError:
        raise SpecError(f"{named}: {unknown_name('protocol', protocol, _PROTOCOLS)}") from None
    except ImportError:
        raise _not_installed(named, protocol) from None
    if protocol in ("http", "https"):
        raise SpecError(f"{named}: a web server is no shared store: give a bucket or a folder")
    options: dict[str, Any] = {}
    if protocol in ("s3", "s3a"):
        # The library's own defaults are too slow; with more than one connection for an object, it
        # asks for its size before it reads it.
        defaults = {
            "max_pool_connections": AT_ONCE,
            "connect_timeout": 5,
            "read_timeout": 10,
            "retries": {"total_max_attempts": 3, "mode": "standard"},
        }
        configured = conf.get(protocol, {}).get("config_kwargs", {})
        options = {"max_concurrency": 1, "config_kwargs": defaults | configured}
    try:
        fs, root = fsspec.core.url_to_fs(text, skip_instance_cache=True, **options)
    except Exception as error:
        # Each library checks its settings in its own way, and its error may quote them.
        raise StoreError(
            f"{named} cannot be opened ({type(error).__name__}): check its FSSPEC_... settings"
        ) from error
    if not root.strip("/"):
        raise SpecError(f"{named}: the bucket is missing: {protocol}://BUCKET/PREFIX is expected")
    if options:
        fs.retries = 1  # of s3fs, which come on top of botocore's
    return SharedStore(fs, root, named)


def _folder(path: Path, named: str, *, writing: bool) -> SharedStore:
    shared = SharedStore(Folder(path), str(path), named)
    if (path / INDEX).exists():
        raise SpecError(
            f"{named} is the folder of a local store, which is not shared as it is: runs publish "
            "to another folder or a bucket with --cep-publish"
        )
    if path.exists() and not path.is_dir():
        raise SpecError(f"{named} is a file: give a folder")
    if not writing:
        return shared
    try:
        path.mkdir(exist_ok=True)  # without its parents: a disk may not be mounted there
        foreign = not (path / MARKER).exists() and any(path.iterdir())
    except OSError as error:
        failure = failure_of(error)
        if failure.kind == "absent":
            failure = _NO_PLACE
        raise _store_error(shared, failure, "write") from None
    if foreign:
        raise SpecError(
            f"{named} holds other files and no shared store: give an empty folder, or a new one"
        )
    with suppress(OSError):  # other users' files, or no right to: they do no harm
        drop_half_written(path, _STALE_SECONDS)
    return shared


def _not_installed(named: str, protocol: str) -> MissingDependencyError:
    package = _PACKAGES.get(protocol, "fsspec, and what it needs for this protocol")
    return MissingDependencyError(
        f"{named} needs a package that is not installed: pip install {package}"
    )


def _store_error(shared: SharedStore, failure: StoreFailure, what: str) -> StoreError:
    remedy = _REMEDIES.get(failure.kind)
    if failure.kind == "forbidden":
        needs = "s3:GetObject and s3:ListBucket" if what == "read" else "s3:PutObject"
        remedy = f"allow these credentials to {what} there ({needs} on S3)"
        if what == "write":
            remedy += ", or only read it, with --cep-shared"
    return StoreError(f"{shared.named}: {failure.message}: {remedy}")
