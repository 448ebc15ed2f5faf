"""Damage: found when it is read, noted, and gone once the result was computed again."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.errors import StoreError
from pytest_cepbench.store import ArtifactRef, Result, Store, StoredResult
from pytest_cepbench.store.database import Index, inode
from pytest_cepbench.store.rows import packed
from tests.artifacts.files import noise
from tests.interruption import at_change, in_child
from tests.store.filling import PAGE, destroy, fill, same

RESULTS: dict[str, Result] = {
    f"{i:064x}": (
        f"text number {i} " * 8,
        np.arange(20, dtype=np.float32) + i,
        Failure("bad-image", str(i)),
    )[i % 3]
    for i in range(60)
}
ENTRIES = [StoredResult(key, result) for key, result in RESULTS.items()]
FIRST = next(iter(RESULTS))


@pytest.fixture
def root(tmp_path: Path, sound_index: Path) -> Path:
    """The folder of a closed store that holds RESULTS."""
    return shutil.copytree(sound_index.parent, tmp_path / "store")


@pytest.fixture
def index(root: Path) -> Path:
    """Its database file."""
    return root / "index.sqlite"


@pytest.fixture(scope="module")
def sound_index() -> Iterator[Path]:
    """A database that holds RESULTS and is not changed."""
    with TemporaryDirectory() as folder:
        with Store(Path(folder)) as store:
            store.put(ENTRIES)
        yield Path(folder) / "index.sqlite"


def flip(path: Path, offset: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def check_and_repair(store: Store, lost: set[str] | None) -> None:
    """No result is another one, and putting all again gives all back.

    lost: which are missing at first; None where it may be any, at any time.
    """
    stored = store.get(RESULTS)
    assert lost is None or stored.keys() == RESULTS.keys() - lost
    assert all(same(stored[key], RESULTS[key]) for key in stored)
    again = store.put(ENTRIES)
    assert again.keys() == RESULTS.keys()
    assert all(same(again[key], RESULTS[key]) for key in again)
    assert lost is None or store.get(RESULTS).keys() == RESULTS.keys()


def test_a_flipped_bit_in_a_row_is_detected(root: Path, index: Path) -> None:
    """The damaged result is as if never stored, the damage is noted, all others are untouched.

    A result that is stored can be read back, also where an unread damaged one lay.
    """
    flip(index, index.read_bytes().index(b"text number 0") + 5)
    with Store(shutil.copytree(root, root.with_name("unread"))) as store:
        assert store.put([StoredResult(FIRST, "anew")]) == {FIRST: "anew"}
        assert len(store.damage) == 1
    with Store(root) as store:
        check_and_repair(store, {FIRST})
        assert store.damage == [f"result {FIRST[:12]}: its row does not match its seal"]
    with Store(root) as store:
        check_and_repair(store, set())
        assert store.damage == []


@pytest.mark.parametrize(
    "damage",
    [
        "payload = CAST(payload AS TEXT)",
        "payload = substr(payload, 2)",
        "payload = 3",
        "kind = 'image'",
        "kind = CAST(x'74657874ff' AS TEXT)",
        "seal = substr(seal, 2)",
        "seal = CAST(seal AS TEXT)",
    ],
)
def test_any_damaged_column_is_detected(root: Path, index: Path, damage: str) -> None:
    """Another type, another kind, no UTF-8: whatever a row has become, it is not served."""
    with closing(sqlite3.connect(index)) as connection, connection:
        connection.execute(f"UPDATE results SET {damage} WHERE key = ?", (packed(FIRST),))
    with Store(root) as store:
        check_and_repair(store, {FIRST})
        assert store.damage[0].startswith(f"result {FIRST[:12]}: ")


def test_a_destroyed_page_costs_only_its_own_rows(root: Path, index: Path) -> None:
    """The index is written anew with every row that can be read; the old one is kept aside."""
    text = index.read_bytes()
    page = text.index(b"text number 0") // PAGE
    on_page = {
        k for k, v in RESULTS.items() if bytes.fromhex(k) in text[page * PAGE : (page + 1) * PAGE]
    }
    destroy(index, b"text number 0")
    with Store(root) as store:
        stored = store.get(RESULTS)
        assert FIRST not in stored
        assert len(stored) >= len(RESULTS) - len(on_page) > 0
        check_and_repair(store, RESULTS.keys() - stored.keys())
        (note,) = store.damage
    aside = next(root.glob("index.damaged-*.sqlite"))
    assert note == (
        f"index: {len(stored)} results saved from the damaged file, which is kept as {aside.name}"
    )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"not a database!\0" + data[16:],
        lambda data: os.urandom(len(data)),
        lambda data: data[: len(data) // 2],
        lambda _: b"short",
    ],
    ids=["header", "all", "cut off", "short"],
)
def test_a_ruined_index_starts_anew(root: Path, index: Path, spoil: object) -> None:
    """A file that is no database any more loses its results and nothing else: they come back."""
    index.write_bytes(spoil(index.read_bytes()))  # type: ignore[operator] # one of the lambdas
    with Store(root) as store:
        check_and_repair(store, None)
        assert len(store.damage) == 1
        assert store.damage[0].startswith("index: ")
    with Store(root) as store:
        check_and_repair(store, set())
        assert store.damage == []


@pytest.mark.slow
@settings(max_examples=150)
@given(place=st.integers(0, 2**20))
def test_no_flipped_bit_gives_a_wrong_result(sound_index: Path, place: int) -> None:
    """Whichever bit of the index flips: no other result is served, and putting again mends it.

    In its first page, which tells what the file is, a flip can make it a file of another version or
    one that must not be written: a refusal that names the way out will do.
    """
    spoilt = bytearray(sound_index.read_bytes())
    bit = place % (len(spoilt) * 8)
    spoilt[bit // 8] ^= 1 << bit % 8
    refused = None
    with TemporaryDirectory() as folder:
        (Path(folder) / "index.sqlite").write_bytes(spoilt)
        try:
            with Store(Path(folder)) as store:
                check_and_repair(store, None)
        except StoreError as error:
            refused = str(error)
    assert refused is None or (bit // 8 < PAGE and "--cep-store" in refused)


@pytest.mark.parametrize(
    ("kept", "gap"), [(0, 9999), (1, 10_499), (0, 11_000), (30, 2**40), (59, 2**63 - 61)]
)
def test_rebuilding_finds_rows_after_a_gap_of_any_size(index: Path, kept: int, gap: int) -> None:
    """The next number is asked for; the largest ones are damage, and end the search."""
    with closing(sqlite3.connect(index)) as connection, connection:
        connection.execute("UPDATE results SET id = -id WHERE id > ?", (kept,))
        connection.execute("UPDATE results SET id = ? - id WHERE id < 0", (gap,))
    saved = len(RESULTS) - (gap > 2**62)
    assert rebuilt(index) == f"index: {saved} results saved from the damaged file"


def test_a_destroyed_page_of_provenances_costs_no_result(root: Path, index: Path) -> None:
    """They say how results came about, not what they are; others keep theirs."""
    with Store(root) as store:
        store.put([StoredResult(f"late {i}", "x", {"note": f"{i} " * 500}) for i in range(9)])
    destroy(index, b"0 0 0 0 0")
    keys = [*RESULTS, *(f"late {i}" for i in range(9))]
    with Store(root) as store:
        noted = store.provenance(keys)
        assert store.damage[0].startswith(f"index: {len(keys)} results saved")
        assert store.get(keys).keys() == noted.keys() == set(keys)
        lost = [key for key in keys[len(RESULTS) :] if noted[key] == "{}"]
        assert 0 < len(lost) < 9


def test_rebuilding_reads_on_behind_an_inner_page_that_was_destroyed(index: Path) -> None:
    """One page of the tree leads to hundreds of others, and so to many thousands of numbers."""
    with Store(index.parent) as store:
        store.put([StoredResult(f"{i:064x}", f"{i} " * 600) for i in range(1000, 2200)])
    with closing(sqlite3.connect(index)) as connection, connection:
        connection.execute("UPDATE results SET id = -id")
        connection.execute("UPDATE results SET id = -30 * id")
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'results'"
        ).fetchone()
        (count,) = connection.execute("SELECT count(*) FROM results").fetchone()
    data = bytearray(index.read_bytes())
    top = data[(root - 1) * PAGE : root * PAGE]
    cell = int.from_bytes(top[12:14], "big")
    inner = int.from_bytes(top[cell : cell + 4], "big")
    assert data[(inner - 1) * PAGE] == 5
    data[(inner - 1) * PAGE : inner * PAGE] = b"\xff" * PAGE
    index.write_bytes(data)
    note = rebuilt(index)
    assert 300 < int(note.split()[1]) < count - 10_000 / 30


def rebuilt(index: Path) -> str:
    """What is noted when an index is rebuilt, but for the file's name."""
    notes: list[str] = []
    with closing(Index(index, notes.append)) as opened:
        opened.rebuild()
    return notes[0].partition(", which")[0]


