"""Several processes on one store, and processes that are killed: nothing confirmed is ever lost."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pytest_cepbench.errors import StoreError
from pytest_cepbench.store import Store, StoredResult
from pytest_cepbench.store.database import INDEX, _enter_wal, replacement_lock
from tests.store.filling import age, database, key_of, picture
from tests.store.writer import text_of

ROOT = Path(__file__).parents[2]

Start = Callable[[str, int], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a writer that waits for its word to go; killed at the end if it still runs."""
    with ExitStack() as stack:

        def begin(name: str, count: int) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "tests.store.writer", str(tmp_path), name, str(count)]
            process = stack.enter_context(
                subprocess.Popen(
                    command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
            stack.callback(process.kill)
            return process

        yield begin


def go(process: subprocess.Popen[str]) -> None:
    """Let a writer begin."""
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()


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
def test_several_processes_lose_nothing_that_was_confirmed(tmp_path: Path, start: Start) -> None:
    """Nine make, open and fill one store at once, five of which are killed at random moments: every
    confirmed result and image is there, and the others agree.
    """
    moments = random.Random(0)
    writers = [start(f"w{i}", 30) for i in range(4)]
    victims = [start(f"victim{i}", 1_000_000) for i in range(5)]
    for process in (*writers, *victims):
        go(process)
    lines: list[str] = []
    for victim in victims:
        assert victim.stdout is not None
        lines += [victim.stdout.readline() for _ in range(moments.randrange(1, 120))]
        victim.kill()
        # What had been said and not read yet; the kill may have cut the last line in two.
        lines += [line for line in victim.communicate()[0].splitlines(True) if line.endswith("\n")]
        assert victim.returncode == -9
    outputs = [writer.communicate()[0].splitlines() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4
    confirmed = check_confirmed(tmp_path, [line for own in outputs for line in own])
    assert confirmed == 4 * 30 * 5
    assert check_confirmed(tmp_path, lines) > 5
    shared = [{line for line in own if line.startswith("shared")} for own in outputs]
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
