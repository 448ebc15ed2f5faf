"""Shared stores: what runs find of one another, what is refused, damage, slow lines, failures."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest

from pytest_cepbench.errors import (
    CepError,
    MissingDependencyError,
    SpecError,
    StoreError,
    StoreVersionError,
)
from pytest_cepbench.store import ArtifactRef, Result, Store, StoredResult, shared, uploads
from pytest_cepbench.store.database import open_readonly
from pytest_cepbench.store.maintenance import inspect
from pytest_cepbench.store.rows import packed
from pytest_cepbench.store.shared import (
    AT_ONCE,
    MARKER,
    Folder,
    Location,
    SharedStore,
    StoreFailure,
    artifact_names,
    failure_of,
    most_bytes,
    result_name,
    to_object,
)
from pytest_cepbench.store.uploads import upload
from tests.plugin.project import contents
from tests.store.buckets import BUCKET, SECRET, Server, SlowFileSystem, serving
from tests.store.filling import database, fill, key_of, picture, results_of, same

TEXT, IMAGE = key_of("text 0"), key_of("image 0")

NAMES = [result_name(key_of(str(i))) for i in range(3)]

PROVENANCE = {"model": "a" * 16, "device": "cpu"}


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """Where results are shared."""
    return tmp_path / "lib" if request.param == "folder" else f"memory://{uuid4().hex}/lib"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[SlowFileSystem]]:
    """What is behind `slow://lib`; no pause before a second try."""
    monkeypatch.setattr(shared, "_RETRY_PAUSE", 0.0)
    monkeypatch.setattr(uploads, "_UPLOAD_PAUSE", 0.0)
    SlowFileSystem.reset()
    yield SlowFileSystem
    SlowFileSystem.reset()


def slow_store() -> SharedStore:
    """The objects behind it."""
    return SharedStore(SlowFileSystem(skip_instance_cache=True), "lib", "test")


def folder_store(root: Path) -> SharedStore:
    """The objects in a folder."""
    return SharedStore(Folder(root), str(root), "test")


def compute(store: Store, numbers: range) -> dict[str, Result]:
    """Put results and images of these numbers, as a run does."""
    results = results_of(numbers)
    for i in numbers:
        store.put_artifact(picture(i))
    store.put([StoredResult(key, result, PROVENANCE) for key, result in results.items()])
    return results


def published(folder: Path, place: Location, numbers: range) -> dict[str, Result]:
    """Let a run with a store in this folder publish them."""
    with Store(folder, publish=place) as store:
        results = compute(store, numbers)
    assert (store.remarks, store.damage) == ([], [])
    return results


# -- what runs find of one another -----------------------------------------------------------------


def test_what_one_run_computes_another_finds(tmp_path: Path, place: Location) -> None:
    """Every kind of result with provenance, images once looked at; later reads use the copies."""
    results = published(tmp_path / "first", place, range(3))
    with Store(tmp_path / "second", (place,)) as store:
        assert store.has([*results, "absent"]) == results.keys()
        stored = store.get([*results, "absent"])
        assert stored.keys() == results.keys()
        assert all(same(stored[key], results[key]) for key in stored)
        assert not list((tmp_path / "second" / "images").rglob("*.webp"))
        assert store.artifact_path(picture(0).digest).exists()
        assert store.get_artifact(picture(1).digest) is not None
    with Store(tmp_path / "second") as alone:
        stored = alone.get(results)
        assert all(same(stored[key], results[key]) for key in results)
        (provenance,) = set(alone.index.read("SELECT text FROM provenances"))
        assert provenance == ('{"device": "cpu", "model": "aaaaaaaaaaaaaaaa"}',)
        seen = inspect(alone.root, alone.index.read)
        assert (seen.sound, seen.remote) == (True, [picture(2).digest])


def test_a_shared_store_is_only_added_to(tmp_path: Path) -> None:
    """Who reads one leaves every byte of it alone; who publishes adds, and changes nothing."""
    place = tmp_path / "lib"
    published(tmp_path / "first", place, range(2))
    before = contents(place)
    with Store(tmp_path / "second", (place,)) as store:
        store.put([StoredResult("new", "mine")])
        store.get([TEXT])
    assert contents(place) == before
    for name in ("old", "young"):  # half-written by killed processes; clocks of machines differ
        (place / "new" / name).write_text("half")
    os.utime(place / "new" / "old", (1_000_000_000, 1_000_000_000))
    published(tmp_path / "third", place, range(3))
    assert [path.name for path in (place / "new").iterdir()] == ["young"]
    (place / "new" / "young").unlink()
    after = contents(place)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {
        *(result_name(key_of(f"{kind} 2")) for kind in ("text", "vector", "image")),
        artifact_names(picture(2).digest)[0],
    }


def test_the_first_that_is_written_counts_for_all(tmp_path: Path, place: Location) -> None:
    """A lost race is no error; the run that lost it keeps its own."""
    with (
        Store(tmp_path / "one", publish=place) as first,
        Store(tmp_path / "two", publish=place) as second,
    ):
        for name, store in (("one", first), ("two", second)):
            assert store.put([StoredResult("k" * 64, name)]) == {"k" * 64: name}
            store.flush()
    assert (second.remarks, second.damage) == ([], [])
    with Store(tmp_path / "three", (place,)) as three:
        assert three.get(["k" * 64]) == {"k" * 64: "one"}


def test_nothing_else_leaves_and_images_leave_first(
    tmp_path: Path, slow: type[SlowFileSystem]
) -> None:
    """No image without a result and no note; a result whose image is not uploaded is not either."""
    with Store(tmp_path / "first", publish="slow://lib") as store:
        store.put_artifact(picture(5))
        store.note("batch", "32")
        compute(store, range(2))
        store.put([StoredResult("9" * 64, ArtifactRef("f" * 64))])
    order = [path.removeprefix("lib/") for path in slow.written]
    for i in range(2):
        image = order.index(artifact_names(picture(i).digest)[0])
        assert image < order.index(result_name(key_of(f"image {i}")))
    assert len(order) == 1 + 2 + 6
    assert store.remarks == [_left("its file is not in the local store")]


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("s3://AKIA:hush@bucket/p", "s3://bucket/p: a URL may hold no user, password or query"),
        ("s3://bucket/p?key=hush", "s3://bucket/p: a URL may hold no user, password or query"),
        ("memry://lib", "unknown protocol 'memry'"),
        ("gs://bucket/p", "gs://bucket/p needs a package that is not installed: pip install gcsfs"),
        ("memory://", "memory://: the bucket is missing: memory://BUCKET/PREFIX is expected"),
        ("file://lib", "an absolute path is expected, such as file:///mnt/shared"),
        ("https://host/lib", "a web server is no shared store"),
    ],
)
def test_a_wrong_url_is_one_line(tmp_path: Path, url: str, sentence: str) -> None:
    """Read or written, it is refused before anything is asked; a secret in it is not repeated."""
    for option, read, publish in (("--cep-shared", [url], None), ("--cep-publish", [], url)):
        with pytest.raises((SpecError, MissingDependencyError)) as caught:
            Store(tmp_path / "own", read, publish)
        message = str(caught.value)
        assert message.startswith(f"{option} ")
        assert sentence in message
        assert "hush" not in message
        assert "\n" not in message


def test_a_folder_that_is_no_shared_store_is_refused(tmp_path: Path) -> None:
    """A local store, other people's files, a folder in one that is not there, and a file.

    Publishing makes an empty folder one; who only reads it has named the wrong place.
    """
    fill(tmp_path / "store", range(1))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    for name, sentence in (
        ("store", "is the folder of a local store, which is not shared as it is"),
        ("home", "holds other files and no shared store: give an empty folder"),
        ("disk/lib", "there is no such bucket or folder: create it, or give another"),
        ("home/letter.txt", "is a file: give a folder"),
    ):
        with pytest.raises(CepError, match=rf"^--cep-publish '.*{name}'.*{sentence}"):
            Store(tmp_path / "own", publish=tmp_path / name)
    with pytest.raises(CepError, match=r"^--cep-shared '.*store'.*is the folder of a local store"):
        Store(tmp_path / "own", (tmp_path / "store",))
    assert not (tmp_path / "disk").exists()
    assert {path.name for path in (tmp_path / "home").iterdir()} == {"letter.txt"}
    folder = tmp_path / "lib"
    folder.mkdir()
    with pytest.raises(CepError, match=r"--cep-shared file:///.* holds no shared store"):
        Store(tmp_path / "own", (folder.as_uri(),))
    Store(tmp_path / "own", publish=folder, writing=False).close()  # a plan
    assert not list(folder.iterdir())
    Store(tmp_path / "own", publish=folder.as_uri()).close()
    assert json.loads((folder / MARKER).read_bytes()) == {"format": 1}
    Store(tmp_path / "own", (folder,)).close()


@pytest.mark.parametrize("marker", ['{"format": 2}', "{}", "[1]", "no JSON", "[" * 10_000])
def test_another_format_is_refused(tmp_path: Path, marker: str) -> None:
    """What a newer version wrote is not guessed at, and nothing is written beside it."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / MARKER).write_text(marker)
    for read, publish in (((tmp_path / "lib",), None), ((), tmp_path / "lib")):
        with pytest.raises(StoreVersionError, match="this version works with format 1"):
            Store(tmp_path / "own", read, publish)
    assert (tmp_path / "lib" / MARKER).read_text() == marker