def test_a_damaged_index_is_rebuilt_once(root: Path, index: Path) -> None:
    """A second process that found the same damage leaves the new file where it is."""
    with Store(root) as store:
        store.put([StoredResult("kept", "a text")])
    notes: list[str] = []
    with (
        closing(Index(index, notes.append)) as first,
        closing(Index(index, notes.append)) as second,
    ):
        damaged = inode(index)
        first.rebuild()
        rebuilt = inode(index)
        assert rebuilt != damaged
        second.rebuild()
        assert inode(index) == rebuilt
    (aside,) = root.glob("index.damaged-*.sqlite")
    (note,) = notes
    assert re.fullmatch(rf"index: [1-9]\d* results saved from .* kept as {aside.name}", note)
    with Store(root) as store:
        assert store.get(["kept"]) == {"kept": "a text"}


JOURNAL = struct.pack(">8s5I484x", bytes.fromhex("d9d505f920a163d7"), 0, 0, 1, 512, PAGE)
"""SQLite's rollback journal of a file with one page, none of which has changed yet."""


def test_a_process_that_is_killed_while_it_mends_the_index_loses_no_row(
    root: Path, index: Path
) -> None:
    """The next one finds the damaged file in its place, also where it is killed as well."""
    destroy(index, b"text number 0")
    with Store(shutil.copytree(root, root.with_name("whole"))) as store:
        saved = store.get(RESULTS).keys()

    def killed(folder: Path, number: int) -> bool:
        def die() -> None:
            kill = partial(os.kill, os.getpid(), signal.SIGKILL)
            at_change(number, kill, "sqlite3.connect")
            with Store(folder) as store:
                store.get(RESULTS)

        return in_child(die) == -signal.SIGKILL

    journals = 0
    for number in range(1, 30):
        folder = shutil.copytree(root, root.with_name(f"killed {number}"))
        if not killed(folder, number):
            break
        if any(folder.glob("index.damaged-*.sqlite")) and any(folder.glob("*.begun")):
            # Of the new file, as it is created: it would truncate the damaged one to its page.
            (folder / "index.sqlite-journal").write_bytes(JOURNAL)
            journals += 1
        killed(folder, 4)
        with Store(folder) as store:
            assert store.get(RESULTS).keys() == saved, number
    assert (number > 8, journals > 1) == (True, True)


