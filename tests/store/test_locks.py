"""Claims on work: locks that end with the process that holds them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from pytest_cepbench.errors import StoreFullError
from pytest_cepbench.store.locks import WorkLocks
from tests.optional import known

PATIENCE = 10.0


@pytest.fixture
def locks(tmp_path: Path) -> WorkLocks:
    """An empty folder of locks."""
    return WorkLocks(tmp_path / "claims")


def die_with(locks: WorkLocks, name: str, run: str) -> None:
    """Have a process take some work and die over it."""
    child = os.fork()
    if child == 0:
        own = locks.acquire(name, run)
        os._exit(0 if own else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_one_has_the_others_do_not_get(locks: WorkLocks, tmp_path: Path) -> None:
    """Until it is given back; other work is free meanwhile. A claim ends with its process, and its
    death is known to the same run; the next one begins without a word of it.
    """
    with known(locks.acquire("a", "run")):
        assert locks.acquire("a", "run") is None
        with known(locks.acquire("b", "run")):
            pass
    with known(locks.acquire("a", "run")) as again:
        assert again.crashes == 0
    assert not list((tmp_path / "claims").glob("*.lock"))
    die_with(locks, "a", "run")
    die_with(locks, "a", "run")
    with known(locks.acquire("a", "run")) as third:
        assert third.crashes == 2
        third.keep = True  # a process that leaves such work alone leaves its history too
    with known(locks.acquire("a", "run")) as fourth:
        assert fourth.crashes == 2
    die_with(locks, "a", "run")
    with known(locks.acquire("a", "another")) as later:
        assert later.crashes == 0


HOLDER = """\
import sys
from pathlib import Path
from pytest_cepbench.store.locks import WorkLocks
locks = WorkLocks(Path(sys.argv[1]))
held = locks.acquire("a", "other"), locks.acquire("b", "run")
print(all(held), flush=True)
sys.stdin.read()
"""
"""A program that keeps two locks until it is ended."""


def test_who_is_waited_for_is_said_once(locks: WorkLocks, tmp_path: Path) -> None:
    """A process of another run, by its id, and how to go on; not one of this run."""
    said: list[str] = []
    locks.say = said.append
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "claims")]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert locks.acquire("a", "run") is None
        assert locks.say_who(60.0, "b") == ""
        assert locks.say_who(0.5, "a") == ""
        assert said == []
        who = locks.say_who(60.0, "a")
        assert who == f"process {other.pid} on {os.uname().nodename}"
        assert locks.say_who(60.0, "a") == who
        (sentence,) = said
        assert sentence.startswith(f"waiting for {who}, which works on the same store {tmp_path}")
        assert sentence.endswith(
            "end that process, or start this run with another store (--cep-store DIR)"
        )
        other.kill()
    assert locks.say_who(60.0, "a") == ""  # it is gone, and its lock free


def test_a_lock_that_a_dead_process_left_to_its_child_is_passed_over(locks: WorkLocks) -> None:
    """A process that forked while it had work and died: its death is known, and none waits."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        own = locks.acquire("a", "run")
        grandchild = os.fork()
        if grandchild == 0:
            os.close(writing)
            os.read(reading, 1)  # until the test is over
            os._exit(0)
        os._exit(0 if own else 1)
    assert os.waitpid(child, 0)[1] == 0
    os.close(reading)
    try:
        with known(locks.acquire("a", "run")) as mine:
            assert mine.crashes == 1
            assert locks.acquire("a", "run") is None
    finally:
        os.close(writing)


def test_what_was_given_back_is_free_although_a_child_lives(locks: WorkLocks) -> None:
    """A process that was forked meanwhile has the files open still, and no lock."""
    reading, writing = os.pipe()
    for keep in (True, False):
        with known(locks.acquire("a", "run")) as mine:
            mine.keep = keep
            child = os.fork()
            if child == 0:
                os.close(writing)
                os.read(reading, 1)
                os._exit(0)
        with known(locks.acquire("a", "run")):
            pass
    os.close(reading)
    os.close(writing)


def test_a_full_disk_does_not_take_crashes_back(
    locks: WorkLocks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work over which a process was killed still counts that, when its lock cannot be written."""

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    die_with(locks, "a", "run")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        for name in ("a", "b"):
            with pytest.raises(StoreFullError):
                locks.acquire(name, "run")
    assert [path.stem for path in (tmp_path / "claims").iterdir()] == ["a"]  # no empty file
    with known(locks.acquire("a", "run")) as lock:
        assert lock.crashes == 1
