"""Shared stores in folders, and opening the one at a URL or folder.

Any problem with a location is one line.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from pytest_cepbench.errors import (
    MissingDependencyError,
    RedirectError,
    SpecError,
    StoreError,
    StoreVersionError,
    UnfitFileError,
    unknown_name,
)
from pytest_cepbench.escapes import redirect_target
from pytest_cepbench.files import read_regular
from pytest_cepbench.option_values import is_url
from pytest_cepbench.store.database import INDEX
from pytest_cepbench.store.remote.object_store import (
    FORMAT,
    MARKER,
    Kind,
    ObjectStore,
    StoreFailure,
    failure_of,
    format_of,
    marker,
    most_bytes,
    write_failure,
)

_SECONDS = 10.0
"""Timeout of the first requests."""

_FILES = ("file", "local")

_WEB = ("http", "https")

_ABSENT = "results/absent"

_KNOWN = ("abfs", "file", "gs", "hdfs", "https", "s3", "sftp", "smb")
"""Protocols for suggestions; any other that fsspec knows works too."""

_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "'pytest-cepbench[s3]'"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "az"), "adlfs"),
}
"""Protocol -> what `pip install` needs."""

_REMEDIES: dict[Kind, str] = {
    "bucket": "create it, or give another",
    "no credentials": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or other "
    "settings of its library (FSSPEC_...)",
    "rejected": "check the keys in the environment, whether they have expired, and the clock",
    "no answer": "check the network, and AWS_ENDPOINT_URL where the server is not Amazon's",
    "redirect": "give the location that it points to, if it is yours",
    "region": "set AWS_DEFAULT_REGION to the region of the bucket",
    "full": "free some space, or give another location",
    "unknown": "check the URL, and AWS_ENDPOINT_URL where the server is not Amazon's",
}


def open_objects(
    location: str | Path, source: str, *, writing: bool, optional: bool = False
) -> ObjectStore | None:
    """Open a shared store and check within seconds that it answers.

    location: URL or folder.
    source: the option or command that names it, for errors.
    writing: whether it must be writable; it is created where there is none.
    optional: whether None is returned where there is no store, instead of an error.
    Raises CepError kinds.
    """
    objects = _connect(location, source, writing=writing)
    with ExitStack() as opened:
        opened.callback(objects.close)
        if not _check(objects, writing=writing, optional=optional):
            return None
        opened.pop_all()
    return objects


def without_secrets(url: str) -> str:
    """A URL without user, password and query, which could be secret."""
    protocol, mark, rest = url.partition("://")
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{protocol}{mark}{host.rpartition('@')[2]}{slash}{path}"


def _connect(location: str | Path, source: str, *, writing: bool) -> ObjectStore:
    text = str(location)
    if isinstance(location, Path) or not is_url(text):
        return _folder(Path(text), f"{source} {text!r}", writing=writing)
    named = f"{source} {without_secrets(text)}"
    protocol, _, rest = text.partition("://")
    if "@" in rest.partition("/")[0] or "?" in rest:
        raise SpecError(
            f"{named}: a URL may hold no user, password or query, since it is shown and stored: "
            "give credentials in the environment (AWS_..., FSSPEC_...)"
        )
    if protocol in _FILES:
        if not rest.startswith("/"):
            raise SpecError(f"{named}: an absolute path is expected, such as file:///mnt/shared")
        return _folder(Path(rest), named, writing=writing)
    if find_spec("fsspec") is None:
        raise _not_installed(named, protocol)
    import fsspec

    from pytest_cepbench.store.remote.bucket import BucketObjects

    try:
        fsspec.get_filesystem_class(protocol)
    except ValueError:
        raise SpecError(f"{named}: {unknown_name('protocol', protocol, _KNOWN)}") from None
    except ImportError:
        raise _not_installed(named, protocol) from None
    try:
        fs, root = fsspec.core.url_to_fs(text, skip_instance_cache=True, **_settings(protocol))
    except Exception as error:
        # Each library checks its settings in its own way, and its error may quote them.
        raise StoreError(
            f"{named} cannot be opened ({type(error).__name__}): check its FSSPEC_... settings"
        ) from error
    if not root.strip("/"):
        raise SpecError(f"{named}: the bucket is missing: {protocol}://BUCKET/PREFIX is expected")
    if protocol in ("s3", "s3a"):
        fs.retries = 1  # of s3fs, which come on top of botocore's
    return BucketObjects(fs, root, named)


def _folder(path: Path, named: str, *, writing: bool) -> ObjectStore:
    objects = FolderObjects(path, named)
    if (path / INDEX).exists():
        raise SpecError(
            f"{named} is the folder of a local store, which only --cep-store and --cep-shared can "
            "use: give another folder"
        )
    if path.exists() and not path.is_dir():
        raise SpecError(f"{named} is a file: give a folder")
    if not writing:
        return objects
    try:
        path.mkdir(exist_ok=True)  # without its parents: a disk may not be mounted there
        foreign = not (path / MARKER).exists() and any(path.iterdir())
    except OSError as error:
        raise _store_error(objects, write_failure(failure_of(error)), "write") from None
    if foreign:
        raise SpecError(
            f"{named} holds other files and no shared store: give an empty folder, or a new one"
        )
    with suppress(OSError):  # other users' files, or no right to: they do no harm
        for fresh in (path / _NEW).iterdir():  # that killed processes left half-written
            if time.time() - fresh.stat().st_mtime > _STALE_SECONDS:
                fresh.unlink()
    return objects


def _settings(protocol: str) -> dict[str, Any]:
    """Settings in place of the libraries' defaults, which are too slow or follow redirects."""
    if protocol not in ("s3", "s3a", *_WEB):
        return {}
    from fsspec.config import conf

    if protocol in _WEB:
        from aiohttp import TraceConfig

        async def refuse(_: object, __: object, event: Any) -> None:
            headers = event.response.headers
            target = headers.get("Location") or headers.get("URI", "")
            raise RedirectError(redirect_target(target, str(event.url)))

        tracing = TraceConfig()  # aiohttp would follow a redirect also with what is being uploaded
        tracing.on_request_redirect.append(refuse)
        client = conf.get(protocol, {}).get("client_kwargs", {})
        client = client | {"trace_configs": [*client.get("trace_configs", ()), tracing]}
        return {"client_kwargs": client}
    configured = conf.get(protocol, {}).get("config_kwargs", {})
    defaults = {
        "max_pool_connections": 64,
        "connect_timeout": 5,
        "read_timeout": 10,
        "retries": {"total_max_attempts": 3, "mode": "standard"},
    }
    # With more than one connection for an object, s3fs asks for its size before it reads it.
    return {"max_concurrency": 1, "config_kwargs": defaults | configured}


