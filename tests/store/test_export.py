"""Frozen copies: what was chosen, whole or not at all, readable where nothing can be written."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from pytest_cepbench.errors import StoreError
from pytest_cepbench.store import ImageRef, Store, StoredResult
from pytest_cepbench.store.database import INDEX
from pytest_cepbench.store.export import ExportSummary, Wanted, export_store
from pytest_cepbench.store.images import image_path
from pytest_cepbench.store.merge import FolderSource, TarSource, merge
from pytest_cepbench.store.readonly import ReadonlyStore
from pytest_cepbench.store.tables import today
from tests.store.filling import (
    age,
    contents,
    database,
    exported,
    fill,
    key_of,
    picture,
    results_of,
    spoil_image,
)
from tests.store.strategies import same

KINDS = pytest.mark.parametrize("name", ["copy", "copy.tar"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Results 0 and 1 of one model, 2 and 3 of another."""
    fill(tmp_path / "store", range(2), "a" * 16)
    fill(tmp_path / "store", range(2, 4), "b" * 16)
    return tmp_path / "store"


def export(root: Path, target: Path, wanted: Wanted, *, force: bool = False) -> ExportSummary:
    """Freeze some of a store."""
    with ReadonlyStore(root, str(root)) as reader:
        return export_store(reader, target, wanted, force=force)


def numbers_in(target: Path) -> list[int]:
    """Which numbers a copy holds, whole; nothing else is in it."""
    fresh = target.with_name(f"fresh from {target.name}")
    with Store(fresh) as store:
        if target.is_dir():
            folder = FolderSource(target)
            with folder.reader:
                merged = merge(store, folder)
        else:
            with TarSource(target, fresh / "new") as archive:
                merged = merge(store, archive)
        assert merged.refused == {}
        stored = [n for n in range(9) if len(store.get(results_of(range(n, n + 1)))) == 3]
        assert all(store.get_image(picture(n).digest) is not None for n in stored)
        assert (merged.results, merged.images) == (len(store), len(stored))
    return stored


@KINDS
def test_everything_goes_along(tmp_path: Path, root: Path, name: str) -> None:
    """Nothing but index and images is in the copy, and the store is as it was."""
    before = contents(root)
    done = export(root, tmp_path / name, lambda *_: True)
    assert (done.results, done.images, done.left_out) == (12, 4, 0)
    if (tmp_path / name).is_dir():
        assert done.bytes == sum(map(len, contents(tmp_path / name).values()))
    assert {n: d for n, d in contents(root).items() if n in before} == before
    assert {path.name for path in tmp_path.iterdir()} == {"store", name}
    assert numbers_in(tmp_path / name) == [0, 1, 2, 3]


def test_an_archive_s_files_can_be_read_by_all(tmp_path: Path, root: Path) -> None:
    """And written by their owner, whatever rights they had in the store."""
    export(root, tmp_path / "copy.tar", lambda *_: True)
    with tarfile.open(tmp_path / "copy.tar") as archive:
        assert {member.mode for member in archive} == {0o644}


@KINDS
def test_an_image_of_several_results_is_copied_once(tmp_path: Path, root: Path, name: str) -> None:
    """Two steps can give the same image."""
    with Store(root) as store:
        store.put([StoredResult(key_of("again"), ImageRef(picture(0).digest))])
    done = export(root, tmp_path / name, lambda *_: True)
    assert (done.results, done.images, done.left_out) == (13, 4, 0)


@KINDS
def test_what_was_chosen_goes_along(tmp_path: Path, root: Path, name: str) -> None:
    """By model, or by the day of the last use."""
    export(root, tmp_path / f"of-model-{name}", lambda model, _: model == "b" * 16)
    assert numbers_in(tmp_path / f"of-model-{name}") == [2, 3]
    for key in results_of(range(3)):
        age(root, key, 9)
    export(root, tmp_path / f"used-{name}", lambda _, day: day > today() - 7)
    assert numbers_in(tmp_path / f"used-{name}") == [3]