# -- damage ----------------------------------------------------------------------------------------


def test_damage_is_noted_once_and_written_over(tmp_path: Path) -> None:
    """A damaged object is as if not there; a run that computes it and publishes mends it."""
    place = tmp_path / "lib"
    results = published(tmp_path / "first", place, range(2))
    row, image = place / result_name(TEXT), place / artifact_names(picture(0).digest)[0]
    row.write_bytes(row.read_bytes().replace(b"a text", b"A text"))
    image.write_bytes((place / artifact_names(picture(1).digest)[0]).read_bytes())
    with Store(tmp_path / "second", publish=place) as store:
        for _ in range(2):
            assert store.get(results).keys() == results.keys() - {TEXT}
            assert store.get_artifact(picture(0).digest) is None
        first, second = store.damage
        assert first == (
            f"result {TEXT[:12]} in --cep-publish {str(place)!r}: its row does not match its seal"
        )
        assert second.startswith(f"image {picture(0).digest[:12]} in --cep-publish")
        store.forget([IMAGE], why="its image is gone")
        assert store.get([IMAGE]) == {}
        compute(store, range(1))
    with Store(tmp_path / "third", (place,)) as store:
        assert store.get(results).keys() == results.keys()
        assert store.get_artifact(picture(0).digest) is not None
        assert store.damage == []


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\x93\x01\x02\x03", b"{}", b"\x91" * 100_000, bytes(most_bytes("results/") + 1)),
        to_object(("k", "text", b"x", "{}", 1.5, b"s")).replace(b"\x96\x01", b"\x96\x02"),
    ],
    ids=["empty", "short", "json", "deep", "huge", "another format"],
)
def test_what_is_no_result_is_damaged(tmp_path: Path, data: bytes) -> None:
    """Nothing that lies under a key is more than bytes until it has proved to be a result."""
    published(tmp_path / "first", tmp_path / "lib", range(1))
    (tmp_path / "lib" / result_name(TEXT)).write_bytes(data)
    with Store(tmp_path / "second", (tmp_path / "lib",)) as store:
        assert store.get([TEXT]) == {}
        (note,) = store.damage
    why = note.partition(":")[2].strip()
    assert why.startswith(("it cannot be read", "it has 9,437,185 byt", "it has format 2"))


