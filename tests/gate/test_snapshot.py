"""Where baselines lie, and how syrupy gets to know them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from syrupy.exceptions import SnapshotDoesNotExist

from pytest_cepbench.gate import load_baseline, record_of
from pytest_cepbench.gate.snapshot import BaselineExtension
from tests.gate.build import KEY, measured


def _extension(location: Path, *, passes: bool | None = None) -> BaselineExtension:
    return BaselineExtension.bind(location, passes=passes)()


def test_syrupy_writes_nothing(tmp_path: Path) -> None:
    """Under --snapshot-update it counts, and the controller writes what the run is accepted for."""
    location = tmp_path / "suite" / "accepted.toml"
    extension = _extension(location)
    text = extension.serialize(measured())
    extension.write_snapshot(snapshot_location=str(location), snapshots=[(text, None, 0)])
    assert load_baseline(text, KEY, location.name) == record_of(measured())
    assert not location.parent.exists()


@pytest.mark.parametrize("passes", [True, False])
def test_the_gate_decides_whether_a_snapshot_matches(tmp_path: Path, *, passes: bool) -> None:
    """Equal text is no condition, and no proof: neither text is made, however large it would be."""
    location = tmp_path / "x.toml"
    extension = _extension(location, passes=passes)
    with pytest.raises(SnapshotDoesNotExist):
        extension.read_snapshot()
    location.write_text("any")
    texts = extension.serialize(measured()), extension.read_snapshot()
    assert texts == ("", "")
    assert extension.matches(serialized_data=texts[0], snapshot_data=texts[1]) is passes


def test_while_updating_only_equal_text_matches(tmp_path: Path) -> None:
    """Then syrupy counts as updated what differs, however little."""
    extension = _extension(tmp_path)
    assert extension.matches(serialized_data="a", snapshot_data="a")
    assert not extension.matches(serialized_data="a", snapshot_data="a ")


def test_a_baseline_is_found_whatever_the_test_is_called(tmp_path: Path) -> None:
    """Its place is the case's; bytes that are no text are read as other text, not as an error."""
    location = tmp_path / "x.toml"
    extension = _extension(location)
    with pytest.raises(SnapshotDoesNotExist):
        extension.read_snapshot()
    location.write_bytes("é\xff".encode("latin-1"))
    assert extension.read_snapshot() == "\ufffd\ufffd"
    place: Any = None  # the extension looks at no test
    assert extension.get_location(test_location=place, index=0) == str(location)


def test_syrupy_finds_nothing_that_it_could_delete() -> None:
    """Syrupy may call unused what it discovers: it discovers nothing, and deletes nothing."""
    extension = BaselineExtension()
    assert list(extension.discover_snapshots()) == []
    extension.delete_snapshots(snapshot_location="x", snapshot_names=set())
