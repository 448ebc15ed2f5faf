"""What is named as a shared store and is none: one line each, with the option and the remedy."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from pytest_cepbench.errors import (
    CepError,
    MissingDependencyError,
    SpecError,
    StoreError,
    StoreVersionError,
)
from pytest_cepbench.store import Store
from pytest_cepbench.store.remote.location import FolderObjects, open_objects
from pytest_cepbench.store.remote.object_store import MARKER, marker, result_name
from tests.store.filling import contents, fill, key_of


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("s3://AKIA:hush@bucket/p", "s3://bucket/p: a URL may hold no user, password or query"),
        ("s3://bucket/p?key=hush", "s3://bucket/p: a URL may hold no user, password or query"),
        ("memry://lib", "unknown protocol 'memry'"),
        ("gs://bucket/p", "gs://bucket/p needs a package that is not installed: pip install gcsfs"),
        ("webdav://host/p", "needs a package that is not installed: Install webdav4"),
        ("memory://", "memory://: the bucket is missing: memory://BUCKET/PREFIX is expected"),
        ("file://lib", "an absolute path is expected, such as file:///mnt/shared"),
        ("simplecache::s3://b/p", "unknown protocol 'simplecache::s3'"),
    ],
)
def test_a_wrong_url_is_one_line(tmp_path: Path, url: str, sentence: str) -> None:
    """Read or written, it is refused before anything is asked; a secret in it is not repeated."""
    for arguments, option in (((("url",),), "--cep-shared"), (((), "url"), "--cep-publish")):
        shared, *rest = arguments
        places = [url if place == "url" else place for place in rest]
        with pytest.raises((SpecError, MissingDependencyError)) as caught:
            Store(tmp_path / "own", [url] if shared else [], *places)
        message = str(caught.value)
        assert message.startswith(f"{option} ")
        assert sentence in message
        assert "hush" not in message
        assert "\n" not in message


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    """A local store, other people's files, a folder in one that is not there, and a file."""
    fill(tmp_path / "store", range(1))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    for name, sentence in (
        ("store", "is the folder of a local store"),
        ("home", "holds other files and no shared store: give an empty folder"),
        ("disk/lib", "there is no such bucket or folder: create it, or give another"),
        ("home/letter.txt", "is a file: give a folder"),
    ):
        with pytest.raises(CepError, match=rf"^--cep-publish '.*{name}'.*{sentence}"):
            Store(tmp_path / "own", publish=tmp_path / name)
    assert not (tmp_path / "disk").exists()
    assert {path.name for path in (tmp_path / "home").iterdir()} == {"letter.txt"}


@pytest.mark.parametrize("place", ["folder", "url"])
def test_what_holds_no_store_can_be_made_one_and_not_read(tmp_path: Path, place: str) -> None:
    """Publishing makes it; who only reads it has named the wrong place."""
    folder = tmp_path / "lib"
    folder.mkdir()
    url = folder.as_uri()
    with pytest.raises(CepError, match=r"--cep-shared file:///.* holds no shared store"):
        Store(tmp_path / "own", (url,))
    named = folder if place == "folder" else url
    Store(tmp_path / "own", publish=named, writing=False).close()  # a plan
    assert not list(folder.iterdir())
    Store(tmp_path / "own", publish=named).close()
    assert json.loads((folder / "cepbench-store.json").read_bytes()) == {"format": 1}
    Store(tmp_path / "own", (named,)).close()


@pytest.mark.parametrize("marker", ['{"format": 2}', "{}", "[1]", "no JSON"])
def test_another_format_is_refused(tmp_path: Path, marker: str) -> None:
    """What a newer version wrote is not guessed at, and nothing is written beside it."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "cepbench-store.json").write_text(marker)
    for shared, publish in (((tmp_path / "lib",), None), ((), tmp_path / "lib")):
        with pytest.raises(StoreVersionError, match="this version works with format 1"):
            Store(tmp_path / "own", shared, publish)
    assert (tmp_path / "lib" / "cepbench-store.json").read_text() == marker


@dataclass
class _Web:
    """A web server. received: method and path of every request."""

    url: str
    received: list[str] = field(default_factory=list)


@contextmanager
def _web(answer: Callable[[str], tuple[int, str]]) -> Iterator[_Web]:
    """answer: status and location for a method."""
    web = _Web("")

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def _deal(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            web.received.append(f"{self.command} {self.path}")
            status, location = answer(self.command)
            self.send_response(status)
            self.send_header("content-length", "0")
            if location:
                self.send_header("location", location)
            self.end_headers()

        do_GET = do_PUT = do_HEAD = _deal  # noqa: N815 - the names that the base class calls

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        web.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield web
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("methods", [("GET", "PUT"), ("PUT",)])
@pytest.mark.parametrize("status", [302, 307, 308])
def test_a_web_server_that_points_elsewhere_is_not_followed(
    tmp_path: Path, methods: tuple[str, ...], status: int
) -> None:
    """Neither read nor written where it points; the host is named, and nothing else of it."""
    pytest.importorskip("aiohttp")
    with _web(lambda _: (404, "")) as other:
        at = other.url.partition("//")[2]
        pointed = f"http://me:pass-word@{at}/there?key=pass-word"
        with _web(lambda method: (status, pointed) if method in methods else (404, "")) as web:
            with pytest.raises(StoreError) as raised:
                Store(tmp_path / "own", publish=f"{web.url}/lib")
            assert web.received
        assert other.received == []
    sentence = str(raised.value)
    assert f"it points to http://{at}, and redirects are not followed" in sentence
    assert "give the location that it points to" in sentence
    assert "pass-word" not in sentence


NAME = result_name(key_of("text 0"))


@pytest.mark.parametrize("links", [True, False])
def test_the_first_write_of_a_name_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    """A second one changes nothing; `replace` overwrites; no other file is left."""
    if not links:

        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", refuse)
    objects = FolderObjects(tmp_path, "test")
    assert objects.write({NAME: b"first"}) == {}
    assert objects.write({NAME: b"second"}) == {}
    assert objects.read([NAME]).objects == {NAME: b"first"}
    assert objects.write({NAME: b"third"}, {NAME}) == {}
    assert contents(tmp_path) == {NAME: b"third"}
    assert objects.list("results") == {NAME: 5}
    objects.close()


def test_nothing_is_made_where_the_folder_is_not_mounted_any_more(tmp_path: Path) -> None:
    """A write fails, and a read finds nothing."""
    root = tmp_path / "mounted"
    root.mkdir()
    objects = FolderObjects(root, "test")
    shutil.rmtree(root)
    failed = objects.write({NAME: b"content"})
    assert failed[NAME].kind == "bucket"
    assert objects.read([NAME]).objects == {}
    assert not root.exists()
    objects.close()


def test_what_killed_processes_left_is_removed_after_a_day(tmp_path: Path) -> None:
    """Clocks of machines differ, so younger files stay."""
    for name in ("old", "young"):
        (tmp_path / "new").mkdir(exist_ok=True)
        (tmp_path / "new" / name).write_text("half")
    os.utime(tmp_path / "new" / "old", (1_000_000_000, 1_000_000_000))
    (tmp_path / MARKER).write_bytes(marker())
    objects = open_objects(tmp_path, "test", writing=True)
    assert objects is not None
    assert contents(tmp_path).keys() == {MARKER, "new/young"}
    objects.close()
