"""Requests to a file system of fsspec: time limits, interrupts, retries, conditional writes."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from pytest_cepbench.store.remote import bucket
from pytest_cepbench.store.remote.bucket import BucketObjects
from pytest_cepbench.store.remote.object_store import AT_ONCE, most_bytes, result_name
from tests.store.filling import key_of
from tests.store.remote.slow import SlowFileSystem

NAMES = [result_name(key_of(str(i))) for i in range(3)]


class BlockingFileSystem:
    """A file system without coroutines, whose every answer takes `delay` seconds."""

    protocol = "blocking"
    async_impl = False

    def __init__(self, delay: float) -> None:
        self.delay = delay

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        """The path as content."""
        time.sleep(self.delay)
        return path.encode()[start:end]


class Client:
    """Connections that a file system holds open."""

    closed = 0

    async def close(self) -> None:
        """Count."""
        self.closed += 1


class ClientFileSystem(SlowFileSystem):
    """A file system that shows its client, as that of Google's storage does."""

    def __init__(self, session: Client) -> None:
        super().__init__(skip_instance_cache=True)
        self.session = session


class SessionFileSystem(SlowFileSystem):
    """A file system that gives its client when it is asked for it, as that of S3 does."""

    def __init__(self, client: Client) -> None:
        super().__init__(skip_instance_cache=True)
        self.client = client

    async def set_session(self) -> Client:
        """The client."""
        return self.client


class ListingFileSystem(SlowFileSystem):
    """A file system that lists what it holds, and does not know how large empty objects are."""

    async def _find(self, path: str, **_: Any) -> dict[str, dict[str, int | None]]:
        return {
            name: {"size": len(data) or None}
            for name, data in self.held.items()
            if name.startswith(path)
        }


@pytest.fixture
def slow() -> Iterator[type[SlowFileSystem]]:
    """The file system, empty."""
    SlowFileSystem.reset()
    yield SlowFileSystem
    SlowFileSystem.reset()


def slow_objects() -> BucketObjects:
    """Objects in it."""
    return BucketObjects(SlowFileSystem(skip_instance_cache=True), "lib", "test")


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("number", [1, 3])
def test_a_request_has_a_time_limit(
    slow: type[SlowFileSystem], number: int, *, blocking: bool
) -> None:
    """Without an answer the failure is "no answer", long before one would come."""
    slow.delay = 3.0
    objects = BucketObjects(BlockingFileSystem(3.0), "lib", "test") if blocking else slow_objects()
    started = time.perf_counter()
    fetched = objects.read(NAMES[:number], 0.2)
    assert time.perf_counter() - started < 2.5
    assert fetched.objects == {}
    assert fetched.failure is not None
    assert fetched.failure.kind == "no answer"
    assert fetched.failure.affects_all


def test_a_file_system_without_coroutines_is_read() -> None:
    """Its answers are those of others."""
    objects = BucketObjects(BlockingFileSystem(0.0), "lib", "test")
    fetched = objects.read(NAMES)
    assert fetched.objects == {name: f"lib/{name}".encode() for name in NAMES}
    assert fetched.failure is None


@pytest.mark.parametrize("file_system", [ClientFileSystem, SessionFileSystem])
def test_connections_are_closed_in_the_end(
    file_system: type[ClientFileSystem | SessionFileSystem],
) -> None:
    """Those that the library holds, by either way to them; a read does not close them."""
    client = Client()
    objects = BucketObjects(file_system(client), "lib", "test")
    objects.read(NAMES)
    assert client.closed == 0
    objects.close()
    assert client.closed == 1


def test_an_interrupt_ends_a_read_at_once(slow: type[SlowFileSystem]) -> None:
    """Neither the answers nor the requests that still wait for their turn are waited for."""
    slow.delay = 5.0
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    started = time.perf_counter()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        slow_objects().read([result_name(key_of(str(i))) for i in range(AT_ONCE + 10)])
    assert time.perf_counter() - started < 3.0
    assert len(slow.asked) <= AT_ONCE


@pytest.mark.parametrize(("failures", "tries", "kind"), [(1, 2, None), (2, 2, "no answer")])
def test_a_transient_failure_is_tried_once_more(
    slow: type[SlowFileSystem],
    monkeypatch: pytest.MonkeyPatch,
    failures: int,
    tries: int,
    kind: str | None,
) -> None:
    """Once, after a pause; an object that is absent, or a request with its own limit, is not."""
    monkeypatch.setattr(bucket, "_RETRY_PAUSE", 0.01)
    slow.held[f"lib/{NAMES[0]}"] = b"content"
    slow.failures = failures
    fetched = slow_objects().read(NAMES[:1])
    assert len(slow.asked) == tries
    assert (fetched.failure and fetched.failure.kind) == kind
    assert fetched.objects == ({} if kind else {NAMES[0]: b"content"})
    slow.asked.clear()
    assert slow_objects().read(NAMES[1:2]).failure is None
    slow.failures = 1
    assert slow_objects().read(NAMES[:1], 5.0).failure is not None
    assert len(slow.asked) == 2