def test_what_is_damaged_here_is_not_uploaded(tmp_path: Path) -> None:
    """The failure names the damage; the rest is uploaded."""
    fill(tmp_path / "own", range(1))
    with database(tmp_path / "own") as connection:
        connection.execute("UPDATE results SET payload = x'00' WHERE key = ?", (packed(TEXT),))
    (tmp_path / "lib").mkdir()
    folder = folder_store(tmp_path / "lib")
    with open_readonly(tmp_path / "own") as read:
        failed = upload(folder, read, tmp_path / "own", [*results_of(range(1))])
    assert {key: failure.message for key, failure in failed.items()} == {
        TEXT: "the result is damaged in the local store"
    }
    assert len(list((tmp_path / "lib" / "results").rglob("*"))) == 4


# -- folders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("links", [True, False])
def test_the_first_write_of_a_name_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    """A second one changes nothing; `replace` overwrites; no other file is left.

    Where the folder is not mounted any more a write fails, a read finds nothing, and nothing is
    made.
    """
    if not links:

        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", refuse)
    folder = folder_store(tmp_path)
    for data in (b"first", b"second"):
        assert folder.write({NAMES[0]: data}) == {}
    assert folder.read([NAMES[0]]) == {NAMES[0]: b"first"}
    assert folder.write({NAMES[0]: b"third"}, {NAMES[0]}) == {}
    assert contents(tmp_path) == {NAMES[0]: b"third"}
    root = tmp_path / "mounted"
    root.mkdir()
    folder = folder_store(root)
    shutil.rmtree(root)
    assert folder.write({NAMES[0]: b"content"})[NAMES[0]].kind == "bucket"
    assert folder.read(NAMES[:1])[NAMES[0]] == StoreFailure("absent", "it is not there")
    assert not root.exists()