def test_days_of_use_are_kept(tmp_path: Path, root: Path) -> None:
    """Or a cache that is restored and saved again would look as if all of it were in use."""
    keys = results_of(range(4))
    for key in keys:
        age(root, key, 30)
    with Store(root) as store:
        store.get(results_of(range(1)))
    folder = FolderSource(exported(root, tmp_path / "copy"))
    with folder.reader, Store(tmp_path / "fresh") as store:
        merge(store, folder)
        query = (
            "SELECT key, max(day, CAST(created / 86400 AS INT)) FROM results JOIN used USING (key)"
        )
        days: dict[str, int] = dict(store.index.read(f"{query} GROUP BY key"))
    young = results_of(range(1)).keys()
    assert days == {key: today() - (0 if key in young else 30) for key in keys}


@KINDS
def test_what_is_damaged_stays_behind(tmp_path: Path, root: Path, name: str) -> None:
    """A row that does not match its seal, and one whose image is gone."""
    with database(root) as connection:
        connection.execute("UPDATE results SET payload = x'00' WHERE key = ?", (key_of("image 0"),))
    image_path(root, picture(1).digest).unlink()
    done = export(root, tmp_path / name, lambda *_: True)
    assert (done.results, done.images, done.left_out) == (10, 2, 2)
    assert numbers_in(tmp_path / name) == [2, 3]


@KINDS
def test_a_copy_that_is_there_is_replaced_only_by_force(
    tmp_path: Path, root: Path, name: str
) -> None:
    """Nothing else is, whatever the options: a live store, a folder, another file."""
    target = exported(root, tmp_path / name)
    fill(root, range(4, 5))
    with pytest.raises(StoreError, match=r"is there already: say --force"):
        export(root, target, lambda *_: True)
    export(root, target, lambda *_: True, force=True)
    assert numbers_in(target) == [0, 1, 2, 3, 4]
    fill(tmp_path / "live", range(1))
    for copy in ("bare", "with notes"):
        exported(root, tmp_path / copy)
    with database(tmp_path / "bare") as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    (tmp_path / "with notes" / "mine").write_text("mine")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine").write_text("mine")
    (tmp_path / "notes.tar").write_text("mine")
    (tmp_path / "link.tar").symlink_to(root / INDEX)
    (tmp_path / "link to a copy.tar").symlink_to(exported(root, tmp_path / "linked.tar"))
    with tarfile.open(tmp_path / "empty.tar", "w:"):
        pass
    with tarfile.open(tmp_path / "photos.tar", "w:") as archive:
        archive.add(tmp_path / "notes" / "mine", "mine")
        archive.add(root / INDEX, INDEX)
    before = contents(tmp_path)
    for other in (
        *("live", "bare", "with notes", "notes", "notes.tar", "link.tar"),
        *("link to a copy.tar", "empty.tar", "photos.tar"),
    ):
        with pytest.raises(StoreError, match="not what cepbench store export made"):
            export(root, tmp_path / other, lambda *_: True, force=True)
    assert {n: d for n, d in contents(tmp_path).items() if n in before} == before


@KINDS
def test_no_half_copy_is_left(tmp_path: Path, root: Path, name: str) -> None:
    """Where writing fails in the middle, an earlier copy stays and nothing else is there."""
    target = exported(root, tmp_path / name)
    before = contents(tmp_path)

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(root, target, interrupt, force=True)
    assert {n: d for n, d in contents(tmp_path).items() if "-shm" not in n and "-wal" not in n} == {
        n: d for n, d in before.items() if "-shm" not in n and "-wal" not in n
    }


def test_a_target_that_cannot_be_written(tmp_path: Path, root: Path) -> None:
    """One sentence that names it."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"'.*file/copy' cannot be written"):
        export(root, tmp_path / "file" / "copy", lambda *_: True)


def test_the_same_store_gives_the_same_archive(tmp_path: Path, root: Path) -> None:
    """Caches that compare digests see that nothing has changed."""
    first, second = exported(root, tmp_path / "a.tar"), exported(root, tmp_path / "b.tar")
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        head = archive.getmembers()[0]
    assert (head.name, head.uid, head.mtime) == (INDEX, 0, 0)


def test_the_images_of_a_folder_are_its_own(tmp_path: Path, root: Path) -> None:
    """Damage in the store does not reach the copy."""
    target = exported(root, tmp_path / "copy")
    spoil_image(root, 0)
    with Store(tmp_path / "fresh", (target,)) as store:
        stored = store.get(results_of(range(4)))
        assert all(same(stored[key], result) for key, result in results_of(range(4)).items())
        assert store.get_image(picture(0).digest) is not None
