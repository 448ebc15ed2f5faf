"""Claims on work, and turns: locks that end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from pytest_cepbench.store.claims import Claims

PATIENCE = 10.0


@pytest.fixture
def claims(tmp_path: Path) -> Claims:
    """An empty folder of claims."""
    return Claims(tmp_path / "claims")


def die_with(claims: Claims, name: str, run: str) -> None:
    """Have a process take some work and die over it."""
    child = os.fork()
    if child == 0:
        held = claims.take(name, run)
        os._exit(0 if held else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_one_has_the_others_do_not_get(claims: Claims, tmp_path: Path) -> None:
    """Until it is given back; other work is free meanwhile."""
    mine = claims.take("a", "run")
    assert mine is not None
    with mine:
        assert claims.take("a", "run") is None
        other = claims.take("b", "run")
        assert other is not None
        with other:
            pass
    again = claims.take("a", "run")
    assert again is not None
    with again:
        assert again.deaths == 0
    assert not list((tmp_path / "claims").glob("*.lock"))


def test_a_claim_ends_with_its_process_and_its_death_is_known(claims: Claims) -> None:
    """To the same run; the next one begins without a word of it."""
    die_with(claims, "a", "run")
    die_with(claims, "a", "run")
    third = claims.take("a", "run")
    assert third is not None
    with third:
        assert third.deaths == 2
    die_with(claims, "a", "run")
    later = claims.take("a", "another")
    assert later is not None
    with later:
        assert later.deaths == 0


def test_deaths_are_remembered_where_they_are_to_be(claims: Claims) -> None:
    """Whoever leaves such work alone leaves its history too."""
    die_with(claims, "a", "run")
    seen = claims.take("a", "run")
    assert seen is not None
    with seen:
        seen.keep = True
    again = claims.take("a", "run")
    assert again is not None
    with again:
        assert again.deaths == 1


def test_who_works_alone_waits_for_the_others_and_they_for_it(
    claims: Claims, tmp_path: Path
) -> None:
    """Those who come meanwhile make room before they wait."""
    order: list[str] = []
    started, asked, room = threading.Event(), threading.Event(), threading.Event()

    def alone() -> None:
        started.set()
        with claims.alone():
            order.append("alone begins")
            assert room.wait(PATIENCE)
            order.append("alone ends")

    def another() -> None:
        def make_room() -> None:
            order.append("room is made")
            room.set()

        asked.set()
        with claims.together(make_room):
            order.append("another works")

    first = threading.Thread(target=alone)
    second = threading.Thread(target=another)
    with claims.together(lambda: None):
        first.start()
        assert started.wait(PATIENCE)
        while not _is_wanted(tmp_path / "claims"):
            time.sleep(0.01)
        second.start()
        assert room.wait(PATIENCE)
        order.append("the first is done")
    first.join(PATIENCE)
    second.join(PATIENCE)
    assert order == [
        "room is made", "the first is done", "alone begins", "alone ends", "another works",
    ]  # fmt: skip


def _is_wanted(folder: Path) -> bool:
    """Whether somebody waits to work alone."""
    with (folder / "wanted.turn").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_many_work_together(claims: Claims) -> None:
    """Nobody waits where nobody wants to be alone."""
    with claims.together(pytest.fail), claims.together(pytest.fail):
        pass
