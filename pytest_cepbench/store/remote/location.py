"""From what a user names to a shared store that answers; whatever is wrong with it is one line."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_cepbench.errors import (
    MissingDependencyError,
    SpecError,
    StoreError,
    StoreVersionError,
    unknown_name,
)
from pytest_cepbench.option_values import is_url
from pytest_cepbench.store.readonly import INDEX
from pytest_cepbench.store.remote.object_store import FORMAT, MARKER, ObjectStore, format_of, marker
from pytest_cepbench.store.remote.redirects import WEB, refusing
from pytest_cepbench.store.remote.remote_errors import Kind, StoreFailure, trouble_of, unwritten
from pytest_cepbench.store.remote.shared_folder import FolderObjects

_SECONDS = 10.0
"""For the first answers."""

_FILES = ("file", "local")

_ABSENT = "results/absent"

_KNOWN = ("abfs", "file", "gs", "hdfs", "https", "s3", "sftp", "smb")
"""To be proposed; whatever else fsspec knows works too."""

_PACKAGES = {
    "s3": "'pytest-cepbench[s3]'",
    "s3a": "'pytest-cepbench[s3]'",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
}

_REMEDIES: dict[Kind, str] = {
    "bucket": "create it, or name another",
    "nobody": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or what else its library reads (FSSPEC_...)",
    "refused": "look at the keys in the environment, whether they have expired, and at the clock",
    "silent": "look at the network, and at AWS_ENDPOINT_URL where the server is not Amazon's",
    "elsewhere": "name the place that it points to, if it is yours",
    "region": "set AWS_DEFAULT_REGION to the region of the bucket",
    "full": "make room, or name another place",
    "odd": "look at the URL, and at AWS_ENDPOINT_URL where the server is not Amazon's",
}


def open_objects(
    place: str | Path, source: str, *, writing: bool, absent_is_fine: bool = False
) -> ObjectStore | None:
    """A shared store, found to answer within seconds.

    place: URL or folder. source: who named it, for errors. writing: made where there is none, and
    it must be possible to write. absent_is_fine: None in the place of an error where there is no
    store. Raises CepError kinds.
    """
    objects = _connect(place, source, writing=writing)
    try:
        fits = _check(objects, writing=writing, absent_is_fine=absent_is_fine)
    except BaseException:
        objects.close()
        raise
    if fits:
        return objects
    objects.close()
    return None


def shown(url: str) -> str:
    """A URL without what could be a secret."""
    protocol, mark, rest = url.partition("://")
    place = rest.partition("?")[0]
    host, slash, path = place.partition("/")
    return f"{protocol}{mark}{host.rpartition('@')[2]}{slash}{path}"


def _connect(place: str | Path, source: str, *, writing: bool) -> ObjectStore:
    text = str(place)
    if isinstance(place, Path) or not is_url(text):
        return _folder(Path(text), f"{source} {text!r}", writing=writing)
    named = f"{source} {shown(text)}"
    protocol, _, rest = text.partition("://")
    if "@" in rest.partition("/")[0] or "?" in rest:
        msg = (
            f"{named}: a URL may hold no user, password or query, since it is shown and kept: give "
            "credentials by the environment (AWS_..., FSSPEC_...)"
        )
        raise SpecError(msg)
    if protocol in _FILES:
        if not rest.startswith("/"):
            msg = f"{named}: an absolute path is expected, such as file:///mnt/shared"
            raise SpecError(msg)
        return _folder(Path(rest), named, writing=writing)
    return _bucket(protocol, text, named)


def _folder(path: Path, named: str, *, writing: bool) -> ObjectStore:
    objects = FolderObjects(path, named)
    if (path / INDEX).exists():
        msg = (
            f"{named} is the folder of a local store, which only --cep-store and --cep-shared can use: "
            "name another folder"
        )
        raise SpecError(msg)
    if path.exists() and not path.is_dir():
        msg = f"{named} is a file: name a folder"
        raise SpecError(msg)
    if not writing:
        return objects
    try:
        path.mkdir(exist_ok=True)  # and not what it lies in: that may be a disk that is not mounted
        strange = not (path / MARKER).exists() and any(path.iterdir())
    except OSError as error:
        raise _refusal(objects, unwritten(trouble_of(error)), "write") from None
    if strange:
        msg = f"{named} holds other things and no shared store: name an empty folder, or a new one"
        raise SpecError(msg)
    objects.sweep()
    return objects


def _bucket(protocol: str, url: str, named: str) -> ObjectStore:
    if find_spec("fsspec") is None:
        raise _not_installed(named, protocol)
    import fsspec
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

    from pytest_cepbench.store.remote.bucket import BucketObjects

    try:
        fsspec.get_filesystem_class(protocol)
    except ValueError:
        msg = f"{named}: {unknown_name('protocol', protocol, _KNOWN)}"
        raise SpecError(msg) from None
    except ImportError:
        raise _not_installed(named, protocol) from None
    try:
        fs, root = fsspec.core.url_to_fs(url, skip_instance_cache=True, **_settings(protocol))
    except Exception as error:
        # Each library checks its own settings in its own way, and may quote them.
        msg = f"{named} cannot be opened ({type(error).__name__}): look at its FSSPEC_... settings"
        raise StoreError(msg) from error
    if not root.strip("/"):
        msg = f"{named}: no bucket is named: {protocol}://BUCKET/PREFIX is expected"
        raise SpecError(msg)
    if protocol in ("s3", "s3a"):
        fs.retries = 1  # of s3fs, which come on top of botocore's
    if not fs.async_impl:
        fs = AsyncFileSystemWrapper(fs, asynchronous=False)
    return BucketObjects(fs, root, named)


def _settings(protocol: str) -> dict[str, Any]:
    """What the libraries' own defaults are too slow or too trusting for."""
    if protocol not in ("s3", "s3a", *WEB):
        return {}
    from fsspec.config import conf

    if protocol in WEB:
        return {"client_kwargs": refusing(conf.get(protocol, {}).get("client_kwargs", {}))}
    said = conf.get(protocol, {}).get("config_kwargs", {})
    ours = {
        "max_pool_connections": 64,
        "connect_timeout": 5,
        "read_timeout": 10,
        "retries": {"total_max_attempts": 3, "mode": "standard"},
    }
    # With more than one connection for an object, s3fs asks for its size before it reads it.
    return {"max_concurrency": 1, "config_kwargs": ours | said}


