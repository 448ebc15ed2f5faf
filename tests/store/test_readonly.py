"""Shared stores below the own one: read for what it lacks, never written to, never trusted."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from pytest_cepbench.errors import StoreError, StoreVersionError
from pytest_cepbench.store import Store, StoredResult
from pytest_cepbench.store.rows import packed
from tests.store.filling import contents, database, fill, key_of, picture, spoil_image
from tests.store.strategies import same

TEXT = key_of("text 0")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A store of numbers 0 to 3."""
    fill(tmp_path / "shared", range(4))
    return tmp_path / "shared"


def test_what_the_own_store_lacks_is_read_from_the_shared_one(tmp_path: Path, shared: Path) -> None:
    """Results and images of both are there; nothing is copied down, nothing written up."""
    own, theirs = fill(tmp_path / "own", range(3, 6)), fill(tmp_path / "other", range(4))
    before = contents(shared)
    with Store(tmp_path / "own", (shared,)) as store:
        stored = store.get([*own, *theirs, "absent"])
        assert stored.keys() == own.keys() | theirs.keys() == store.has([*own, *theirs, "absent"])
        assert all(same(stored[key], (own | theirs)[key]) for key in stored)
        for seed in range(6):
            image = store.get_artifact(picture(seed).digest)
            assert image is not None
            assert image.digest == picture(seed).digest
            assert store.artifact_path(image.digest).exists()
        assert (len(store), store.damage) == (len(own), [])
        kept = store.put([StoredResult(TEXT, "mine"), StoredResult("new", "kept")])
        assert kept == {TEXT: "a text about 0", "new": "kept"}
        assert len(store) == len(own) + 1
    after = contents(shared)
    assert {name: after[name] for name in before} == before
    assert {Path(name).name for name in after.keys() - before.keys()} <= {
        "index.sqlite-shm", "index.sqlite-wal",
    }  # fmt: skip


def test_the_first_that_has_it_counts(tmp_path: Path, shared: Path) -> None:
    """The own store before the shared ones, those in the order in which they are named."""
    for name in ("own", "first"):
        with Store(tmp_path / name) as store:
            store.put([StoredResult(TEXT, name), StoredResult(f"only {name}", name)])
    with Store(tmp_path / "own", (tmp_path / "first", shared)) as store:
        assert store.get([TEXT]) == {TEXT: "own"}
    with Store(tmp_path / "fresh", (tmp_path / "first", shared)) as store:
        assert store.get([TEXT, "only first"]) == {TEXT: "first", "only first": "first"}
    with Store(tmp_path / "fresh", (shared, tmp_path / "first")) as store:
        assert store.get([TEXT]) == {TEXT: "a text about 0"}


def test_provenance_comes_from_the_store_that_gives_the_result(tmp_path: Path) -> None:
    """The first that has each key is asked for it, and the later ones for the rest."""
    for name in ("first", "second"):
        with Store(tmp_path / name) as store:
            results = [StoredResult(key, "a text", {"model": name}) for key in (TEXT, name)]
            store.put(results)
    with Store(tmp_path / "own", (tmp_path / "first", tmp_path / "second")) as store:
        provenance = store.provenance([TEXT, "first", "second", "absent"])
    assert {key: json.loads(text)["model"] for key, text in provenance.items()} == {
        TEXT: "first",
        "first": "first",
        "second": "second",
    }


def test_times_are_those_of_the_store_that_gives_the_result(tmp_path: Path) -> None:
    """When each result was first stored, wherever it lies; none for what is absent."""
    started = time.time()
    with Store(tmp_path / "first") as store:
        store.put([StoredResult(TEXT, "a text")])
        own = store.times([TEXT, "absent"])
    with Store(tmp_path / "own", (tmp_path / "first",)) as store:
        store.put([StoredResult("later", "a text")])
        times = store.times([TEXT, "later"])
    assert own.keys() == {TEXT}
    assert times[TEXT] == own[TEXT]
    assert started <= times[TEXT] <= times["later"] <= time.time()


def test_what_is_forgotten_is_not_read_there_again(tmp_path: Path, shared: Path) -> None:
    """A shared result that turned out to be of no use gives way to a new one, in the own store."""
    with Store(tmp_path / "own", (shared,)) as store:
        store.forget([TEXT], why="of no use")
        assert store.get([TEXT]) == {}
        assert store.has([TEXT]) == set()
        assert store.put([StoredResult(TEXT, "anew")]) == {TEXT: "anew"}
    with Store(tmp_path / "own", (shared,)) as store:
        assert store.get([TEXT]) == {TEXT: "anew"}