def _not_installed(named: str, protocol: str) -> MissingDependencyError:
    package = _PACKAGES.get(protocol)
    if package is None and find_spec("fsspec") is not None:
        from fsspec.registry import known_implementations

        hint = str(known_implementations.get(protocol, {}).get("err", "")) or "see fsspec"
    else:
        hint = f"pip install {package or 'fsspec'}"
    return MissingDependencyError(
        f"{named} needs a package that is not installed: {hint.rstrip('.')}"
    )


def _check(objects: ObjectStore, *, writing: bool, optional: bool) -> bool:
    """True where there is a store now. Raises StoreError kinds."""
    # Without the right to list, Amazon calls an absent object forbidden: find that out now.
    fetched = objects.read([MARKER, _ABSENT], _SECONDS)
    if fetched.failure is not None:
        raise _store_error(objects, fetched.failure, "read")
    data = fetched.objects.get(MARKER)
    if data is not None and format_of(data) != FORMAT:
        raise StoreVersionError(
            f"{objects.named} holds a store of format {format_of(data)}, this version works with "
            f"format {FORMAT}: give another location, or use the same version of pytest-cepbench "
            "everywhere"
        )
    if data is None and not writing:
        if optional:
            return False
        raise StoreError(
            f"{objects.named} holds no shared store (no {MARKER}): one is made by a run with "
            "--cep-publish"
        )
    if writing:
        # Also over an existing marker, which stays: missing rights to write show now.
        for failure in objects.write({MARKER: marker()}, seconds=_SECONDS).values():
            raise _store_error(objects, failure, "write")
    return True


