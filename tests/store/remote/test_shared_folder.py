"""Objects as files in a folder: whole, written once, on file systems with and without links."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from pytest_cepbench.store.remote.location import FolderObjects
from pytest_cepbench.store.remote.object_store import result_name
from tests.store.filling import contents, key_of

NAME = result_name(key_of("text 0"))


@pytest.mark.parametrize("links", [True, False])
def test_the_first_write_of_a_name_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    """A second one changes nothing; `replace` overwrites; no other file is left."""
    if not links:

        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", refuse)
    objects = FolderObjects(tmp_path, "test")
    assert objects.write({NAME: b"first"}) == {}
    assert objects.write({NAME: b"second"}) == {}
    assert objects.read([NAME]).objects == {NAME: b"first"}
    assert objects.write({NAME: b"third"}, {NAME}) == {}
    assert contents(tmp_path) == {NAME: b"third"}
    assert objects.list("results") == {NAME: 5}
    objects.close()


def test_nothing_is_made_where_the_folder_is_not_mounted_any_more(tmp_path: Path) -> None:
    """A write fails, and a read finds nothing."""
    root = tmp_path / "mounted"
    root.mkdir()
    objects = FolderObjects(root, "test")
    shutil.rmtree(root)
    failed = objects.write({NAME: b"content"})
    assert failed[NAME].kind == "bucket"
    assert objects.read([NAME]).objects == {}
    assert not root.exists()
    objects.close()


def test_what_killed_processes_left_is_removed_after_a_day(tmp_path: Path) -> None:
    """Clocks of machines differ, so younger files stay."""
    for name in ("old", "young"):
        (tmp_path / "new").mkdir(exist_ok=True)
        (tmp_path / "new" / name).write_text("half")
    os.utime(tmp_path / "new" / "old", (1_000_000_000, 1_000_000_000))
    objects = FolderObjects(tmp_path, "test")
    objects.remove_stale()
    assert contents(tmp_path).keys() == {"new/young"}
    objects.close()
