"""Several processes on one store, and their claims on work: nothing confirmed is ever lost."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.errors import StoreError, StoreFullError
from pytest_cepbench.store import Store, StoredResult
from pytest_cepbench.store.database import INDEX, _enter_wal, replacement_lock
from pytest_cepbench.store.locks import WorkLocks
from tests.artifacts.files import noise
from tests.optional import known
from tests.store.filling import age, database, key_of, picture


def text_of(name: str, number: int) -> str:
    """What a writer stores; long enough to fill pages, and to be cut in two by a kill."""
    return f"{name} {number} " * 60


def write(root: Path, name: str, count: int) -> None:
    """Write results, images and shared keys, in turn, and to a file beside the store what was
    confirmed: `own KEY`, `image DIGEST`, or `shared KEY TEXT`, the text that counts for all.
    """
    with Store(root) as store, root.with_name(name).open("w", buffering=1) as said:
        for number in range(count):
            keys = [f"{name}-{number}-{part}" for part in range(3)]
            kept = store.put([StoredResult(key, text_of(key, number)) for key in keys])
            said.writelines(f"own {key}\n" for key in kept)
            image = ImageArtifact(noise(seed=abs(hash((name, number))) % 2**32))
            said.write(f"image {store.put_artifact(image)}\n")
            shared = f"shared-{number}"
            counts = store.put([StoredResult(shared, f"of-{name}")])[shared]
            said.write(f"shared {shared} {counts}\n")


def check_confirmed(root: Path, lines: list[str]) -> int:
    """Everything that the lines confirm is in the store, undamaged; returns how much that is."""
    confirmed_lines = [line.split() for line in lines]
    with Store(root) as store:
        keys = [words[1] for words in confirmed_lines if words[0] == "own"]
        stored = store.get(keys)
        assert stored == {key: text_of(key, int(key.split("-")[1])) for key in keys}
        for words in confirmed_lines:
            if words[0] == "image":
                assert store.get_artifact(words[1]) is not None
            if words[0] == "shared":
                assert store.get([words[1]]) == {words[1]: words[2]}
        assert store.damage == []
    return len(confirmed_lines)


@pytest.mark.slow
def test_several_processes_lose_nothing_that_was_confirmed(tmp_path: Path) -> None:
    """Four make, open and fill one store at once, and agree, while others are killed at random
    moments, each of which opens what the one before it left: all that was confirmed is there.
    """
    root, moments = tmp_path / "store", random.Random(0)
    fork = multiprocessing.get_context("fork")
    counts = {f"w{i}": 60 for i in range(4)} | {f"victim{i}": 1_000_000 for i in range(5)}
    processes = {
        name: fork.Process(target=write, args=(root, name, count), daemon=True)
        for name, count in counts.items()
    }

    def confirmed(name: str) -> list[str]:
        """Whole lines: the kill may have cut the last one in two."""
        path = tmp_path / name
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [line for line in lines if line.endswith("\n")]

    for name, process in processes.items():
        process.start()
        if name.startswith("victim"):
            most = moments.randrange(1, 120)
            while len(confirmed(name)) < most:
                assert process.is_alive()
                time.sleep(0.01)
            process.kill()
            process.join()
    for name, process in processes.items():
        process.join()
        killed = name.startswith("victim")
        assert process.exitcode == (-9 if killed else 0)
        found = check_confirmed(root, confirmed(name))
        assert found > 0 if killed else found == 60 * 5
    shared = [{line for line in confirmed(f"w{i}") if line.startswith("shared")} for i in range(4)]
    assert shared[0] == shared[1] == shared[2] == shared[3]


def test_no_process_waits_for_ever_to_open_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped while it had it to itself is named, and not waited for."""
    monkeypatch.setattr("pytest_cepbench.store.database.PATIENCE", 0.3)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with replacement_lock(tmp_path / INDEX):
            os.write(writing, b"x")
            os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.read(reading, 1)
    with pytest.raises(StoreError, match="another process has been opening or repairing the index"):
        Store(tmp_path)
    os.kill(child, signal.SIGCONT)
    assert os.waitpid(child, 0)[1] == 0
    Store(tmp_path).close()