def _store_error(objects: ObjectStore, failure: StoreFailure, what: str) -> StoreError:
    remedy = _REMEDIES.get(failure.kind)
    if failure.kind == "forbidden":
        needs = "s3:GetObject and s3:ListBucket" if what == "read" else "s3:PutObject"
        remedy = f"allow these credentials to {what} there ({needs} on S3)"
        if what == "write":
            remedy += ", or only read it, with --cep-shared"
    return StoreError(f"{objects.named}: {failure.message}: {remedy}")


# -- folders ---------------------------------------------------------------------------------------


_THREADS = 16  # a mounted folder answers as slowly as the network does

_NEW = "new"

_STALE_SECONDS = 86400.0  # clocks of machines differ, but not by a day

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)


class FolderObjects(ObjectStore):
    """The objects in a folder; see `ObjectStore`.

    root: the folder.
    named: the option and the folder as the user gave them.
    """

    def __init__(self, root: Path, named: str) -> None:
        super().__init__(named)
        self._root = root
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="shared-store")

    def _for_each(
        self,
        names: Iterable[str],
        action: Callable[[str, float], Any],
        seconds: float | None,  # noqa: ARG002 - the kernel has no timeout
    ) -> dict[str, Any]:
        def answer(name: str) -> Any:
            try:
                return action(name, 0.0)
            except UnfitFileError as error:
                return str(error)
            except OSError as error:
                return failure_of(error)

        return dict(zip(names, self._threads.map(answer, names), strict=True))

    def _read(self, name: str, _: float) -> bytes:
        return read_regular(self._root / name, most_bytes(name))

    def _write(self, name: str, data: bytes, _: float, *, replace: bool) -> None:
        target = self._root / name
        if not replace and target.exists():
            return
        fresh = self._root / _NEW / uuid4().hex
        self._in_folder(fresh, lambda: fresh.write_bytes(data))
        try:
            if replace:
                self._in_folder(target, lambda: fresh.replace(target))
            else:
                self._in_folder(target, lambda: _link(fresh, target))
        except FileExistsError:  # another process was first
            return
        finally:
            fresh.unlink(missing_ok=True)

    def _in_folder(self, path: Path, action: Callable[[], object]) -> None:
        """Call the action; where the folder of a path is absent, create it and call again."""
        try:
            action()
        except FileNotFoundError:
            if not self._root.is_dir():  # no longer mounted: create nothing on the disk below it
                raise
            path.parent.mkdir(parents=True, exist_ok=True)
            action()

    def list(self, folder: str) -> dict[str, int]:
        """Sizes in bytes of all files below a folder, by name; see `ObjectStore`."""
        sizes = {}
        try:
            for parent, _, names in os.walk(self._root / folder):
                for name in names:
                    path = Path(parent, name)
                    with suppress(FileNotFoundError):
                        sizes[path.relative_to(self._root).as_posix()] = path.stat().st_size
        except OSError as error:
            raise StoreError(f"{self.named}: {failure_of(error).message}") from None
        return sizes

    def close(self) -> None:
        """End the threads; one that the kernel blocks is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _link(fresh: Path, target: Path) -> None:
    """Give a file its name unless that is taken; where there are no links, the last one wins."""
    try:
        os.link(fresh, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        fresh.replace(target)
