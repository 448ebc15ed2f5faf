"""Stamps of files: what shows that a file was written to, and when a stamp says nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cepbench.artifacts.digest import RACY_NS, FileStamp


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that was last written to long ago."""
    path = tmp_path / "weights"
    path.write_text("one")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


def rename_over(path: Path) -> None:
    """Put another file of the same size and time in its place."""
    fresh = path.with_name("fresh")
    fresh.write_text("two")
    os.utime(fresh, (1_000_000_000, 1_000_000_000))
    fresh.replace(path)


@pytest.mark.parametrize(
    "change",
    [lambda path: path.write_text("four"), lambda path: path.write_text("two"), rename_over],
    ids=["another size", "the same size", "another file"],
)
def test_a_change_moves_the_stamp(file: Path, change: Callable[[Path], object]) -> None:
    """Whatever a trainer does to a file."""
    before = FileStamp.of(file)
    assert FileStamp.of(file) == before
    change(file)
    assert FileStamp.of(file) != before


def test_a_stamp_is_settled_when_the_file_was_old(file: Path) -> None:
    """It is asked about the moment in which the stamp was taken, not about now."""
    assert FileStamp.of(file).settled
    file.write_text("two")
    young = FileStamp.of(file)
    assert not young.settled
    os.utime(file, ns=(0, young.taken_ns - RACY_NS - 10**9))
    assert FileStamp.of(file).settled
    assert not young.settled


def test_a_time_in_the_future_is_never_settled(file: Path) -> None:
    """The clock of a file server may be ahead."""
    os.utime(file, ns=(0, FileStamp.of(file).taken_ns + 60 * 10**9))
    assert not FileStamp.of(file).settled