def _not_installed(named: str, protocol: str) -> MissingDependencyError:
    package = _PACKAGES.get(protocol)
    if package is None and find_spec("fsspec") is not None:
        from fsspec.registry import known_implementations

        how = str(known_implementations.get(protocol, {}).get("err", "")) or "see fsspec"
    else:
        how = f"pip install {package or 'fsspec'}"
    return MissingDependencyError(
        f"{named} needs a package that is not installed: {how.rstrip('.')}"
    )


def _check(objects: ObjectStore, *, writing: bool, absent_is_fine: bool) -> bool:
    """Whether there is a store now. Raises StoreError kinds."""
    # Who may not list a bucket of Amazon's hears that what is absent is forbidden: ask for it now.
    fetched = objects.read([MARKER, _ABSENT], _SECONDS)
    if fetched.trouble is not None:
        raise _refusal(objects, fetched.trouble, "read")
    data = fetched.found.get(MARKER)
    if data is not None and format_of(data) != FORMAT:
        msg = (
            f"{objects.named} holds a store of format {format_of(data)}, this version works with format "
            f"{FORMAT}: name another place, or take the same version of pytest-cepbench everywhere"
        )
        raise StoreVersionError(msg)
    if data is None and not writing:
        if absent_is_fine:
            return False
        msg = (
            f"{objects.named} holds no shared store (no {MARKER}): one is made by a run with "
            "--cep-publish, or by cepbench store push"
        )
        raise StoreError(msg)
    if writing:
        # Also where it is there: it is left alone, and who may not write hears it now.
        written = objects.write({MARKER: marker()}, seconds=_SECONDS)
        for trouble in written.failed.values():
            raise _refusal(objects, trouble, "write")
    return True


def _refusal(objects: ObjectStore, trouble: StoreFailure, what: str) -> StoreError:
    remedy = _REMEDIES.get(trouble.kind)
    if trouble.kind == "forbidden":
        needs = "s3:GetObject and s3:ListBucket" if what == "read" else "s3:PutObject"
        remedy = f"allow these credentials to {what} there ({needs} on S3)"
        if what == "write":
            remedy += ", or only read it, with --cep-shared"
    return StoreError(f"{objects.named}: {trouble.words}: {remedy}")
