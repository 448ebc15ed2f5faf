"""The application as browsers and strangers reach it; answers are read strictly, kept once."""

from __future__ import annotations

import dataclasses
import json
import logging
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.errors import DatasetError, WriteError
from pytest_cepbench.metrics.human_ratings import GRADES
from pytest_cepbench.option_values import bind
from pytest_cepbench.ratings.app import render_item
from pytest_cepbench.ratings.folder import read_ratings, read_votes
from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.live_study import LiveStudy, SentAnswer, make_vote, parse_answer
from pytest_cepbench.ratings.records import Part, Study, Task, Vote, fault_of, record_line
from tests.disk import small_disk
from tests.optional import needs
from tests.ratings.serving import Reply, records, request, see, served, slots
from tests.ratings.studies import NAMES, give, make_study
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


# -- answers that pages send: read strictly, and kept once -----------------------------------------


WHO = {"annotator": "a1", "at": "2026-11-22T10:00:00Z"}


@given(data=st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([*SentAnswer.__struct_fields__, "x"]), inner, max_size=4),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_whatever_is_sent_is_an_answer_or_refused_in_one_line(data: bytes) -> None:
    """Never another error."""
    reason, key = "", "12345678"
    try:
        key = parse_answer(data).key
    except DatasetError as error:
        reason = str(error)
    assert "\n" not in reason
    assert 8 <= len(key) <= 64


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"key": "short"}, r"matching regex .*\{8,64\}.* at `\$\.key`"),
        ({"key": "../../etc/passwd"}, r"at `\$\.key`"),
        ({"key": "12345678\n"}, r"at `\$\.key`"),
        ({"browser": [1]}, "its width and its height"),
        ({"note": "x" * 20_001}, r"length <= 20000 - at `\$\.note`"),
        ({"model": "alpha"}, "unknown field `model`"),
        ({"errors": {"A": ["ugly"]}}, "Invalid enum value 'ugly'"),
    ],
)
def test_answers_are_read_strictly(fields: dict[str, Any], message: str) -> None:
    """The first thing that is wrong is named."""
    with pytest.raises(DatasetError, match=message):
        parse_answer(json.dumps({"key": "12345678", "slot": "s"} | fields).encode())