def test_what_others_store_while_the_index_is_mended_is_not_lost(root: Path, index: Path) -> None:
    """A process that still has the damaged file open writes what it confirms to the mended one."""
    with Store(root) as bystander, Store(root) as finder:
        bystander.get(RESULTS)
        destroy(index, b"text number 0")
        finder.index.read("PRAGMA shrink_memory")
        finder.get(RESULTS)
        assert finder.damage
        assert bystander.put([StoredResult("late", "confirmed")]) == {"late": "confirmed"}
        assert finder.get(["late"]) == {"late": "confirmed"}
        assert bystander.get(RESULTS).keys() == finder.get(RESULTS).keys()
    with Store(root) as store:
        assert store.get(["late"]) == {"late": "confirmed"}


def test_what_others_store_while_its_rows_are_copied_is_not_lost(root: Path, index: Path) -> None:
    """At whatever instant: they wait for the end and store it once more."""
    destroy(index, b"text number 0")

    def stored(folder: Path, number: int) -> None:
        with Store(folder) as bystander, Store(folder) as finder:
            late = Thread(target=bystander.put, args=([StoredResult("late", "confirmed")],))

            def store_late() -> None:
                late.start()
                late.join(0.1)

            at_change(number, store_late, "sqlite3.connect")
            finder.index.rebuild()
            late.join()
            assert finder.get(["late"]) == {"late": "confirmed"}

    for number in range(1, 9):
        folder = shutil.copytree(root, root.with_name(f"late {number}"))
        assert in_child(partial(stored, folder, number)) == 0, number


