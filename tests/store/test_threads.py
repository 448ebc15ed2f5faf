"""Threads of one process: any of them may call anything, and notes are for all."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pytest_cepbench.store import Store, StoredResult
from tests.store.filling import database, key_of, picture


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
                assert store.get_image(store.put_image(picture(number))) is not None
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


def test_the_last_note_counts(tmp_path: Path) -> None:
    """Also for the next process; what was never noted is absent."""
    with Store(tmp_path) as store:
        store.note("a", "1")
        store.note("b", "2")
        store.note("a", "3")
    with Store(tmp_path) as store:
        assert store.notes(["a", "b", "c"]) == {"a": "3", "b": "2"}
        assert store.notes([]) == {}


def test_a_store_of_an_earlier_version_is_taken_on(tmp_path: Path) -> None:
    """One that has neither notes nor days of use gets both and keeps its results."""
    with Store(tmp_path) as store:
        store.put([StoredResult("k", "text")])
    with database(tmp_path) as connection:
        connection.execute("DROP TABLE notes")
        connection.execute("DROP TABLE used")
    with Store(tmp_path) as store:
        store.note("a", "1")
        assert store.notes(["a"]) == {"a": "1"}
        assert store.get(["k"]) == {"k": "text"}


def test_a_hit_is_remembered_when_the_store_is_closed(tmp_path: Path) -> None:
    """By the day, for what was found; storing is no hit."""

    def days() -> dict[str, int]:
        with database(tmp_path) as connection:
            return dict(connection.execute("SELECT * FROM used").fetchall())

    with Store(tmp_path) as store:
        store.put([StoredResult("a", "1"), StoredResult("b", "2")])
    assert days() == {}
    with Store(tmp_path) as store:
        store.get(["a", "absent"])
    (day,) = days().values()
    assert days().keys() == {"a"}
    with database(tmp_path) as connection:
        connection.execute("UPDATE used SET day = ?", (day - 5,))
    with Store(tmp_path) as store:
        store.get(["a"])
    assert days() == {"a": day}


def test_a_run_that_only_reads_does_not_fail_for_its_days(tmp_path: Path) -> None:
    """Where nothing can be written any more, the days of use are lost and nothing else."""
    with Store(tmp_path) as store:
        store.put([StoredResult("a", "1")])
    with Store(tmp_path) as store:
        assert store.get(["a"]) == {"a": "1"}
        store.index.read("PRAGMA query_only=ON")
    with sqlite3.connect(tmp_path / "index.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM used").fetchone() == (0,)
    connection.close()
