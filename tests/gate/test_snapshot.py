"""Where baselines lie, and how syrupy gets to know them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from syrupy.data import Snapshot, SnapshotCollection

from pytest_cepbench.gate import CaseKey, load_baseline, record_of
from pytest_cepbench.gate.baseline import anchor_path, baseline_path
from pytest_cepbench.gate.snapshot import BaselineExtension
from tests.gate.build import KEY, measured


def test_each_suite_has_a_folder(tmp_path: Path) -> None:
    """The same part of two suites is two files, and a name cannot leave the folder."""
    paths = [
        baseline_path(tmp_path, CaseKey(suite, part, "gc"))
        for suite in ("one", "two")
        for part in ("color", "../../color", "/etc/color")
    ]
    assert len(set(paths)) == 6
    assert {path.parent for path in paths} == {tmp_path / "one", tmp_path / "two"}
    assert all(path.suffix == ".toml" for path in paths)


def test_anchors_lie_below_their_suite(tmp_path: Path) -> None:
    """Under the same name in a folder of their own, so that no baseline can be taken for one."""
    baseline, anchor = baseline_path(tmp_path, KEY), anchor_path(tmp_path, KEY)
    assert anchor == baseline.parent / "anchors" / baseline.name
    odd = CaseKey("shapes", "anchors/color", "gc")
    assert baseline_path(tmp_path, odd).parent == baseline.parent


def _extension(location: Path, staged: Path, *, passes: bool | None = None) -> BaselineExtension:
    return BaselineExtension.bind(location, staged, passes=passes)()


def test_a_staged_measurement_is_read_back(tmp_path: Path) -> None:
    """What syrupy writes under --snapshot-update goes to the staging folder alone."""
    staged = tmp_path / "staged"
    extension = _extension(tmp_path / "accepted.toml", baseline_path(staged, KEY))
    text = extension.serialize(measured())
    extension.write_snapshot_collection(snapshot_collection=_collection(text))
    (path,) = staged.rglob("*.toml")
    assert load_baseline(path.read_text(), KEY, path.name) == record_of(measured())
    assert not (tmp_path / "accepted.toml").exists()


def _collection(text: str) -> SnapshotCollection:
    collection = SnapshotCollection(location="x")
    collection.add(Snapshot(name="x", data=text))
    return collection


@pytest.mark.parametrize("passes", [True, False])
def test_the_gate_decides_whether_a_snapshot_matches(tmp_path: Path, *, passes: bool) -> None:
    """Equal text is no condition, and no proof: neither text is made, however large it would be."""
    location = tmp_path / "x.toml"
    extension = _extension(location, tmp_path, passes=passes)
    read = extension.read_snapshot_data_from_location
    assert read(snapshot_location=str(location)) is None
    location.write_text("any")
    texts = extension.serialize(measured()), read(snapshot_location=str(location))
    assert texts == ("", "")
    assert extension.matches(serialized_data=texts[0], snapshot_data=texts[1]) is passes


def test_while_updating_only_equal_text_matches(tmp_path: Path) -> None:
    """Then syrupy stages what differs, however little."""
    extension = _extension(tmp_path, tmp_path)
    assert extension.matches(serialized_data="a", snapshot_data="a")
    assert not extension.matches(serialized_data="a", snapshot_data="a ")


def test_a_baseline_is_found_whatever_the_test_is_called(tmp_path: Path) -> None:
    """Its place is the case's; bytes that are no text are read as other text, not as an error."""
    location = tmp_path / "x.toml"
    extension = _extension(location, tmp_path)
    read = extension.read_snapshot_data_from_location
    assert read(snapshot_location=str(location)) is None
    location.write_bytes("é\xff".encode("latin-1"))
    assert read(snapshot_location=str(location)) == "\ufffd\ufffd"
    place: Any = None  # the extension looks at no test
    assert extension.get_location(test_location=place, index=0) == str(location)
    for path, expected in [(location, True), (tmp_path, False)]:
        assert extension.matches_test_location(
            test_location=place, snapshot_location=str(path)
        ) is expected  # fmt: skip


def test_syrupy_finds_nothing_that_it_could_delete() -> None:
    """Syrupy may call unused what it discovers: it discovers nothing, and deletes nothing."""
    extension = BaselineExtension()
    assert list(extension.discover_snapshots()) == []
    extension.delete_snapshots(snapshot_location="x", snapshot_names=set())
