"""Stores of the former format: rewritten when they are opened, whole or not at all."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from pytest_cepbench.errors import StoreVersionError
from pytest_cepbench.store import Result, Store, StoredResult
from pytest_cepbench.store.database import FORMAT, INDEX
from pytest_cepbench.store.maintenance import entries, inspect
from pytest_cepbench.store.readonly import ReadonlyStore
from tests.store.filling import age, contents, database, fill, key_of
from tests.store.strategies import same

FORMER = """
ALTER TABLE results RENAME TO new_results;
ALTER TABLE files RENAME TO new_files;
ALTER TABLE used RENAME TO new_used;
CREATE TABLE results (
        key TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, payload BLOB NOT NULL,
        provenance TEXT NOT NULL, created REAL NOT NULL, seal BLOB NOT NULL);
CREATE TABLE files (
        path TEXT NOT NULL, what TEXT NOT NULL, stamp TEXT NOT NULL, digest TEXT NOT NULL,
        PRIMARY KEY (path, what));
CREATE TABLE used (key TEXT PRIMARY KEY, day INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO results SELECT lower(hex(key)), kind, payload, text, created, seal
        FROM new_results JOIN provenances ON provenances.id = provenance ORDER BY new_results.id;
INSERT INTO files SELECT * FROM new_files;
INSERT INTO used SELECT lower(hex(key)), day FROM new_used JOIN new_results USING (id);
DROP TABLE new_results;
DROP TABLE new_files;
DROP TABLE new_used;
DROP TABLE provenances;
PRAGMA user_version = 1;
VACUUM;
"""
"""What makes a store of the former format of one of this format."""

COUNT = 40


@pytest.fixture
def former(tmp_path: Path) -> Path:
    """A store of the former format: results of two models and of none, a day of use, a file."""
    folder = tmp_path / "former"
    fill(folder, range(COUNT), "a" * 16)
    fill(folder, range(COUNT, COUNT + 2), "b" * 16)
    fill(folder, range(COUNT + 2, COUNT + 3))
    for number in range(3):
        age(folder, key_of(f"text {number}"), 9)
    weights = folder / "weights"
    weights.write_text("w")
    os.utime(weights, (1, 1))
    with Store(folder) as store:
        store.get([key_of("text 0")])
        store.file_digest(weights, "bytes", lambda _: "digest")
        store.note("name", "value")
    with closing(sqlite3.connect(folder / INDEX)) as connection:
        connection.executescript(FORMER)
    return folder


def known(folder: Path) -> dict[str, object]:
    """All that a store of this format says of itself."""
    with ReadonlyStore(folder, str(folder)) as reader:
        report = inspect(folder, reader.read)
        assert report.sound
        assert report.unused == []
        rows = sorted(
            (e.key, e.kind, e.model, e.image, e.created, e.day) for e in entries(reader.read)
        )
    with Store(folder) as store:
        keys = [key for key, *_ in rows]
        digests = store.known_digests([(folder / "weights", "bytes")])
        return {
            "rows": rows,
            "results": {key: str(result) for key, result in store.get(keys).items()},
            "provenance": store.provenance(keys),
            "times": store.times(keys),
            "files": list(digests.values()),
            "notes": store.notes(["name"]),
        }


def is_former(folder: Path) -> bool:
    """Whether a store has the former format, all of it."""
    with database(folder) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert version == (FORMAT if "provenances" in tables else 1)
    assert not any(str(name).startswith("former_") for name in tables)
    return bool(version == 1)


def test_everything_is_taken_over(former: Path) -> None:
    """Results, provenances, times, days of use, digests of files and notes; it is done once."""
    with Store(former) as store:
        assert store.damage == []
        assert len(store) == 3 * (COUNT + 3)
    assert not is_former(former)
    whole = known(former)
    assert whole["files"] == ["digest"]
    assert whole["notes"] == {"name": "value"}
    rows = whole["rows"]
    assert isinstance(rows, list)
    by_key = {key: (model, day - int(created // 86400)) for key, _, model, _, created, day in rows}
    assert by_key[key_of("text 0")] == ("a" * 16, 9)
    assert by_key[key_of("text 1")] == ("a" * 16, 0)
    assert by_key[key_of(f"text {COUNT}")] == ("b" * 16, 0)
    assert by_key[key_of(f"text {COUNT + 2}")] == (None, 0)
    assert {**known(former), "rows": rows} == whole


@pytest.mark.slow
def test_a_kill_leaves_it_as_it_was_or_rewritten(former: Path) -> None:
    """Killed at moments that the clock chooses: it opens afterwards, with every result."""
    with Store(former) as store:
        expected = fill(former, range(COUNT + 3))
        store.put([StoredResult(key_of(f"more {i}"), f"{i} " * 300) for i in range(4000)])
    with closing(sqlite3.connect(former / INDEX)) as connection:
        connection.executescript(FORMER)
    started = time.monotonic()
    shutil.copytree(former, former.with_name("timed"))
    with Store(former.with_name("timed")):
        seconds = time.monotonic() - started
    moments, seen = random.Random(0), []
    for number in range(8):
        folder = former.with_name(f"killed {number}")
        shutil.copytree(former, folder)
        child = os.fork()
        if child == 0:
            Store(folder).close()
            os._exit(0)
        time.sleep(seconds * moments.random())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        seen.append(is_former(folder))
        with Store(folder) as store:
            stored = store.get(expected)
            assert stored.keys() == expected.keys()
            assert all(same(stored[key], expected[key]) for key in stored)
            assert len(store) == 4000 + len(expected)
            assert store.damage == []
    assert any(seen)


def test_several_processes_open_it_at_once(former: Path) -> None:
    """One rewrites it; the others wait, and all have every result."""
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            with Store(former) as store:
                own = StoredResult(key_of(f"own {number}"), "new")
                good = len(store.get(map(key_of, ["text 0", "vector 1"]))) == 2
                good = good and store.put([own]) == {own.key: "new"} and not store.damage
            os._exit(0 if good else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    with Store(former) as store:
        assert len(store) == 3 * (COUNT + 3) + 4


def test_an_older_version_that_has_it_open_writes_nothing_more(former: Path) -> None:
    """Its rows have other columns, and its keys find nothing: it cannot take one for another."""
    with closing(sqlite3.connect(former / INDEX, isolation_level=None)) as older:
        find = "SELECT count(*) FROM results WHERE key = ?"
        assert older.execute(find, (key_of("text 0"),)).fetchone() == (1,)
        Store(former).close()
        assert older.execute(find, (key_of("text 0"),)).fetchone() == (0,)
        with pytest.raises(sqlite3.OperationalError, match="has 7 columns"):
            older.execute("INSERT OR IGNORE INTO results VALUES ('k', 't', x'', '{}', 1.0, x'')")
        with pytest.raises(sqlite3.OperationalError, match="no such column"):
            older.execute("INSERT INTO used VALUES ('k', 1) ON CONFLICT (key) DO NOTHING")


def test_a_damaged_one_is_saved_as_far_as_it_can_be_read(former: Path) -> None:
    """As a damaged index of this format, into a new file."""
    data = bytearray((former / INDEX).read_bytes())
    page = data.index(b"a text about 0") // 4096
    data[page * 4096 : (page + 1) * 4096] = b"\xff" * 4096
    (former / INDEX).write_bytes(data)
    last = [key_of(f"{kind} {COUNT + 1}") for kind in ("text", "vector", "image")]
    with Store(former) as store:
        assert store.damage[0].startswith("index: ")
        assert store.get(last).keys() == set(last)
        assert {'{"model": "bbbbbbbbbbbbbbbb"}'} == set(store.provenance(last).values())
        saved: dict[str, Result] = store.get(map(key_of, ["text 0"]))
        assert saved == {}
    assert not is_former(former)
    assert len(list(former.glob("index.damaged-*.sqlite"))) == 1


def test_values_that_were_damaged_stop_no_conversion(former: Path) -> None:
    """Two remembered files that became the same, and a day that became nothing."""
    with database(former) as connection:
        for table, change in (
            ("files", "INSERT INTO files SELECT path, what, stamp, 'other' FROM files"),
            ("used", f"UPDATE used SET day = NULL WHERE key = '{key_of('text 0')}'"),
        ):
            connection.execute(f"CREATE TABLE loose AS SELECT * FROM {table}")
            connection.execute(f"DROP TABLE {table}")
            connection.execute(f"ALTER TABLE loose RENAME TO {table}")
            connection.execute(change)
    with Store(former) as store:
        assert store.damage == []
        assert len(store) == 3 * (COUNT + 3)
    whole = known(former)
    assert whole["files"] == ["digest"]
    assert whole["notes"] == {"name": "value"}


def test_one_that_is_only_read_is_refused(tmp_path: Path, former: Path) -> None:
    """Nothing of it is changed, and the error says what rewrites it."""
    before = contents(former)
    with pytest.raises(
        StoreVersionError, match=r"has format 1, .* run once with it as --cep-store"
    ):
        Store(tmp_path / "own", (former,))
    assert contents(former) == before