def test_a_new_index_waits_for_whoever_has_the_file(tmp_path: Path) -> None:
    """SQLite itself does not wait there, whatever its time-out says."""
    path = tmp_path / "index.sqlite"
    with (
        closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other,
        closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection,
    ):
        other.execute("CREATE TABLE t (x)")
        other.execute("BEGIN EXCLUSIVE")
        release = threading.Timer(0.1, other.execute, ["COMMIT"])
        release.start()
        _enter_wal(connection)
        release.join()
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_threads_share_a_store(tmp_path: Path) -> None:
    """What eight of them put, read, note and forget at once is all there, and they agree."""
    with Store(tmp_path) as store, ThreadPoolExecutor(8) as threads:

        def work(worker: int) -> list[object]:
            agreed: list[object] = []
            for number in range(25):
                own = key_of(f"{worker} {number}")
                assert store.put([StoredResult(own, f"of {worker}")]) == {own: f"of {worker}"}
                both = key_of(f"both {number}")
                agreed.append(store.put([StoredResult(both, f"of {worker}")])[both])
                assert store.get_artifact(store.put_artifact(picture(number))) is not None
                store.note("last", f"{worker} {number}")
                store.put([StoredResult(f"wrong {own}", "wrong")])
                store.forget([f"wrong {own}"], why="wrong")
            return agreed

        first, *others = threads.map(work, range(8))
        assert others == [first] * 7
        keys = [key_of(f"{worker} {number}") for worker in range(8) for number in range(25)]
        assert store.get(keys).keys() == set(keys)
        assert (len(store), len(store.damage)) == (225, 200)
        assert store.notes(["last"])["last"].endswith(" 24")


def test_a_hit_is_remembered_when_the_store_is_closed(tmp_path: Path) -> None:
    """By the day, for what was found and had been stored before that day."""

    def days() -> dict[str, int]:
        with database(tmp_path) as connection:
            query = "SELECT key, day FROM used JOIN results USING (id)"
            return dict(connection.execute(query).fetchall())

    with Store(tmp_path) as store:
        store.put([StoredResult("a", "1"), StoredResult("b", "2")])
        store.get(["a", "b"])
    assert days() == {}
    age(tmp_path, ["a"], 9)
    with Store(tmp_path) as store:
        store.get(["a", "b", "absent"])
    (day,) = days().values()
    assert days().keys() == {"a"}
    with database(tmp_path) as connection:
        connection.execute("UPDATE used SET day = ?", (day - 5,))
    with Store(tmp_path) as store:
        store.get(["a"])
    assert days() == {"a": day}


# -- claims on work --------------------------------------------------------------------------------


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


def test_who_is_waited_for_is_said_once(locks: WorkLocks, tmp_path: Path) -> None:
    """A process of another run, by its id, and how to go on; not one of this run."""
    said: list[str] = []
    locks.say = said.append
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        held = locks.acquire("a", "other"), locks.acquire("b", "run")
        os.write(writing, b"%d" % all(held))
        time.sleep(60)
        os._exit(0)
    os.close(writing)
    assert os.read(reading, 1) == b"1"
    os.close(reading)
    assert locks.acquire("a", "run") is None
    assert locks.say_who(60.0, "b") == ""
    assert locks.say_who(0.5, "a") == ""
    assert said == []
    who = locks.say_who(60.0, "a")
    assert who == f"process {child} on {os.uname().nodename}"
    assert locks.say_who(60.0, "a") == who
    (sentence,) = said
    assert sentence.startswith(f"waiting for {who}, which works on the same store {tmp_path}")
    assert sentence.endswith(
        "end that process, or start this run with another store (--cep-store DIR)"
    )
    os.kill(child, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
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
