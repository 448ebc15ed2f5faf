"""Taking over other stores and archives: what is sound, under free keys, and nothing else."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_cepbench.artifacts import encode_image
from pytest_cepbench.errors import StoreError
from pytest_cepbench.store import Store, StoredResult
from pytest_cepbench.store.database import INDEX
from pytest_cepbench.store.images import MOST_BYTES, image_path
from pytest_cepbench.store.merge import FolderSource, MergeSummary, TarSource, merge
from pytest_cepbench.store.rows import seal
from pytest_cepbench.store.tables import today
from tests.store.filling import contents, database, exported, fill, key_of, picture, results_of
from tests.store.strategies import same

TEXT = key_of("text 0")


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """An exported store of numbers 0 to 2, of a model."""
    fill(tmp_path / "made", range(3), "a" * 16)
    return exported(tmp_path / "made", tmp_path / "other")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """The own store, empty."""
    with Store(tmp_path / "own") as opened:
        yield opened


def take_over(store: Store, folder: Path) -> MergeSummary:
    """Merge a folder; it is left as it was."""
    before = contents(folder)
    source = FolderSource(folder)
    with source.reader:
        merged = merge(store, source)
    assert {n: d for n, d in contents(folder).items() if n in before} == before
    return merged


def test_results_and_images_are_taken_over(store: Store, other: Path) -> None:
    """With their provenance and their time; a second time there is nothing more to take."""
    theirs = results_of(range(3))
    merged = take_over(store, other)
    assert (merged.results, merged.images, merged.present, merged.refused) == (9, 3, 0, {})
    stored = store.get(theirs)
    assert all(same(stored[key], theirs[key]) for key in theirs)
    assert all(store.get_image(picture(n).digest) is not None for n in range(3))
    assert store.index.read("SELECT DISTINCT provenance FROM results") == [
        ('{"model": "' + "a" * 16 + '"}',)
    ]
    again = take_over(store, other)
    assert (again.results, again.images, again.present) == (0, 0, 9)


def test_the_first_result_stays(store: Store, other: Path) -> None:
    """What is here already counts."""
    store.put([StoredResult(TEXT, "mine")])
    assert take_over(store, other).present == 1
    assert store.get([TEXT]) == {TEXT: "mine"}


def test_a_live_store_can_be_taken_over(store: Store, tmp_path: Path) -> None:
    """Also while a process writes to it."""
    fill(tmp_path / "live", range(2))
    with Store(tmp_path / "live") as live:
        live.put([StoredResult("late", "kept")])
        assert take_over(store, tmp_path / "live").results == 7
    assert store.get(["late"]) == {"late": "kept"}


def sealed(connection: object, key: str, kind: str, payload: bytes) -> None:
    """A row that is wrong under a seal that is right, as an attacker could write it."""
    connection.execute(  # type: ignore[attr-defined] # a connection
        "INSERT INTO results VALUES (?, ?, ?, '{}', 1e300, ?)",
        (key, kind, payload, seal(key, kind, payload)),
    )


def test_what_is_not_sound_is_refused(store: Store, other: Path, tmp_path: Path) -> None:
    """Each kind of it, counted; the rest is taken."""
    with database(other) as connection:
        connection.execute("UPDATE results SET payload = x'00' WHERE key = ?", (TEXT,))
        provenance = "UPDATE results SET provenance = ? WHERE key = ?"
        connection.execute(provenance, ("[1]", key_of("text 1")))
        connection.execute(provenance, ("{", key_of("text 2")))
        sealed(connection, "kind", "program", b"x")
        sealed(connection, "climbs", "image", b"../../../escaped")
        sealed(connection, "boxes", "boxes", b"[" * 100_000)
        sealed(connection, "future", "text", b"good")
        sealed(connection, "large", "text", b"x" * (2**23 + 1))
        connection.execute("UPDATE used SET day = 'soon'")
        connection.execute("INSERT INTO used VALUES ('future', 10000000)")
    image_path(other, picture(0).digest).unlink()
    image_path(other, picture(1).digest).write_bytes(encode_image(picture(7)))
    image_path(other, picture(2).digest).unlink()
    os.mkfifo(image_path(other, picture(2).digest))
    (tmp_path / "escaped.webp").write_text("mine")
    source = FolderSource(other)
    with source.reader:
        merged = merge(store, source)
    assert merged.refused == {
        "its row does not match its seal": 1,
        "its provenance cannot be read": 2,
        "of a kind that this version does not know": 3,
        "its image is not there": 2,
        "its image is damaged": 1,
        "larger than any result is": 1,
    }
    assert merged.results == 4
    assert store.get(["future", "climbs"]) == {"future": "good"}
    assert store.index.read("SELECT count(*) FROM results WHERE created > 1e11") == [(0,)]
    assert store.index.read("SELECT day FROM used WHERE key = 'future'") == [(today(),)]
    assert list((store.root / "images").rglob("*.webp")) == []
    assert (tmp_path / "escaped.webp").read_text() == "mine"


# -- archives --------------------------------------------------------------------------------------


def packed(path: Path, add: Callable[[tarfile.TarFile], object], index: Path | None) -> Path:
    """An archive with an index, if one is given, and whatever is added."""
    with tarfile.open(path, "w") as archive:
        if index is not None:
            archive.add(index, INDEX)
        add(archive)
    return path


def member(archive: tarfile.TarFile, name: str, data: bytes = b"", **fields: object) -> None:
    """A member by hand."""
    head = tarfile.TarInfo(name)
    head.size = len(data)
    for field, value in fields.items():
        setattr(head, field, value)
    archive.addfile(head, io.BytesIO(data))


def test_nothing_of_an_archive_leaves_the_store(store: Store, other: Path, tmp_path: Path) -> None:
    """Climbing names, links, devices, pipes and strangers are refused; the sound rest is taken."""
    mine = tmp_path / "mine.webp"
    mine.write_bytes(encode_image(picture(1)))
    inside = f"images/{picture(0).digest[:2]}/{picture(0).digest}.webp"
    first, second = (image_path(Path(), picture(n).digest).as_posix() for n in (1, 2))

    def add(archive: tarfile.TarFile) -> None:
        member(archive, inside, encode_image(picture(0)))
        member(archive, f"../{inside}", b"x")
        member(archive, f"/{inside}", b"x")
        member(archive, f"./{inside}", b"x")
        member(archive, "../../evil", b"x")
        member(archive, "new/evil", b"x")
        member(archive, "images/notes.txt", b"x")
        member(archive, INDEX, b"a second one")
        member(archive, first, type=tarfile.SYMTYPE, linkname=str(mine))
        member(archive, second, type=tarfile.LNKTYPE, linkname=inside)
        member(archive, "images/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)
        member(archive, "images/pipe", type=tarfile.FIFOTYPE)
        member(archive, "images", type=tarfile.DIRTYPE)

    archive = packed(tmp_path / "hostile.tar", add, other / INDEX)
    before = contents(tmp_path)
    with TarSource(archive, store.root / "new") as source:
        merged = merge(store, source)
        refused = source.refused
    assert len(refused) == 11
    assert (merged.results, merged.images) == (7, 1)
    assert merged.refused == {"its image is not there": 2}
    after = contents(tmp_path)
    assert {n for n in after.keys() - before.keys() if not n.startswith("own/index")} == {
        f"own/{inside}"
    }
    assert list((store.root / "new").iterdir()) == []


def test_what_is_too_large_is_refused(store: Store, other: Path, tmp_path: Path) -> None:
    """An image's file that no image needs; a sparse file claiming to be larger than the archive."""
    names = [image_path(Path(), picture(n).digest).as_posix() for n in range(2)]
    path = tmp_path / "large.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(other / INDEX, INDEX)
        sparse = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.realsize": str(10**12),
        }
        member(archive, names[1], b"0\n".ljust(512, b"\0"), pax_headers=sparse)
        place = archive.offset
        head = tarfile.TarInfo(names[0])
        head.size = MOST_BYTES + 1
        archive.addfile(head)
    with path.open("r+b") as stream:
        stream.truncate(place + 512 + MOST_BYTES + 512)  # a hole, no disk
        stream.seek(0, os.SEEK_END)
    with TarSource(path, store.root / "new") as source:
        assert names[0] in source.refused
        assert len(source.refused) == 2
        assert merge(store, source).images == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: b"no archive" * 200,
        lambda data: data[: len(data) // 2],
        lambda data: data[:700],
    ],
    ids=["empty", "text", "cut off", "cut in the index"],
)
def test_what_is_no_archive_is_refused_whole(
    store: Store, tmp_path: Path, other: Path, spoil: Callable[[bytes], bytes]
) -> None:
    """Nothing of it is taken, and nothing is left of it."""
    whole = exported(other, tmp_path / "whole.tar").read_bytes()
    path = tmp_path / "spoilt.tar"
    path.write_bytes(spoil(whole))
    with pytest.raises(StoreError, match="is no archive that cepbench store export made"):
        TarSource(path, store.root / "new")
    assert (len(store), list((store.root / "new").iterdir())) == (0, [])


def test_an_archive_without_a_store_is_refused(store: Store, tmp_path: Path) -> None:
    """No index, or one that is none."""
    path = packed(tmp_path / "a.tar", lambda archive: member(archive, "x"), None)
    with pytest.raises(StoreError, match=r"has no index\.sqlite"):
        TarSource(path, store.root / "new")
    (tmp_path / "index").write_bytes(b"no index" * 100)
    path = packed(tmp_path / "b.tar", lambda archive: member(archive, "x"), tmp_path / "index")
    with pytest.raises(StoreError, match="is not the folder of a store"):
        TarSource(path, store.root / "new")
    assert list((store.root / "new").iterdir()) == []
