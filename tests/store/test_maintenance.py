"""Upkeep of a store: what may go goes and nothing else; damage is found, and dropped when asked."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.store import Store, StoredResult
from pytest_cepbench.store.artifact_files import artifact_path
from pytest_cepbench.store.database import INDEX, open_readonly
from pytest_cepbench.store.maintenance import (
    Collection,
    VerifyReport,
    choose,
    collect,
    inspect,
    model_of,
    repair,
)
from pytest_cepbench.store.rows import packed, seal
from tests.plugin.project import contents
from tests.store.filling import (
    age,
    age_images,
    database,
    destroy,
    fill,
    key_of,
    picture,
    results_of,
    spoil_image,
)

OLD, NEW = "a" * 16, "b" * 16


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `root` holds; only to be copied."""
    folder = tmp_path_factory.mktemp("aged") / "store"
    fill(folder, range(4), OLD)
    fill(folder, range(4, 6), NEW)
    fill(folder, range(6, 7))
    for number in range(4):
        age(folder, [*results_of(range(number, number + 1))], 9 - number)
    age_images(folder)
    return folder


@pytest.fixture
def root(tmp_path: Path, aged: Path) -> Path:
    """Results 0 to 3 of one model, stored 9 to 6 days ago; 4 and 5 of another, of today; 6 of none.

    All images are old.
    """
    return shutil.copytree(aged, tmp_path / "store")


def plan(root: Path, **rules: Any) -> Collection:
    """What would go."""
    with open_readonly(root) as read:
        return choose(root, read, **rules)


def numbers_of(going: Collection) -> list[int]:
    """Which numbers go, whole."""
    keys = {entry.key for entry in going.entries}
    numbers = [n for n in range(10) if results_of(range(n, n + 1)).keys() <= keys]
    assert len(keys) == 3 * len(numbers)
    return numbers