# -- behind a slow line ----------------------------------------------------------------------------


def _left(why: str) -> str:
    """What is said of a result that was not uploaded."""
    line = f"--cep-publish slow://lib: 1 result was not uploaded ({why})"
    return f"{line}: they stay in the store of this run alone"


def test_a_step_of_64_costs_one_round_trip(tmp_path: Path, slow: type[SlowFileSystem]) -> None:
    """All keys are asked for at once; missing ones not again, and none that the store has."""
    keys = [key_of(f"text {i}") for i in range(AT_ONCE)]
    with Store(tmp_path / "first", publish="slow://lib") as store:
        store.put([StoredResult(key, "there") for key in keys[:32]])
    slow.delay = 0.2
    with Store(tmp_path / "second", ("slow://lib",)) as store:
        slow.asked.clear()
        started = time.perf_counter()
        assert store.get(keys).keys() == set(keys[:32])
        assert time.perf_counter() - started < AT_ONCE * slow.delay / 8
        assert len(slow.asked) == AT_ONCE
        assert store.get(keys).keys() == store.has(keys) == set(keys[:32])
        assert len(slow.asked) == AT_ONCE
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shared, "_ABSENT_SECONDS", 0.0)
            store.get(keys)
        assert len(slow.asked) == AT_ONCE + 32


def test_a_place_that_stops_answering_is_left(tmp_path: Path, slow: type[SlowFileSystem]) -> None:
    """The run goes on with its own store, asks no more, and says once what it could not do."""
    with Store(tmp_path / "own", publish="slow://lib") as store:
        store.put([StoredResult(TEXT, "before")])
        store.flush()
        slow.broken = True
        for name in ("one", "two"):
            asked = len(slow.asked)
            assert store.get([key_of(name), TEXT]) == {TEXT: "before"}
            assert store.get_artifact(picture(7).digest) is None
            store.put([StoredResult(key_of(name), name)])
            store.flush()
        assert len(slow.asked) == asked
        assert store.get([key_of("two")]) == {key_of("two"): "two"}
    assert store.remarks == [
        "--cep-publish slow://lib: it does not answer; this run does not read it any more",
        *[_left("it does not answer")] * 2,
    ]
    assert store.damage == []


_SILENT = """
from pytest_cepbench.store import shared
from tests.store.buckets import SlowFileSystem
shared._SECONDS = 0.3
SlowFileSystem.delay = 3600.0
slow = shared.SharedStore(SlowFileSystem(skip_instance_cache=True), "lib", "test")
names = [shared.result_name(f"{i:064x}") for i in range(shared.AT_ONCE + 1)]
print({answer.message for answer in slow.read(names).values()})
print(len(SlowFileSystem.asked), slow.write({names[0]: b"content"})[names[0]].kind)
"""


def test_a_place_that_never_answers_keeps_no_process() -> None:
    """Each object has a time limit, the rest is not asked for, and the end waits for no thread."""
    command = [sys.executable, "-c", _SILENT]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "{'it does not answer'}\n64 no answer\n"