@pytest.mark.parametrize(
    ("task", "fields", "message"),
    [
        ("pair", {"verdict": "C"}, "'C' is no verdict of the task pair"),
        ("pair", {"verdict": "<script>"}, "is no verdict"),
        ("caption", {"verdict": "A"}, "no verdict of the task caption"),
        ("grades", {"grades": ["good"], "ranks": [1]}, "each of the 3 outputs needs"),
        ("describe", {"text": "word " * 500}, "at most 499 words, and this one 500"),
        ("describe", {"text": "  "}, "at least a word"),
        ("verify", {"ticked": [9]}, "another item than this"),
        ("verify", {"added": [9]}, "another item than this"),
        ("verify", {"added": [0]}, "not in the closed list"),
    ],
)
def test_what_is_no_answer_is_refused(
    task: Task, fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """It never becomes a record."""
    shown: tuple[str | int, ...] = ("first", "second") if task in ("pair", "caption") else (2, 0, 1)
    with pytest.raises(DatasetError, match=message):
        own_vote(tmp_path, task, shown, **fields)


@given(data=st.data(), count=st.integers(2, 9))
def test_grades_and_ranks_are_put_in_the_items_order(data: st.DataObject, count: int) -> None:
    """Whatever the order of the page; equal ranks are a list of their own."""
    item = make_item("grades", [Part(text="q")], [[Part(text=str(n))] for n in range(count)])
    shown = tuple(data.draw(st.permutations(range(count))))
    grades = data.draw(st.lists(st.sampled_from(GRADES), min_size=count, max_size=count))
    ranks = data.draw(st.lists(st.integers(1, count), min_size=count, max_size=count))
    study = Study(kind="grades", annotators=("a1",))
    answer = SentAnswer(key="12345678", slot="s", grades=tuple(grades), ranks=tuple(ranks))
    vote = make_vote(answer, study, item, "item", shown, **WHO)
    assert fault_of(vote, study, item) == ""
    places = [place if isinstance(place, tuple) else (place,) for place in vote.ranking]
    for at, option in enumerate(shown):
        assert vote.grades[str(option)] == grades[at]
        better = {number for other, number in zip(ranks, shown, strict=True) if other < ranks[at]}
        before = [number for place in places for number in place]
        tied = next(place for place in places if option in place)
        assert set(before[: before.index(tied[0])]) == better


def own_vote(folder: Path, task: Task, shown: Sequence[str | int] = (), **fields: Any) -> Vote:
    """The vote of an answer with these fields to the one item of a study."""
    ratings = make_study(folder, task, count=1)
    sent = json.dumps({"key": "12345678", "slot": "s"} | fields).encode()
    item = next(iter(ratings.items.values()))
    return make_vote(parse_answer(sent), ratings.study, item, "item", shown, **WHO)


def test_ticks_are_names_and_errors_are_of_their_answer(tmp_path: Path) -> None:
    """In the item's order, with those that are not ticked; markup in names is kept as it is.

    Seconds are those of a day at most: the clock of a page can say anything. Errors are ticked
    under A or B, and kept by side in the order of the table, wherever the answer stood.
    """
    vote = own_vote(tmp_path / "names", "verify", ticked=(2, 0), added=(3, 3))
    assert (vote.ticked, vote.unticked, vote.added) == (
        (NAMES[0], NAMES[2]), (NAMES[1],), NAMES[3:],
    )  # fmt: skip
    for sent, kept in ((-5.0, 0.0), (3.14159, 3.14), (1e12, 86_400.0)):
        vote = own_vote(tmp_path / str(kept), "describe", text="it", seconds=sent)
        assert vote.seconds == kept
    told = {"A": ["incomplete", "factual", "factual"], "B": []}
    study, item = Study(kind="caption", annotators=("a1",)), make_item("caption", [], [])
    for shown in (("first", "second"), ("second", "first")):
        vote = own_vote(tmp_path / shown[0], "pair", shown, verdict="B", errors=told)
        assert vote.errors == {shown[0]: ("factual", "incomplete")}
        assert msgspec.json.decode(record_line(vote), type=Vote) == vote
        assert b"errors" not in record_line(msgspec.structs.replace(vote, errors={}))
        assert "of pairs" in fault_of(msgspec.structs.replace(vote, task="caption"), study, item)


def test_a_page_that_shows_other_names_is_told(tmp_path: Path) -> None:
    """As after a restart with another list: a number would be another name's."""
    ratings = make_study(tmp_path, "verify", count=1)
    with LiveStudy(ratings) as live:
        (shown,) = live.upcoming("a1")
    names = msgspec.structs.replace(ratings.study, names=("Added", *NAMES))
    sent = json.dumps({"key": "12345678", "slot": shown.slot, "ticked": [0], "added": [3]})
    with (
        LiveStudy(dataclasses.replace(ratings, study=names)) as live,
        pytest.raises(DatasetError, match="that this study does not ask"),
    ):
        live.save("a1", parse_answer(sent.encode()))


@pytest.mark.slow
def test_what_was_confirmed_is_kept_and_the_rest_is_sent_again(
    tmp_path: Path, open_page: Any
) -> None:
    """The page keeps the answer, says that it is not saved, and saves it when there is room."""
    with small_disk(tmp_path / "disk", "size=2m") as disk:
        make_study(disk.seen / "study", "pair", count=40)
        with served(disk.place / "study", command=disk._enter) as server:
            address = server.addresses["a1"]
            page = open_page(address)
            page.keyboard.press("1")
            page.get_by_text("saved", exact=True).wait_for()
            ballast = disk.fill(left=0)
            saved = 1
            while True:  # the page of the file that is begun has room for some votes
                body = {"key": f"key-{saved:08d}", "slot": slots(address)[0], "verdict": "B"}
                reply = request(address, "vote", body)
                if reply.status != 200:
                    break
                saved += 1
            assert (reply.status, reply.content["saved"]) == (507, False)
            assert reply.content["reason"] == "the server's disk is full; tell the organizer"
            assert len(records(disk.seen / "study")) == saved
            page.reload()
            page.wait_for_selector("[data-slot]")
            see(page)
            page.keyboard.press("4")
            page.get_by_text("Not saved: the server's disk is full").wait_for()
            assert page.locator("#status").inner_text() == "not saved"
            assert len(records(disk.seen / "study")) == saved
            ballast.unlink()
            page.get_by_text("saved", exact=True).wait_for()
            votes = records(disk.seen / "study")
            assert [vote["verdict"] for vote in votes] == ["A", *"B" * (saved - 1), "B"]


class Voter(threading.Thread):
    """A person who votes without a pause until the server does not answer any more.

    confirmed: keys of votes that were called saved. unsent: the one whose reply did not come.
    """

    def __init__(self, address: str, name: str, unsent: dict[str, str] | None) -> None:
        super().__init__()
        self._address, self._name = address, name
        self.confirmed: list[str] = []
        self.unsent = unsent

    def run(self) -> None:
        """Vote; the vote before the server was killed is sent first, as the page does it."""
        try:
            while True:
                if self.unsent is None:
                    upcoming = slots(self._address)
                    if not upcoming:
                        return
                    key = f"{self._name}-{random.getrandbits(60)}"
                    self.unsent = {"key": key, "slot": upcoming[0], "verdict": "A"}
                if request(self._address, "vote", self.unsent).content["saved"]:
                    self.confirmed.append(self.unsent["key"])
                    self.unsent = None
        except (OSError, HTTPException):
            return


@pytest.mark.slow
def test_confirmed_votes_survive_kills(tmp_path: Path) -> None:
    """Two kills at drawn times while three people vote; the last server lets them finish."""
    folder = tmp_path / "study"
    make_study(folder, "pair", count=120, annotators=3, overlap=2)
    confirmed: dict[str, list[str]] = {}
    unsent: dict[str, dict[str, str] | None] = {}
    for attempt in range(3):
        with served(folder) as server:
            voters = {
                name: Voter(url, name, unsent.get(name)) for name, url in server.addresses.items()
            }
            for voter in voters.values():
                voter.start()
            if attempt < 2:
                time.sleep(random.uniform(0.2, 0.8))
                server.process.send_signal(signal.SIGKILL)
            for name, voter in voters.items():
                voter.join(60)
                confirmed.setdefault(name, []).extend(voter.confirmed)
                unsent[name] = voter.unsent
    votes = read_votes(read_ratings(folder))
    for name, keys in confirmed.items():
        written = [vote.key for vote in votes.records[name]]
        assert len(set(written)) == len(written)
        assert set(keys) == set(written)
        assert unsent[name] is None
    assert {vote.item for vote in votes.answers()} == set(read_ratings(folder).items)