def test_what_goes_by_size_by_baselines_and_by_age(root: Path) -> None:
    """Images count; what stays is no more than was asked.

    Baselines keep what their models made, whatever age and size say; by themselves they let go only
    what names another model. By age it goes by the day of its last use, which a hit makes young
    again; never used counts from storing.
    """
    size = plan(root, unused_for=1000).kept_bytes
    assert plan(root, max_size=size).entries == ()
    assert len(plan(root, max_size=size - 1).entries) == 1
    whole = plan(root, max_size=10**9)
    assert (numbers_of(whole), whole.bytes) == ([], 0)
    going = plan(root, max_size=whole.kept_bytes * 3 // 5)
    assert numbers_of(going) == [0, 1, 2]
    assert going.kept_bytes <= whole.kept_bytes * 3 // 5
    assert going.kept_bytes + going.bytes == whole.kept_bytes
    assert numbers_of(plan(root, max_size=0)) == list(range(7))
    needed = frozenset({OLD})
    assert numbers_of(plan(root, unused_for=1, needed=needed)) == []
    assert numbers_of(plan(root, max_size=0, needed=needed)) == [4, 5, 6]
    alone = plan(root, needed=needed)
    assert (numbers_of(alone), alone.unnamed) == ([4, 5], 3)
    assert numbers_of(plan(root, unused_for=8)) == [0, 1]
    assert numbers_of(plan(root, unused_for=10)) == []
    with Store(root) as store:
        store.get(results_of(range(1)))
    assert numbers_of(plan(root, unused_for=8)) == [1]


def test_what_goes_is_gone_and_the_rest_is_whole(root: Path) -> None:
    """Rows, images and days of use; the file gets smaller; another choice finds nothing more."""
    with Store(root) as store:
        store.put([StoredResult(key_of("large"), "x" * 300_000, {"model": OLD})])
        store.get([key_of("large"), key_of("text 4")])
    age(root, [key_of("large")], 9)
    size = (root / INDEX).stat().st_size
    going = plan(root, unused_for=5)
    with Store(root) as store:
        assert collect(store, going) == (going.bytes, 0, True)
        kept = results_of(range(4, 7))
        assert going.kept == len(kept) == len(store)
        assert store.get([*results_of(range(7)), key_of("large")]).keys() == kept.keys()
        for number in range(7):
            image = store.get_artifact(picture(number).digest)
            assert (image is not None) == (number > 3)
        assert store.damage == []
    assert (root / INDEX).stat().st_size < size - 250_000
    assert plan(root, unused_for=5).entries == ()


def test_images_of_no_result_or_of_results_that_go(root: Path) -> None:
    """Old ones go; a young one may be of a result that is about to be stored. Of results that go a
    young one is counted; another result may refer to one since the choice was made.
    """
    with Store(root) as store:
        for seed in (20, 21):
            store.put_artifact(picture(seed))
        age_images(root)
        store.put_artifact(picture(21))  # wanted again: young
    going = plan(root, unused_for=1000)
    assert going.unused == (picture(20).digest,)
    with Store(root) as store:
        collect(store, going)
        assert store.get_artifact(picture(20).digest) is None
        assert store.get_artifact(picture(21).digest) is not None
    going = plan(root, unused_for=8)
    with Store(root) as store:
        store.put_artifact(picture(0))  # wanted again: young
        late = results_of(range(1, 2))[key_of("image 1")]
        store.put([StoredResult(key_of("late"), late)])
        _, waiting, _ = collect(store, going)
        kept = store.get([*results_of(range(2)), key_of("late")])
        assert (waiting, set(kept)) == (1, {key_of("late")})
        assert all(store.get_artifact(picture(number).digest) for number in range(2))


def test_beside_others_the_index_keeps_its_size(root: Path) -> None:
    """Rewriting it would make them wait; they go on, and see what is gone as never stored."""
    with Store(root) as store:
        store.put([StoredResult(key_of("large"), "x" * 300_000, {"model": OLD})])
    age(root, [key_of("large")], 9)
    size = (root / INDEX).stat().st_size
    with Store(root) as other, Store(root) as store:
        assert other.get([key_of("text 0")])
        *_, compacted = collect(store, plan(root, unused_for=1))
        assert not compacted
        assert other.get([key_of("text 0"), key_of("text 4")]).keys() == {key_of("text 4")}
        assert (root / INDEX).stat().st_size >= size
        again = StoredResult(key_of("text 0"), "computed again")
        assert other.put([again]) == {again.key: "computed again"}
    assert not artifact_path(root, picture(0).digest).exists()


@pytest.mark.parametrize(
    "provenance", ["", "{}", "[1]", '{"model": 3}', "null", "[" * 5000], ids=lambda text: text[:12]
)
def test_a_provenance_without_a_model(provenance: str) -> None:
    """It has no influence on a result and may be anything."""
    assert model_of(provenance) is None


COUNT = 4


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A store of four texts, vectors and images, and a remembered file."""
    fill(tmp_path, range(COUNT))
    weights = tmp_path / "new" / "weights"
    weights.write_text("w")
    with Store(tmp_path) as store:
        os.utime(weights, (1, 1))
        store.file_digest(weights, "bytes", lambda _: "digest")
    return tmp_path


def look(filled: Path) -> VerifyReport:
    """At a store that no process has open; nothing of it is changed."""
    before = contents(filled)
    with open_readonly(filled) as read:
        report = inspect(filled, read)
    after = contents(filled)
    assert {name: after[name] for name in before} == before
    return report


def wrong(report: VerifyReport) -> dict[str, object]:
    """What was found, without how much was looked at."""
    return {
        name: what for name, what in asdict(report).items() if what and not isinstance(what, int)
    }


def test_what_another_version_stored_is_not_damaged(filled: Path) -> None:
    """Its seal fits, of whatever kind it is; it stays until gc finds it old."""
    row = packed(key_of("text 0")), "scores", b"0.5"
    with database(filled) as connection:
        update = "UPDATE results SET kind = ?, payload = ?, seal = ? WHERE key = ?"
        connection.execute(update, (*row[1:], seal(key_of("text 0"), *row[1:]), row[0]))
    report = look(filled)
    assert (report.sound, report.results) == (True, 3 * COUNT)
    with Store(filled) as store:
        repair(store, report)
        assert len(store) == 3 * COUNT
    with database(filled) as connection:
        connection.execute("UPDATE results SET payload = x'00' WHERE key = ?", row[:1])
    assert wrong(look(filled)) == {"rows": [key_of("text 0")]}


def test_damage_of_every_kind(filled: Path) -> None:
    """Each is found by itself; what is merely left over does not make a store unsound."""
    with database(filled) as connection:
        connection.execute(
            "UPDATE results SET payload = x'00' WHERE key = ?", (packed(key_of("text 0")),)
        )
        connection.execute("UPDATE files SET digest = 'other'")
        connection.execute("INSERT INTO files VALUES (CAST(x'2fff' AS TEXT), 'bytes', 's', 'd')")
        connection.execute("DELETE FROM results WHERE key = ?", (packed(key_of("image 3")),))
    spoil_image(filled, 0)
    artifact_path(filled, picture(1).digest).unlink()
    (filled / "images" / "notes.txt").write_text("mine")
    report = look(filled)
    assert not report.sound
    assert wrong(report) == {
        "rows": [key_of("text 0")],
        "files": [str(filled / "new" / "weights"), "/\ufffd"],
        "damaged_images": [(picture(0).digest, "its pixels do not match its name")],
        "lost": [key_of("image 1")],
        "unused": [picture(3).digest],
        "foreign": [filled / "images" / "notes.txt"],
    }
    with Store(filled) as store:
        repair(store, report)
        assert store.damage == []
    again = look(filled)
    assert again.sound
    assert wrong(again).keys() == {"unused", "foreign"}
    assert again.results == 3 * COUNT - 4


def test_a_damaged_index_is_found_and_mended(filled: Path) -> None:
    """SQLite's own words are given; what can be read is saved. A result that its own key does not
    find is seen by SQLite's check of everything alone.
    """
    with database(filled) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_results_1'"
        ).fetchone()
    data = bytearray((filled / INDEX).read_bytes())
    place = data.index(bytes.fromhex(key_of("text 0")), (page - 1) * 4096)
    data[place] ^= 1
    (filled / INDEX).write_bytes(data)
    report = look(filled)
    assert any("sqlite_autoindex_results_1" in line for line in report.index)
    with Store(filled) as store:
        repair(store, report)
        assert store.get([key_of("text 0")]) == {key_of("text 0"): "a text about 0"}
    assert look(filled).sound
    destroy(filled / INDEX, b"a text about 0")
    report = look(filled)
    assert report.index
    assert not report.sound
    with Store(filled) as store:
        repair(store, report)
        assert store.damage[0].startswith("index: ")
    assert look(filled).sound


@pytest.mark.parametrize(
    "damage",
    [
        'UPDATE provenances SET text = \'{"model": "other"}\'',
        "UPDATE provenances SET text = CAST(x'7bff7d' AS TEXT)",
        "DELETE FROM provenances",
        "UPDATE results SET provenance = 'none'",
    ],
)
def test_a_damaged_provenance_is_found_and_dropped(filled: Path, damage: str) -> None:
    """It fits its number no more: all results that have it stay, as of unknown provenance."""
    results = fill(filled, range(COUNT, 2 * COUNT), "a" * 16)
    with database(filled) as connection:
        connection.execute(damage)
    report = look(filled)
    assert not report.sound
    assert wrong(report).keys() == {"provenances"}
    assert max(count for _, count in report.provenances) in (3 * COUNT, 6 * COUNT)
    with Store(filled) as store:
        repair(store, report)
        assert store.get(results).keys() == results.keys()
        assert set(store.provenance(list(results)).values()) == {"{}"}
    assert look(filled).sound


def test_a_damaged_provenance_gives_way_to_the_same_one(filled: Path) -> None:
    """The next result of its run brings it back, for all that have it."""
    fill(filled, range(COUNT, COUNT + 1), "a" * 16)
    with database(filled) as connection:
        connection.execute("UPDATE provenances SET text = 'x' WHERE text != '{}'")
    fill(filled, range(COUNT + 1, COUNT + 2), "a" * 16)
    with Store(filled) as store:
        told = store.provenance([key_of(f"text {COUNT + i}") for i in range(2)])
    assert set(told.values()) == {'{"model": "' + "a" * 16 + '"}'}
    assert look(filled).sound
