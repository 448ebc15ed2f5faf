"""Pipes, devices and endless files in place of a store's own: named, passed over, never awaited."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cepbench.errors import StoreError
from pytest_cepbench.store import ArtifactRef, Store, StoredResult
from pytest_cepbench.store.artifact_files import artifact_path
from pytest_cepbench.store.database import INDEX
from pytest_cepbench.store.shared import MARKER, artifact_names, result_name
from tests.disk import small_disk
from tests.special_files import a_link_to_an_endless_device, a_pipe, a_sparse_file
from tests.store.filling import fill, key_of, picture

MAKERS = pytest.mark.parametrize(
    "make",
    [a_pipe, a_link_to_an_endless_device, a_sparse_file],
    ids=lambda make: make.__name__,
)

Make = Callable[[Path], None]


def instead(path: Path, make: Make) -> None:
    """Put something else in the place of a file."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)


@MAKERS
def test_an_image_of_the_own_store(tmp_path: Path, make: Make) -> None:
    """Is damaged: noted, removed, and made again."""
    fill(tmp_path, range(1))
    digest = picture(0).digest
    instead(artifact_path(tmp_path, digest), make)
    with Store(tmp_path) as store:
        assert store.get_artifact(digest) is None
        assert len(store.damage) == 1
        assert store.put_artifact(picture(0)) == digest
        assert store.get_artifact(digest) is not None


@MAKERS
def test_objects_of_a_shared_folder(tmp_path: Path, make: Make) -> None:
    """Results and images are noted as damaged; what lies beside them is found."""
    shared = tmp_path / "shared"
    with Store(tmp_path / "first", publish=shared) as store:
        digest = store.put_artifact(picture(0))
        store.put([StoredResult(key, value) for key, value in OBJECTS.items()])
        store.put([StoredResult("c" * 64, ArtifactRef(digest))])
    instead(shared / result_name("a" * 64), make)
    instead(shared / artifact_names(digest)[0], make)
    with Store(tmp_path / "second", (shared,)) as store:
        assert store.get(OBJECTS) == {"b" * 64: "second"}
        assert store.get_artifact(digest) is None
        assert len(store.damage) == 2
        assert store.remarks == []


TEXT = key_of("text 0")

OBJECTS = {"a" * 64: "first", "b" * 64: "second"}


@MAKERS
def test_what_makes_a_folder_a_store(tmp_path: Path, make: Make) -> None:
    """A folder that only looks like one is refused by name."""
    (tmp_path / "shared").mkdir()
    make(tmp_path / "shared" / MARKER)
    with pytest.raises(StoreError, match="--cep-shared"):
        Store(tmp_path / "own", (tmp_path / "shared",))


@pytest.mark.parametrize(
    "make", [a_pipe, a_link_to_an_endless_device], ids=lambda make: make.__name__
)
def test_the_index_of_the_own_store(tmp_path: Path, make: Make) -> None:
    """Is not opened."""
    make(tmp_path / INDEX)
    with pytest.raises(StoreError, match="a regular file is expected"):
        Store(tmp_path)


def test_a_folder_that_vanishes_while_it_is_used(tmp_path: Path) -> None:
    """An error of the store where something cannot be kept, whatever is asked of it next."""
    root = tmp_path / "store"
    with Store(root) as store:
        store.put([StoredResult("a", "text")])
        root.rename(tmp_path / "elsewhere")
        for act in (
            lambda: store.put_artifact(picture(0)),
            lambda: store.locks.acquire("name", "run"),
        ):
            with pytest.raises(StoreError, match="cannot be used"):
                act()
        assert store.put([StoredResult("b", "text")]) == {"b": "text"}
        assert store.get(["b"]) == {"b": "text"}


OnDisk = Callable[[str, str], list[str]]


@pytest.fixture
def on_disk(tmp_path: Path) -> OnDisk:
    """Run small_disk.py on a tmpfs mounted with these options; skip where none may be mounted."""

    def run(options: str, what: str) -> list[str]:
        with small_disk(tmp_path / "disk", options) as disk:
            done = disk.run(sys.executable, "-m", "tests.store.small_disk", str(disk.place), what)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return run


def test_a_full_disk_loses_nothing_that_was_confirmed(on_disk: OnDisk) -> None:
    """Writing stops with StoreFullError; what was confirmed stays; with room the store goes on."""
    assert on_disk("size=2m", "full") == [
        "full: StoreFullError True",
        "image: StoreFullError True",
        "half an image: None []",
        "big: StoreFullError True",
        "all or none: {}",
        "confirmed: True True",
        "images: True",
        "nothing left",
        "a new store: StoreFullError True",
        "room again: {'late': 'fits'}",
        "after all: True",
        "damage: []",
    ]


def test_a_read_only_disk_is_explained(on_disk: OnDisk) -> None:
    """A store that cannot be made is an error that names the option, not a traceback."""
    assert on_disk("size=1m,ro", "read-only") == ["a new store: StoreError True"]
