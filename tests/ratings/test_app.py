"""The application as browsers and strangers reach it: headers, bodies, no double vote."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pytest_cepbench.errors import WriteError
from pytest_cepbench.option_values import bind
from pytest_cepbench.ratings.app import render_item
from pytest_cepbench.ratings.folder import read_ratings
from pytest_cepbench.ratings.live_study import LiveStudy
from pytest_cepbench.ratings.records import Task
from tests.optional import needs
from tests.ratings.serving import Reply, records, request, slots
from tests.ratings.studies import give, make_study
from tests.report.pages import read_page

needs("starlette")

PAGE = {"Content-Type": "application/json", "X-Cepbench": "1"}

OWN = PAGE | {"Sec-Fetch-Site": "same-origin"}


class Site:
    """A served study. folder: of it. a1, a2: addresses."""

    def __init__(self, live: LiveStudy, port: int) -> None:
        self.folder, self.live = live.ratings.path, live
        self.base = f"http://127.0.0.1:{port}/"
        self.a1, self.a2 = (f"{self.base}a/{token}/" for token in live.people)

    def vote(self, key: str) -> Reply:
        """An answer of a1 to what is shown."""
        body = {"key": key, "slot": slots(self.a1)[0], "verdict": "A", "seconds": 2.5}
        return request(self.a1, "vote", body)


@contextmanager
def served_site(folder: Path, count: int = 5) -> Iterator[Site]:
    """A study of pairs for two people, served by a thread."""
    import uvicorn

    from pytest_cepbench.ratings.app import make_app

    make_study(folder, "pair", count=count, overlap=2)
    with LiveStudy(read_ratings(folder)) as live, bind(0) as listener:
        app = make_app(live, ["127.0.0.1", "rate.example.org"])
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", server_header=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        site = Site(live, listener.getsockname()[1])
        try:
            yield site
        finally:  # or a test that fails would never end
            server.should_exit = True
            thread.join()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A study of its own for a test that votes."""
    with served_site(tmp_path / "study") as site:
        yield site


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A study in which no vote is saved."""
    with served_site(tmp_path_factory.mktemp("served") / "study") as site:
        yield site


def test_pages_run_nothing_but_their_own(untouched: Site) -> None:
    """A nonce of each response for the three files that are named; all else is refused."""
    first, second = request(untouched.a1), request(untouched.a2)
    nonces = set()
    for reply in (first, second):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        nonce = re.search(r"script-src 'nonce-([^']+)'", policy)
        assert nonce is not None
        assert reply.body.count(f'nonce="{nonce[1]}"'.encode()) == 3
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "server" not in reply.headers
        assert read_page(reply.body.decode()).text
        nonces.add(nonce[1])
    assert len(nonces) == 2


@pytest.mark.parametrize("task", ["pair", "caption", "grades", "describe", "verify"])
def test_items_of_every_task_are_sound_html(tmp_path: Path, task: Task) -> None:
    """Every tag closes and every attribute has quotes, whatever names and texts contain."""
    make_study(tmp_path / "study", task, count=3)
    with LiveStudy(read_ratings(tmp_path / "study")) as live:
        shown = live.upcoming("a1")
        assert shown
        for item in shown:
            html = render_item(item, live.ratings.study, live.image_name)
            assert not read_page(html).tags & {"script", "b"}


def test_without_a_token_there_is_nothing(untouched: Site) -> None:
    """Neither pages nor images, and no file of the folder; a name, which others know, is none.
    Nothing is an error of the server. Images have not the names of their files, which a store has
    too.
    """
    for path in (
        "a/none/", "a/a1/", "a/a1/upcoming", "a/none/image/x", "", "a/", "page/x",
        "page/../records.py", "page/rate.html.jinja", "sources.jsonl", "a/a1/../../study.json",
    ):  # fmt: skip
        assert request(untouched.base, path).status == 404
    for name in ("%ff%fe", "%00", "%C3%A9", "%ed%a0%80", "%", "%zz", "a" * 60_000, "%0d%0aX:%20y"):
        for page in ("", "image/%ff"):
            assert 400 <= request(untouched.base, f"a/{name}/{page}").status < 500
        assert 400 <= request(untouched.base, f"a/{name}/vote", b"{").status < 500
    digest = next((untouched.folder / "images").iterdir()).stem
    assert request(untouched.a1, f"image/{digest}").status == 404
    reply = request(untouched.a1, f"image/{untouched.live.image_name(digest)}")
    assert (reply.status, reply.headers["content-type"]) == (200, "image/webp")
    assert digest not in str(reply.headers)
    images, gone = untouched.folder / "images", untouched.folder / "gone"
    images.rename(gone)
    reply = request(untouched.a1, f"image/{untouched.live.image_name(digest)}")
    gone.rename(images)
    lost = "an image cannot be read: No such file or directory; tell the organizer"
    assert (reply.status, reply.content["reason"]) == (400, lost)


def test_addresses_stay_and_are_those_of_one_study(tmp_path: Path) -> None:
    """Their key is for its owner alone, and git does not see it; a cut off one is made anew."""
    seen = []
    for name in ("study", "study", "other"):
        if not (tmp_path / name).exists():
            make_study(tmp_path / name, "pair")
        with LiveStudy(read_ratings(tmp_path / name)) as live:
            seen.append(live.people)
            # Two servers would not know of one another's answers.
            with pytest.raises(WriteError, match="another server has"):
                LiveStudy(read_ratings(tmp_path / name))
    key = tmp_path / "study" / ".session" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.with_name(".gitignore").read_text() == "*\n"
    key.write_bytes(b"")
    with LiveStudy(read_ratings(tmp_path / "study")) as live:
        seen.append(live.people)
    assert seen[0] == seen[1]
    assert len({token for people in seen for token in people}) == 6
    assert all([*people.values()] == ["a1", "a2"] for people in seen)


def test_votes_come_from_the_page(site: Site) -> None:
    """Not from a page elsewhere, whatever it knows, and not by another name of this machine."""
    for headers, status in [
        (OWN, 200),
        (PAGE | {"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"}, 403),
        (PAGE | {"Origin": "http://evil.example"}, 403),
        (PAGE | {"Origin": "null"}, 403),
        (PAGE | {"Origin": "http://[::1"}, 403),
        (PAGE | {"Origin": "\xff"}, 403),
        (PAGE, 403),
        ({"Content-Type": "text/plain", "Sec-Fetch-Site": "same-origin"}, 403),
        (OWN | {"Host": "evil.example"}, 400),
        (PAGE | {"Origin": "http://rate.example.org", "Host": "rate.example.org"}, 200),
    ]:
        before = len(records(site.folder))
        body = {"key": f"key-{before:08}", "slot": slots(site.a1)[0], "verdict": "A"}
        assert request(site.a1, "vote", body, headers=headers).status == status
        assert len(records(site.folder)) - before == (status == 200)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{", 400, "cannot be read"),
        ({"key": "12345678", "slot": "0" * 32, "verdict": "A"}, 400, "does not ask"),
        ({"key": "12345678", "slot": "", "verdict": "A"}, 400, "does not ask"),
        ({"key": "12345678"}, 400, "slot"),
        (b" " * 300_000, 413, "at most"),
    ],
)
def test_what_is_no_vote_is_refused(untouched: Site, body: Any, status: int, reason: str) -> None:
    """In one line, and nothing is written."""
    reply = request(untouched.a1, "vote", body)
    assert (reply.status, reply.content["saved"]) == (status, False)
    assert reason in reply.content["reason"]
    assert records(untouched.folder) == []


def test_a_page_that_is_closed_amid_an_answer_is_no_error(
    untouched: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """The organizer's terminal has no traceback of it."""
    logging.getLogger("uvicorn.error").addHandler(caplog.handler)
    place = urlsplit(untouched.a1)
    head = "\r\n".join(f"{name}: {text}" for name, text in OWN.items())
    with socket.create_connection(("127.0.0.1", place.port or 0)) as browser:
        begun = f"POST {place.path}vote HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n"
        browser.sendall(f"{begun}Content-Length: 9\r\n\r\n{{".encode())
        browser.shutdown(socket.SHUT_WR)
        while browser.recv(1000):
            pass
    assert request(untouched.a1, "upcoming").status == 200
    assert caplog.records == []


