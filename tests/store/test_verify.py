"""Looking at all of a store: every kind of damage is found, and dropped when that is asked for."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import pytest

from pytest_cepbench.store import Store
from pytest_cepbench.store.artifact_files import artifact_path
from pytest_cepbench.store.database import INDEX, ReadonlyStore
from pytest_cepbench.store.maintenance import VerifyReport, inspect, repair
from pytest_cepbench.store.rows import packed, seal
from tests.store.filling import contents, database, fill, key_of, picture, spoil_image

COUNT = 4


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of four texts, vectors and images, and a remembered file."""
    fill(tmp_path, range(COUNT))
    weights = tmp_path / "new" / "weights"
    weights.write_text("w")
    with Store(tmp_path) as store:
        os.utime(weights, (1, 1))
        store.file_digest(weights, "bytes", lambda _: "digest")
    return tmp_path


def look(root: Path) -> VerifyReport:
    """At a store that no process has open; nothing of it is changed."""
    before = contents(root)
    with ReadonlyStore(root) as reader:
        report = inspect(root, reader.read)
    after = contents(root)
    assert {name: after[name] for name in before} == before
    return report


def wrong(report: VerifyReport) -> dict[str, object]:
    """What was found, without how much was looked at."""
    return {
        name: what for name, what in asdict(report).items() if what and not isinstance(what, int)
    }


def test_what_another_version_stored_is_not_damaged(root: Path) -> None:
    """Its seal fits, of whatever kind it is; it stays until gc finds it old."""
    row = packed(key_of("text 0")), "scores", b"0.5"
    with database(root) as connection:
        update = "UPDATE results SET kind = ?, payload = ?, seal = ? WHERE key = ?"
        connection.execute(update, (*row[1:], seal(key_of("text 0"), *row[1:]), row[0]))
    report = look(root)
    assert (report.sound, report.results) == (True, 3 * COUNT)
    with Store(root) as store:
        repair(store, report)
        assert len(store) == 3 * COUNT
    with database(root) as connection:
        connection.execute("UPDATE results SET payload = x'00' WHERE key = ?", row[:1])
    assert wrong(look(root)) == {"rows": [key_of("text 0")]}


def test_damage_of_every_kind(root: Path) -> None:
    """Each is found by itself; what is merely left over does not make a store unsound."""
    with database(root) as connection:
        connection.execute(
            "UPDATE results SET payload = x'00' WHERE key = ?", (packed(key_of("text 0")),)
        )
        connection.execute("UPDATE files SET digest = 'other'")
        connection.execute("INSERT INTO files VALUES (CAST(x'2fff' AS TEXT), 'bytes', 's', 'd')")
        connection.execute("DELETE FROM results WHERE key = ?", (packed(key_of("image 3")),))
    spoil_image(root, 0)
    artifact_path(root, picture(1).digest).unlink()
    (root / "images" / "notes.txt").write_text("mine")
    report = look(root)
    assert not report.sound
    assert wrong(report) == {
        "rows": [key_of("text 0")],
        "files": [str(root / "new" / "weights"), "/\ufffd"],
        "damaged_images": [(picture(0).digest, "its pixels do not match its name")],
        "lost": [key_of("image 1")],
        "unused": [picture(3).digest],
        "foreign": [root / "images" / "notes.txt"],
    }
    with Store(root) as store:
        repair(store, report)
        assert store.damage == []
    again = look(root)
    assert again.sound
    assert wrong(again).keys() == {"unused", "foreign"}
    assert again.results == 3 * COUNT - 4


def test_a_damaged_index_is_found_and_mended(root: Path) -> None:
    """SQLite's own words are given; what can be read is saved."""
    data = bytearray((root / INDEX).read_bytes())
    page = data.index(b"a text about 0") // 4096
    data[page * 4096 : (page + 1) * 4096] = b"\xff" * 4096
    (root / INDEX).write_bytes(data)
    report = look(root)
    assert report.index
    assert not report.sound
    with Store(root) as store:
        repair(store, report)
        assert store.damage[0].startswith("index: ")
    assert look(root).sound


def test_a_tree_out_of_order_is_found(root: Path) -> None:
    """A result that its own key does not find: only SQLite's check of everything sees it."""
    with database(root) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_results_1'"
        ).fetchone()
    data = bytearray((root / INDEX).read_bytes())
    place = data.index(bytes.fromhex(key_of("text 0")), (page - 1) * 4096)
    data[place] ^= 1
    (root / INDEX).write_bytes(data)
    report = look(root)
    assert any("sqlite_autoindex_results_1" in line for line in report.index)
    with Store(root) as store:
        repair(store, report)
        assert store.get([key_of("text 0")]) == {key_of("text 0"): "a text about 0"}
    assert look(root).sound


@pytest.mark.parametrize(
    "damage",
    [
        'UPDATE provenances SET text = \'{"model": "other"}\'',
        "UPDATE provenances SET text = CAST(x'7bff7d' AS TEXT)",
        "DELETE FROM provenances",
        "UPDATE results SET provenance = 'none'",
    ],
)
def test_a_damaged_provenance_is_found_and_dropped(root: Path, damage: str) -> None:
    """It fits its number no more: all results that have it stay, as of unknown provenance."""
    results = fill(root, range(COUNT, 2 * COUNT), "a" * 16)
    with database(root) as connection:
        connection.execute(damage)
    report = look(root)
    assert not report.sound
    assert wrong(report).keys() == {"provenances"}
    assert max(count for _, count in report.provenances) in (3 * COUNT, 6 * COUNT)
    with Store(root) as store:
        repair(store, report)
        assert store.get(results).keys() == results.keys()
        assert set(store.provenance(list(results)).values()) == {"{}"}
    assert look(root).sound


def test_a_damaged_provenance_gives_way_to_the_same_one(root: Path) -> None:
    """The next result of its run brings it back, for all that have it."""
    fill(root, range(COUNT, COUNT + 1), "a" * 16)
    with database(root) as connection:
        connection.execute("UPDATE provenances SET text = 'x' WHERE text != '{}'")
    fill(root, range(COUNT + 1, COUNT + 2), "a" * 16)
    with Store(root) as store:
        told = store.provenance([key_of(f"text {COUNT + i}") for i in range(2)])
    assert set(told.values()) == {'{"model": "' + "a" * 16 + '"}'}
    assert look(root).sound
