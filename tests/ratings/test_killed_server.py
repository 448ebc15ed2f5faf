"""A server that is killed at any moment: every confirmed vote is there, and none is there twice."""

from __future__ import annotations

import random
import signal
import threading
import time
from http.client import HTTPException
from pathlib import Path

import pytest

from pytest_cepbench.ratings.folder import read_ratings, read_votes
from tests.ratings.serving import agree, request, served, slots
from tests.ratings.studies import make_study

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
