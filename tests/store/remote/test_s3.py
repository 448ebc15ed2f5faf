"""Shared stores in a bucket of a real server that speaks S3, by users who may do more or less."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from pytest_cepbench.errors import StoreError
from pytest_cepbench.store import Store
from pytest_cepbench.store.remote import location
from pytest_cepbench.store.remote.object_store import ObjectStore, artifact_names, result_name
from pytest_cepbench.store.remote.sync import inspect_objects
from tests.store.filling import key_of, picture
from tests.store.remote.buckets import BUCKET, SECRET, Server, serving
from tests.store.remote.sharing import check_pull, compute, published
from tests.store.strategies import same

URL = f"s3://{BUCKET}/lib"

# The server takes seconds to start, and longer than a request may take on a busy machine. The same
# is tested for folders and a slow line in the default run.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """It runs for all tests of this file; each takes a prefix of its own."""
    with serving() as running:
        yield running


@pytest.fixture
def owner(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The environment of a user who may do everything."""
    become(server, "root", monkeypatch)
    return server


def become(server: Server, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the environment of a user."""
    for name, value in server.environment(user).items():
        monkeypatch.setenv(name, value)


def reach(url: str) -> ObjectStore:
    """An existing shared store."""
    objects = location.open_objects(url, "test", writing=True)
    assert objects is not None
    return objects


def test_runs_share_a_bucket(tmp_path: Path, owner: Server) -> None:
    """Results, provenance and images go there and back; the second write of a name is refused."""
    results = published(tmp_path / "first", URL, range(3))
    published(tmp_path / "other", URL, range(2))
    with Store(tmp_path / "second", (URL,)) as store:
        stored = store.get([*results, "absent"])
        assert stored.keys() == results.keys()
        assert all(same(stored[key], results[key]) for key in stored)
        image = store.get_artifact(picture(1).digest)
        assert image is not None
        assert image.digest == picture(1).digest
        assert (store.remarks, store.damage) == ([], [])
    objects = reach(URL)
    assert len(objects.list("results") | objects.list("images")) == 9 + 3
    objects.close()
    gc.collect()  # a connection that was left open would be an error now


def test_damage_in_a_bucket_is_written_over(tmp_path: Path, owner: Server) -> None:
    """As in a folder; only who found the damage replaces what is there."""
    url = f"s3://{BUCKET}/damaged"
    results = published(tmp_path / "first", url, range(1))
    text = key_of("text 0")
    for name in (result_name(text), artifact_names(picture(0).digest)[0]):
        owner.client("s3").put_object(Bucket=BUCKET, Key=f"damaged/{name}", Body=b"noise")
    objects = reach(url)
    seen = inspect_objects(objects)
    assert (seen.results, seen.images, len(seen.damaged), seen.sound) == (3, 1, 2, False)
    with Store(tmp_path / "second", publish=url) as store:
        assert store.get(results).keys() == results.keys() - {text}
        assert store.get_artifact(picture(0).digest) is None
        store.forget([key_of("image 0")], why="its image is damaged")
        compute(store, range(1))
    assert inspect_objects(objects).sound
    objects.close()


def test_whole_stores_are_taken_over(tmp_path: Path, owner: Server) -> None:
    """A run publishes results, and `pull` takes them over with images, once."""
    check_pull(tmp_path, f"s3://{BUCKET}/moved")


@pytest.mark.parametrize(
    ("user", "url", "expected"),
    [
        ("reader", URL, None),
        ("reader", f"s3://{BUCKET}/nothing", "holds no shared store"),
        ("nobody", URL, r"access is denied \(403 AccessDenied\): allow these credentials to read"),
        ("root", "s3://no-such-bucket/lib", "there is no such bucket: create it, or give another"),
        ("wrong key", URL, r"not accepted \(403 InvalidAccessKeyId\): check the keys"),
        ("wrong secret", URL, r"not accepted \(403 SignatureDoesNotMatch\): check the keys"),
        ("no key", URL, "no credentials were found for it: set AWS_ACCESS_KEY_ID"),
        ("nowhere", URL, "it does not answer: check the network, and AWS_ENDPOINT_URL"),
        ("silent", URL, "it does not answer: check the network, and AWS_ENDPOINT_URL"),
    ],
)
def test_a_bucket_that_cannot_be_read_is_one_line(
    tmp_path: Path,
    owner: Server,
    monkeypatch: pytest.MonkeyPatch,
    user: str,
    url: str,
    expected: str | None,
) -> None:
    """Within seconds, with the remedy, and without anything of the credentials."""
    published(tmp_path / "first", URL, range(1))
    silent = socket.create_server(("127.0.0.1", 0))
    if user in ("nowhere", "silent"):
        monkeypatch.setattr(location, "_SECONDS", 1.0)
    become(owner, user if user in owner.users else "root", monkeypatch)
    if user == "wrong key":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN")
    elif user == "wrong secret":
        key, _ = owner.users["reader"]
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    elif user == "no key":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    elif user == "nowhere":
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    elif user == "silent":
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
    with silent, nullcontext() if user == "root" else owner.checking():
        if expected is None:
            Store(tmp_path / "own", (url,)).close()
            return
        with pytest.raises(StoreError, match=rf"^--cep-shared {url}.*{expected}") as caught:
            Store(tmp_path / "own", (url,))
    message = str(caught.value)
    secrets = [SECRET, *(part for pair in owner.users.values() for part in pair), "AKIAUNKNOWN"]
    assert not [secret for secret in secrets if secret in message]
    assert "\n" not in message


def test_a_bucket_that_cannot_be_written_is_one_line(
    tmp_path: Path, owner: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the store is there already: who may only read hears it before the run."""
    published(tmp_path / "first", URL, range(1))
    become(owner, "reader", monkeypatch)
    with owner.checking():
        for url in (URL, f"s3://{BUCKET}/new"):
            with pytest.raises(
                StoreError,
                match=r"^--cep-publish .*access is denied.*to write.*s3:PutObject.*only read it",
            ):
                Store(tmp_path / "own", publish=url)