@pytest.mark.parametrize("spoil", ["flip", "cut", "empty", "text", "other"])
def test_a_damaged_image_is_detected(tmp_path: Path, spoil: str) -> None:
    """An image that is not the one of its name is dropped, noted, and can be stored again."""
    image, other = ImageArtifact(noise(seed=1)), ImageArtifact(noise(seed=2))
    with Store(tmp_path) as store:
        path = store.artifact_path(store.put_artifact(image))
        data = path.read_bytes()
        if spoil == "flip":
            flip(path, len(data) // 2)
        else:
            path.write_bytes(
                {
                    "cut": data[: len(data) // 2],
                    "empty": b"",
                    "text": b"no image",
                    "other": store.artifact_path(store.put_artifact(other)).read_bytes(),
                }[spoil]
            )
        assert store.get_artifact(image.digest) is None
        (note,) = store.damage
        assert note.startswith(f"image {image.digest[:12]}: ")
        store.put_artifact(image)
        stored = store.get_artifact(image.digest)
        assert stored is not None
        assert stored.digest == image.digest


@pytest.mark.parametrize("damage", ["digest = 'wrong'", "digest = x'00'", "stamp = stamp || ' '"])
def test_a_damaged_digest_of_a_file_is_computed_again(root: Path, index: Path, damage: str) -> None:
    """A wrong digest of weights would make another checkpoint of them: it is not served."""
    path = root / "weights"
    path.write_text("w")
    os.utime(path, (1, 1))
    with Store(root) as store:
        assert store.file_digest(path, "bytes", lambda _: "right") == "right"
        assert store.file_digest(path, "bytes", lambda _: "not asked") == "right"
    with closing(sqlite3.connect(index)) as connection, connection:
        connection.execute(f"UPDATE files SET {damage}")
    with Store(root) as store:
        for answer in ("right", "not asked"):
            # mypy does not see the lambda's default
            assert (
                store.file_digest(path, "bytes", lambda _, a=answer: a)  # type: ignore[misc]
                == "right"
            )


def starve(folder: Path, lack: str) -> list[str]:
    """What a process says that reads a store and lacks something for it."""
    command = [sys.executable, "-m", "tests.store.starved", str(folder), lack]
    # Other threads of NumPy's would take memory when they come to run, not when it is measured.
    alone = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_image_that_cannot_be_read_is_not_damaged(tmp_path: Path) -> None:
    """It is an error that says so, and the image is there afterwards.

    However much too little memory there is: libwebp reports a lack of it as it reports damage.
    """
    fill(tmp_path / "own", range(2))
    lacks = ("Too many open files", "Permission denied", "Input/output error")
    assert starve(tmp_path, "system") == [
        *(
            f"{way}: UnreadError, {words}"
            for words in lacks
            for way in ("own", "verify", "recorded")
        ),
        "afterwards: read read read",
        "damage: [] True",
    ]
    large = ImageArtifact(noise(500, 500))
    with Store(tmp_path / "memory" / "own") as store:
        store.put([StoredResult(FIRST, ArtifactRef(store.put_artifact(large)))])
    no_memory = "UnreadError or read"
    assert starve(tmp_path / "memory", "memory") == [
        f"own: {no_memory}",
        f"recorded: {no_memory}",
        "afterwards: read read read",
        "damage: [] True",
    ]


def test_without_file_handles_no_index_is_repaired(root: Path, index: Path) -> None:
    """A damaged index whose rows cannot be read either stays where it is, with all of them.

    A store that was open before says so each time it is used, and goes on with enough of them.
    """
    destroy(index, b"text number 0")
    whole = root.with_name("copy")
    shutil.copytree(root, whole)
    with Store(whole) as store:
        saved = len(store.get(RESULTS))
    *refused, compacted, last = starve(root, "index")
    assert len(refused) > 3
    assert {tuple(line.split()[1:]) for line in refused} == {("StoreError", "StoreError")}
    assert (compacted, last) == ("compact: StoreError", f"saved: {saved} {saved}")
