"""A disk that fills up while people vote: nothing confirmed is lost, and the page says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