def test_what_is_sent_twice_is_done_once(site: Site) -> None:
    """An undo takes nothing more back, and says so with nothing left; an answer is written once.

    Also by the next server, which knows the keys from the file.
    """
    site.vote("23456789")
    site.vote("34567890")
    shown = [request(site.a1, "undo", {"key": "undo-0001"}).content for _ in range(2)]
    assert shown[0] == shown[1]
    assert shown[0]["answer"]["slot"] in slots(site.a1)
    assert [line.get("undo", False) for line in records(site.folder)] == [False, False, True]
    assert request(site.a1, "undo", {"key": "undo-0002"}).content["undone"] is True
    assert request(site.a1, "undo", {"key": "undo-0003"}).content["undone"] is False
    assert request(site.a1, "undo", {"key": "x"}).status == 400
    before = len(records(site.folder))
    slot = slots(site.a1)[0]
    body = {"key": "12345678", "slot": slot, "verdict": "B"}
    first, second = (request(site.a1, "vote", body) for _ in range(2))
    assert first.content["saved"] is second.content["saved"] is True
    assert first.content["items"] == second.content["items"]
    (vote,) = records(site.folder)[before:]
    assert (vote["key"], vote["verdict"]) == ("12345678", "B")
    site.live.close()
    with LiveStudy(read_ratings(site.folder)) as live:
        assert slot not in [shown.slot for shown in live.upcoming("a1")]


def test_a_skipped_item_is_not_shown_again(tmp_path: Path) -> None:
    """Through the server, with half of all places due for a repeat, and over a restart."""
    make_study(tmp_path, "pair", count=20, annotators=1, repeats=0.5)
    for _ in range(2):
        with LiveStudy(read_ratings(tmp_path)) as live:
            for _ in range(15):
                give(live, "a1", skip="offensive or disturbing")
    assert {vote["kind"] for vote in records(tmp_path)} == {"item"}
    assert len(records(tmp_path)) == 20
