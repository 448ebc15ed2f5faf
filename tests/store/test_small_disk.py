"""A full disk and a read-only one, both real: a small tmpfs in a mount namespace of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.disk import small_disk

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
