"""The format of shared objects, and failures in our own words."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import RedirectError
from pytest_cepbench.store.readonly import ReadonlyStore
from pytest_cepbench.store.remote.bucket import BucketObjects
from pytest_cepbench.store.remote.location import FolderObjects
from pytest_cepbench.store.remote.object_store import (
    IMAGES,
    RESULTS,
    StoreFailure,
    failure_of,
    format_of,
    from_object,
    marker,
    most_bytes,
    result_name,
    to_object,
    write_failure,
)
from pytest_cepbench.store.remote.remotes import upload
from pytest_cepbench.store.rows import packed
from tests.store.filling import database, fill, key_of
from tests.store.remote.slow import SlowFileSystem

SECRET = "AKIA-secret"

KEYS = [key_of(f"{kind} 0") for kind in ("text", "vector", "image")]


class ServerError(OSError):
    """An error with a server's answer, as botocore's have it."""

    def __init__(self, status: int, code: str = "") -> None:
        super().__init__(SECRET)
        self.response = {
            "Error": {"Code": code, "Message": SECRET},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }


class NoCredentialsError(Exception):
    """As botocore calls it."""


def caused_by(cause: Exception) -> Exception:
    """An error of a file system over one of its library."""
    error = OSError(errno.EIO, SECRET)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (FileNotFoundError(SECRET), "absent", "it is not there"),
        (ServerError(404, "NoSuchKey"), "absent", "it is not there (404 NoSuchKey)"),
        (ServerError(404, "NoSuchBucket"), "bucket", "there is no such bucket"),
        (NoCredentialsError(SECRET), "no credentials", "no credentials were found for it"),
        (ServerError(403, "ExpiredToken"), "rejected", "(403 ExpiredToken)"),
        (ServerError(401), "rejected", "the credentials are not accepted (401)"),
        (ServerError(301), "region", "it is in another region (301)"),
        (ServerError(400, "AuthorizationHeaderMalformed"), "region", "it is in another region"),
        (ServerError(403, "AccessDenied"), "forbidden", "access is denied (403 AccessDenied)"),
        (PermissionError(SECRET), "forbidden", "access is denied"),
        (OSError(errno.EROFS, SECRET), "forbidden", "access is denied"),
        (OSError(errno.ENOSPC, SECRET), "full", "no space is left there"),
        (OSError(errno.ECONNRESET, SECRET), "no answer", "it does not answer"),
        (TimeoutError(SECRET), "no answer", "it does not answer"),
        (ServerError(503, "SlowDown"), "no answer", "it answers with an error (503 SlowDown)"),
        (ServerError(500), "no answer", "it answers with an error (500)"),
        (caused_by(ServerError(503)), "no answer", "it answers with an error (503)"),
        (RedirectError("https://other.org"), "redirect", "it points to https://other.org"),
        (ServerError(418), "unknown", "it cannot be used (418)"),
        (ValueError(SECRET), "unknown", "it cannot be used (ValueError)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_error_is_a_failure_without_secrets(error: Exception, kind: str, message: str) -> None:
    """Its kind decides what is tried again, and whether the whole store is given up."""
    failure = failure_of(error)
    assert failure.kind == kind
    assert message in failure.message
    assert SECRET not in failure.message
    assert failure.transient == (kind in ("no answer", "unknown"))
    assert failure.affects_all == (kind not in ("absent", "unknown"))


def test_what_is_absent_when_it_is_written_is_the_bucket() -> None:
    """The object cannot be what is missing; other failures stay what they are."""
    assert write_failure(failure_of(FileNotFoundError())).kind == "bucket"
    full = StoreFailure("full", "no space is left there")
    assert write_failure(full) is full


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (marker(), 1),
        (b'{"format": 2}', 2),
        (b'{"format": "1"}', None),
        (b"[1]", None),
        (b"{", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
    ],
    ids=["ours", "newer", "text", "list", "cut", "bytes", "deep"],
)
def test_the_format_in_a_marker(data: bytes, version: int | None) -> None:
    """None for whatever is no marker."""
    assert format_of(data) == version


def test_a_row_comes_back_from_its_object() -> None:
    """Another format, or other bytes, are refused."""
    row = ("key", "text", b"payload", "{}", 1.5, b"seal")
    data = to_object(row)
    assert from_object("key", data) == row
    for other in (b"", data[:-1], data.replace(b"\x96\x01", b"\x96\x02"), b"\x91" * 100_000):
        with pytest.raises(ValueError, match=r"it cannot be read|it has format 2"):
            from_object("key", other)


def test_images_may_be_larger_than_results() -> None:
    """By the folder of their names."""
    assert most_bytes(f"{RESULTS}/ab/abc") < most_bytes(f"{IMAGES}/ab/abc.webp")


def test_what_is_damaged_here_is_not_uploaded(tmp_path: Path) -> None:
    """The failure names the damage; the rest is uploaded."""
    fill(tmp_path / "own", range(1))
    with database(tmp_path / "own") as connection:
        connection.execute(
            "UPDATE results SET payload = x'00' WHERE key = ?", (packed(key_of("text 0")),)
        )
    objects = FolderObjects(tmp_path / "shared", "the store")
    (tmp_path / "shared").mkdir()
    with ReadonlyStore(tmp_path / "own", "own") as reader:
        failed = upload(objects, reader.read, tmp_path / "own", KEYS, ())
    assert {key: failure.message for key, failure in failed.items()} == {
        key_of("text 0"): "the result is damaged in the local store"
    }
    assert objects.list(RESULTS).keys() == {
        result_name(key_of(name)) for name in ("vector 0", "image 0")
    }
    objects.close()


@pytest.mark.parametrize(
    ("error", "ends"), [(ValueError(SECRET), False), (PermissionError(), True)]
)
def test_a_failure_says_whether_all_other_objects_would_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, *, ends: bool
) -> None:
    """A server that denies access does; one bad object does not, and the others are uploaded."""
    monkeypatch.setattr("pytest_cepbench.store.remote.bucket._RETRY_PAUSE", 0.0)
    SlowFileSystem.reset()
    fill(tmp_path, range(1))
    bad = result_name(key_of("text 0"))
    write = SlowFileSystem._pipe_file

    async def fail(self: Any, path: str, value: bytes, **options: Any) -> None:
        if path.endswith(bad):
            raise error
        await write(self, path, value, **options)

    monkeypatch.setattr(SlowFileSystem, "_pipe_file", fail)
    objects = BucketObjects(SlowFileSystem(skip_instance_cache=True), "lib", "the store")
    with ReadonlyStore(tmp_path, "own") as reader:
        failed = upload(objects, reader.read, tmp_path, KEYS, ())
    assert failed.keys() == {key_of("text 0")}
    failure = failed[key_of("text 0")]
    assert failure.affects_all is ends
    assert ("access is denied" if ends else "it cannot be used (ValueError)") in failure.message
    assert {f"lib/{result_name(key)}" for key in KEYS[1:]} <= SlowFileSystem.held.keys()
    SlowFileSystem.reset()