@pytest.mark.parametrize(
    "error",
    [TypeError("mode"), NotImplementedError(), OSError(errno.ENOSYS, "not implemented")],
    ids=lambda error: type(error).__name__,
)
def test_a_file_system_without_conditional_writes_is_written_to(
    slow: type[SlowFileSystem], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It is asked for one once; then objects are written without the condition."""
    conditional = []
    write = SlowFileSystem._pipe_file

    async def refuse(self: Any, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if mode == "create":
            conditional.append(path)
            raise error
        await write(self, path, value)

    monkeypatch.setattr(SlowFileSystem, "_pipe_file", refuse)
    objects = slow_objects()
    for name in NAMES:
        assert objects.write({name: b"content"}) == {}
    assert conditional == [f"lib/{NAMES[0]}"]
    assert slow.held.keys() == {f"lib/{name}" for name in NAMES}


@pytest.mark.parametrize(
    ("status", "written", "failed"),
    [(409, False, False), (412, False, False), (501, True, False), (410, False, True)],
)
def test_the_answer_to_a_conditional_write_says_what_is_there(
    slow: type[SlowFileSystem],
    monkeypatch: pytest.MonkeyPatch,
    *,
    status: int,
    written: bool,
    failed: bool,
) -> None:
    """A conflict or a failed condition is another run's object; a server may know no conditions."""
    write = SlowFileSystem._pipe_file

    async def refuse(self: Any, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if mode == "create":
            error = OSError("refused")
            error.response = {"ResponseMetadata": {"HTTPStatusCode": status}}  # type: ignore[attr-defined]
            raise error
        await write(self, path, value)

    monkeypatch.setattr(SlowFileSystem, "_pipe_file", refuse)
    monkeypatch.setattr(bucket, "_RETRY_PAUSE", 0.0)
    assert bool(slow_objects().write({NAMES[0]: b"content"})) == failed
    assert bool(slow.held) == written


def test_the_first_write_of_a_name_counts(slow: type[SlowFileSystem]) -> None:
    """A second one changes nothing; `replace` overwrites."""
    objects = slow_objects()
    assert objects.write({NAMES[0]: b"first"}) == {}
    assert objects.write({NAMES[0]: b"second"}) == {}
    assert slow.held[f"lib/{NAMES[0]}"] == b"first"
    assert objects.write({NAMES[0]: b"third"}, {NAMES[0]}) == {}
    assert slow.held[f"lib/{NAMES[0]}"] == b"third"


def test_objects_are_listed_with_their_sizes(slow: type[SlowFileSystem]) -> None:
    """By their names below the folder; one of unknown size counts as empty."""
    slow.held.update({"lib/a/1": b"12345", "lib/a/2": b"", "lib/b/3": b"1"})
    objects = BucketObjects(ListingFileSystem(skip_instance_cache=True), "lib", "test")
    assert objects.list("a") == {"a/1": 5, "a/2": 0}


def test_an_object_beyond_the_limit_is_unfit(slow: type[SlowFileSystem]) -> None:
    """One of the largest size is read, one with a byte more is not."""
    most = most_bytes(NAMES[0])
    slow.held[f"lib/{NAMES[0]}"] = bytes(most)
    slow.held[f"lib/{NAMES[1]}"] = bytes(most + 1)
    fetched = slow_objects().read(NAMES)
    assert fetched.objects.keys() == {NAMES[0]}
    assert fetched.unfit == {NAMES[1]: f"it has more than {most:,} bytes"}
    assert fetched.failure is None


class WebFileSystem(SlowFileSystem):
    """A web server, which may send a whole file whatever part of it is asked for.

    sizes: what it says of files; of others it says nothing.
    """

    protocol = "https"
    sizes: ClassVar[dict[str, int]] = {}

    async def _info(self, path: str, **_: Any) -> dict[str, int | None]:
        return {"size": self.sizes.get(path)}


def test_a_web_server_is_asked_for_the_size_first(
    slow: type[SlowFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says is too large is not read; where it does not say, the file is."""
    paths = [f"lib/{name}" for name in NAMES]
    slow.held.update(dict.fromkeys(paths, b"content"))
    most = most_bytes(NAMES[0])
    monkeypatch.setattr(WebFileSystem, "sizes", {paths[0]: most, paths[1]: most + 1})
    fetched = BucketObjects(WebFileSystem(skip_instance_cache=True), "lib", "test").read(NAMES)
    assert fetched.objects == {NAMES[0]: b"content", NAMES[2]: b"content"}
    assert fetched.unfit == {NAMES[1]: f"it has more than {most:,} bytes"}
    assert sorted(slow.asked) == sorted([paths[0], paths[2]])
