"""What is saved stays: on a full disk, and when a server is killed."""

from __future__ import annotations

import random
import signal
import threading
import time
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.ratings.folder import read_ratings, read_votes
from tests.disk import small_disk
from tests.ratings.serving import agree, records, request, served, slots
from tests.ratings.studies import make_study
from tests.ratings.use import see

pytest.importorskip("starlette")


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


@pytest.mark.slow
def test_a_disk_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """Read-only from the outside; nothing is answered as saved."""
    with small_disk(tmp_path / "disk", "size=2m") as disk:
        make_study(disk.seen / "study", "pair", count=4)
        with served(disk.place / "study", command=disk._enter) as server:
            address = server.addresses["a2"]
            agree(address)
            disk.fill(left=0)
            replies = [
                request(address, "vote", {"key": f"key-{n:08d}", "slot": slot, "verdict": "B"})
                for n, slot in enumerate(slots(address))
            ]
            kept = records(disk.seen / "study", "a2")
            assert [reply.content["saved"] for reply in replies].count(True) == len(kept)


pytest.importorskip("starlette")


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
    """Four kills at drawn times while three people vote; the last server lets them finish."""
    folder = tmp_path / "study"
    make_study(folder, "pair", count=120, annotators=3, overlap=2, share=0.3)
    confirmed: dict[str, list[str]] = {}
    unsent: dict[str, dict[str, str] | None] = {}
    for attempt in range(5):
        with served(folder) as server:
            people = {name: url for name, url in server.addresses.items() if name != "operator"}
            for address in people.values():
                agree(address)
            voters = {name: Voter(url, name, unsent.get(name)) for name, url in people.items()}
            for voter in voters.values():
                voter.start()
            if attempt < 4:
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