def test_damage_is_noted_once_and_left_alone(tmp_path: Path, shared: Path) -> None:
    """A damaged row or image: as if it were not there, for this store and in that folder."""
    with database(shared) as connection:
        connection.execute("UPDATE results SET payload = x'00' WHERE key = ?", (packed(TEXT),))
    spoil_image(shared, 1)
    before = contents(shared)
    with Store(tmp_path / "own", (shared,)) as store:
        for _ in range(2):
            assert store.get([TEXT]) == {}
            assert store.get_artifact(picture(1).digest) is None
        row, image = store.damage
        assert row == f"result {TEXT[:12]} in {shared}: damaged"
        assert image.startswith(f"image {picture(1).digest[:12]} in {shared}: its pixels")
        assert store.put([StoredResult(TEXT, "anew")]) == {TEXT: "anew"}
        store.put_artifact(picture(1))
        assert store.get_artifact(picture(1).digest) is not None
    after = contents(shared)
    assert {name: after[name] for name in before} == before


def test_a_shared_index_that_breaks_is_given_up(tmp_path: Path, shared: Path) -> None:
    """The run goes on with the own store, and says once why."""
    data = bytearray((shared / "index.sqlite").read_bytes())
    page = data.index(b"a text about 0") // 4096
    data[page * 4096 : (page + 1) * 4096] = b"\xff" * 4096
    (shared / "index.sqlite").write_bytes(data)
    with Store(tmp_path / "own", (shared,)) as store:
        store.put([StoredResult("k", "own")])
        for _ in range(2):
            assert store.get([TEXT, "k"]) == {"k": "own"}
        (note,) = store.damage
        assert note.startswith(f"--cep-shared {str(shared)!r} cannot be read: ")
        assert note.endswith("this run does not use it any more")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda shared: shared.rename(shared.with_name("moved")), "does not exist: the folder"),
        (lambda shared: (shared / "index.sqlite").unlink(), "is not the folder of a store"),
        (lambda shared: (shared / "index.sqlite").write_bytes(b"no database"), "is not the folder"),
        (lambda shared: (shared / "index.sqlite").write_bytes(bytes(4096)), "is not the folder"),
    ],
    ids=["absent", "no index", "no database", "long enough for one"],
)
def test_what_is_no_store_is_refused(
    tmp_path: Path, shared: Path, spoil: object, message: str
) -> None:
    """The error names the option and says what is expected."""
    spoil(shared)  # type: ignore[operator] # one of the lambdas
    with pytest.raises(StoreError, match=rf"--cep-shared .*shared.*{message}"):
        Store(tmp_path / "own", (shared,))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE other (a)",
        "CREATE TABLE results (key TEXT)",
        "CREATE VIEW results AS SELECT 1 AS key, 2 AS kind, 3 AS payload, 4 AS seal",
    ],
)
def test_a_foreign_database_is_refused(tmp_path: Path, statement: str) -> None:
    """Tables of the wrong form, and views, which could do anything when they are read."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    with database(folder) as connection:
        connection.execute(statement)
    with pytest.raises(StoreError, match="is not the folder of a store"):
        Store(tmp_path / "own", (folder,))


def test_a_live_store_that_is_damaged_is_refused(tmp_path: Path) -> None:
    """In SQLite's words, not as one that lies where it cannot be read."""
    fill(tmp_path / "live", range(1))
    path = tmp_path / "live" / "index.sqlite"
    path.write_bytes(path.read_bytes()[:100] + b"\xff" * 4000)
    with pytest.raises(StoreError, match=r"--cep-shared .* cannot be read: .*malformed"):
        Store(tmp_path / "own", (tmp_path / "live",))


@pytest.mark.parametrize("version", [3, 0x1000001, -1])
def test_another_format_is_refused(tmp_path: Path, shared: Path, version: int) -> None:
    """What a newer version wrote is not guessed at; all four bytes of the number count."""
    with database(shared) as connection:
        connection.execute(f"PRAGMA user_version={version}")
    expected = f"--cep-shared.*has format {version}, this version reads"
    with pytest.raises(StoreVersionError, match=expected):
        Store(tmp_path / "own", (shared,))


def test_the_store_itself_is_refused(tmp_path: Path) -> None:
    """Named twice, it is a mistake."""
    with pytest.raises(StoreError, match="is the store itself"):
        Store(tmp_path / "own", (tmp_path / "elsewhere" / ".." / "own",))


def test_a_file_is_refused(tmp_path: Path) -> None:
    """A store is a folder."""
    (tmp_path / "shared.tar").write_bytes(b"an archive")
    with pytest.raises(StoreError, match=r"is a file: the folder of a store is expected"):
        Store(tmp_path / "own", (tmp_path / "shared.tar",))