def test_what_does_not_answer_or_takes_nothing_is_not_awaited(
    tmp_path: Path, slow: type[SlowFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened, it is one line, sooner than a run would wait later; the end of a run waits only as
    long as something is uploaded now and then.
    """
    with monkeypatch.context() as patch:
        patch.setattr(shared, "_OPENING_SECONDS", 0.3)
        slow.delay = 20.0
        with pytest.raises(StoreError, match=r"slow://lib: it does not answer: check the network"):
            Store(tmp_path / "own", ("slow://lib",))
    slow.delay = 0.0
    monkeypatch.setattr(uploads, "_QUIET_SECONDS", 0.01)
    monkeypatch.setattr(uploads, "_PATIENCE", 0.3)
    monkeypatch.setattr(uploads, "_JOIN_SECONDS", 0.1)
    with Store(tmp_path / "own", publish="slow://lib") as store:
        slow.delay = 20.0
        store.put([StoredResult(TEXT, "text")])
    assert store.remarks == [_left("nothing was uploaded for 0 minutes")]


def test_a_failure_that_passes_is_tried_once_more(slow: type[SlowFileSystem]) -> None:
    """Once; an object that is absent is not asked for again. One of the largest size is read, one
    with a byte more is not.
    """
    slow.held[f"lib/{NAMES[0]}"] = b"content"
    for failures in (1, 2):
        slow.asked.clear()
        slow.failures = failures
        answer = slow_store().read(NAMES[:1])[NAMES[0]]
        assert len(slow.asked) == 2
        assert answer == b"content" if failures == 1 else isinstance(answer, StoreFailure)
    slow.asked.clear()
    slow.failures = 0
    slow_store().read(NAMES[1:2])
    assert len(slow.asked) == 1
    most = most_bytes(NAMES[0])
    slow.held[f"lib/{NAMES[0]}"] = bytes(most)
    slow.held[f"lib/{NAMES[1]}"] = bytes(most + 1)
    answers = slow_store().read(NAMES[:2])
    assert len(answers[NAMES[0]]) == most  # type: ignore[arg-type] # bytes
    assert answers[NAMES[1]] == f"it has more than {most:,} bytes"


@pytest.mark.parametrize(
    ("refusal", "written", "failed"),
    [
        (TypeError("mode"), True, False),
        (NotImplementedError(), True, False),
        (OSError(errno.ENOSYS, "not implemented"), True, False),
        (501, True, False),
        (409, False, False),
        (412, False, False),
        (410, False, True),
    ],
    ids=repr,
)
def test_the_answer_to_a_conditional_write_says_what_is_there(
    slow: type[SlowFileSystem],
    monkeypatch: pytest.MonkeyPatch,
    *,
    refusal: Exception | int,
    written: bool,
    failed: bool,
) -> None:
    """A conflict or a failed condition is another run's object; a server may know no conditions."""
    write = SlowFileSystem._pipe_file

    async def refuse(self: Any, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if mode == "create":
            if isinstance(refusal, Exception):
                raise refusal
            error = OSError("refused")
            error.response = {"ResponseMetadata": {"HTTPStatusCode": refusal}}  # type: ignore[attr-defined]
            raise error
        await write(self, path, value)

    monkeypatch.setattr(SlowFileSystem, "_pipe_file", refuse)
    assert bool(slow_store().write({NAMES[0]: b"content"})) == failed
    assert bool(slow.held) == written


def test_failures_are_told_in_our_own_words() -> None:
    """Of what a library raises nothing is repeated but codes: it may quote secrets."""
    error = OSError(SECRET)
    error.response = {  # type: ignore[attr-defined]
        "Error": {"Code": "SignatureDoesNotMatch"}, "ResponseMetadata": {"HTTPStatusCode": 403},
    }  # fmt: skip
    assert failure_of(error) == StoreFailure(
        "credentials", "the credentials are not accepted (403 SignatureDoesNotMatch)"
    )
    assert failure_of(ValueError(SECRET)).message == "it cannot be used (ValueError)"
    assert failure_of(PermissionError(SECRET)).kind == "forbidden"
    assert failure_of(OSError(errno.ENOSPC, SECRET)).kind == "full"
    assert failure_of(TimeoutError(SECRET)) == StoreFailure("no answer", "it does not answer")


# -- a real server that speaks S3 ------------------------------------------------------------------

URL = f"s3://{BUCKET}/lib"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """It runs for all tests of this file."""
    with serving() as running:
        yield running


def become(server: Server, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the environment of a user."""
    for name, value in server.environment(user).items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
def test_runs_share_a_bucket(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results and images go there and back; the second write of a name is refused; damage is
    written over.
    """
    become(server, "root", monkeypatch)
    results = published(tmp_path / "first", URL, range(3))
    published(tmp_path / "other", URL, range(2))
    for name in (result_name(TEXT), artifact_names(picture(0).digest)[0]):
        server.client("s3").put_object(Bucket=BUCKET, Key=f"lib/{name}", Body=b"noise")
    with Store(tmp_path / "second", publish=URL) as store:
        stored = store.get([*results, "absent"])
        assert stored.keys() == results.keys() - {TEXT}
        assert all(same(stored[key], results[key]) for key in stored)
        assert store.get_artifact(picture(1).digest) is not None
        assert store.get_artifact(picture(0).digest) is None
        store.forget([IMAGE], why="its image is damaged")
        compute(store, range(1))
    assert len(store.damage) == 3
    with Store(tmp_path / "third", (URL,)) as store:
        assert store.get(results).keys() == results.keys()
        assert store.get_artifact(picture(0).digest) is not None
        assert (store.remarks, store.damage) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("user", "url", "expected"),
    [
        ("reader", URL, None),
        ("reader", f"s3://{BUCKET}/nothing", "holds no shared store"),
        ("nobody", URL, r"access is denied \(403 AccessDenied\): allow these credentials to read"),
        ("root", "s3://no-such-bucket/lib", "there is no such bucket: create it, or give another"),
        ("wrong key", URL, r"not accepted \(403 InvalidAccessKeyId\): check AWS"),
        ("no key", URL, "no credentials were found for it: check AWS_ACCESS_KEY_ID"),
        ("nowhere", URL, "it does not answer: check the network, and AWS_ENDPOINT_URL"),
    ],
)
def test_a_bucket_that_cannot_be_read_is_one_line(
    tmp_path: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    user: str,
    url: str,
    expected: str | None,
) -> None:
    """Within seconds, with the remedy, and without anything of the credentials."""
    become(server, "root", monkeypatch)
    published(tmp_path / "first", URL, range(1))
    become(server, user if user in server.users else "root", monkeypatch)
    if user == "wrong key":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN")
    elif user == "no key":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    elif user == "nowhere":
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    with nullcontext() if user == "root" else server.checking():
        if expected is None:
            Store(tmp_path / "own", (url,)).close()
            with pytest.raises(StoreError, match=r"--cep-publish .*to write.*only read it"):
                Store(tmp_path / "own", publish=url)
            return
        with pytest.raises(StoreError, match=rf"^--cep-shared {url}.*{expected}") as caught:
            Store(tmp_path / "own", (url,))
    message = str(caught.value)
    secrets = [SECRET, *(part for pair in server.users.values() for part in pair), "AKIAUNKNOWN"]
    assert not [secret for secret in secrets if secret in message]
    assert "\n" not in message


@pytest.mark.slow
def test_connections_end_with_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets keep them for what is asked next; a process may open many stores."""
    pytest.importorskip("s3fs")
    held: dict[str, bytes] = {}
    connections: list[object] = []

    class Bucket(BaseHTTPRequestHandler):
        """As much of S3 as a store needs; moto ends each connection by itself."""

        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            connections.append(self)
            super().handle()
            connections.remove(self)

        def do_GET(self) -> None:
            self._answer(200 if self.path in held else 404, held.get(self.path, b""))

        def do_PUT(self) -> None:
            held[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(200, b"")

        def _answer(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("ETag", '"etag"')
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Bucket) as bucket:
        Thread(target=bucket.serve_forever, daemon=True).start()
        become(Server(f"http://127.0.0.1:{bucket.server_port}", {}), "root", monkeypatch)
        with Store(tmp_path / "own", publish=URL) as store:
            store.put([StoredResult(TEXT, "text")])
            store.flush()
            assert connections
        end = time.monotonic() + 10
        while connections and time.monotonic() < end:
            time.sleep(0.01)
        bucket.shutdown()
    assert not connections
    assert store.remarks == []
