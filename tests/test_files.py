"""Files from outside: pipes, devices, links, sizes, texts that no parser takes; stamps of files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cepbench.errors import UnfitFileError
from pytest_cepbench.files import (
    RACY_NS,
    FileStamp,
    keep_out_of_git,
    open_regular,
    parse_json,
    parse_toml,
    read_regular,
    replace_small,
)
from tests.special_files import (
    DEPTH,
    DIGITS,
    a_folder,
    a_link_to_a_pipe,
    a_link_to_an_endless_device,
    a_pipe,
    a_pointer,
    a_socket,
    a_sparse_file,
)

MOST = 1000


KINDS: dict[Callable[[Path], None], str] = {
    a_pipe: "named pipe",
    a_link_to_an_endless_device: "device",
    a_link_to_a_pipe: "named pipe",
    a_socket: "socket",
    a_folder: "Is a directory",
    a_pointer: "a pointer of Git LFS to a file that was not fetched: run git lfs pull",
    a_sparse_file: "has 32,212,254,720 bytes, and at most 1,000 are expected",
}


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_only_regular_files_of_a_size_are_read(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """Everything else is refused at once, in words that do for a message."""
    path = tmp_path / "x"
    make(path)

    with pytest.raises(UnfitFileError) as refused:
        read_regular(path, MOST)

    assert KINDS[make] in str(refused.value)
    assert refused.value.strerror == str(refused.value)


def test_links_are_followed_where_they_may_be(tmp_path: Path) -> None:
    """A link to a regular file is one, unless the reader wants none; a circle is an error.

    A file of the kernel says that it is empty, and has more; no file has a NUL byte in its name. A
    file may be as large as is said, and not one byte larger; without a limit it may have any size.
    """
    path = tmp_path / "large"
    path.write_bytes(bytes(MOST))
    assert read_regular(path, MOST) == bytes(MOST)
    path.write_bytes(bytes(MOST + 1))
    with pytest.raises(UnfitFileError, match="1,001 bytes"):
        read_regular(path, MOST)
    with open_regular(path) as stream:
        assert len(stream.read()) == MOST + 1
    (tmp_path / "x").write_bytes(b"text")
    link, circle = tmp_path / "link", tmp_path / "circle"
    link.symlink_to("x")
    circle.symlink_to("circle")
    assert read_regular(link, MOST) == b"text"
    with pytest.raises(UnfitFileError, match="symbolic link"):
        read_regular(link, MOST, links=False)
    with pytest.raises(OSError, match="symbolic links"):
        read_regular(circle, MOST)
    maps = tmp_path / "maps"
    maps.symlink_to("/proc/self/maps")
    assert maps.stat().st_size == 0
    with pytest.raises(UnfitFileError, match="more than 100"):
        read_regular(maps, 100)
    with pytest.raises(UnfitFileError, match="NUL"):
        read_regular(tmp_path / "a\0b", MOST)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = " + "[" * DEPTH + "]" * DEPTH, "nested too deeply"),
        ("x = " + "{a = " * DEPTH, "nested too deeply"),
        ("x = " + "9" * DIGITS, "thousands of digits"),
        ("x = 1\nx = 2", "Cannot overwrite a value"),
        ("<<<<<<< HEAD", "Invalid statement"),
    ],
    ids=["lists", "tables", "digits", "twice", "no toml"],
)
def test_toml_that_cannot_be_read_is_one_line(text: str, message: str) -> None:
    """Whatever the parser meets: nesting, digits, what is no TOML; and JSON likewise."""
    with pytest.raises(ValueError, match=message) as refused:
        parse_toml(text)
    assert "\n" not in str(refused.value)
    for json in ("[" * DEPTH + "]" * DEPTH, "9" * DIGITS, "{"):
        with pytest.raises(ValueError, match=r"deeply|thousands of digits|Expecting") as refused:
            parse_json(json)
        assert "\n" not in str(refused.value)


def test_what_runs_leave_behind_is_kept_out_of_git(tmp_path: Path) -> None:
    """By a `.gitignore` in its folder; nothing is done for a path elsewhere or an existing one."""
    home = tmp_path / ".cepbench"
    home.mkdir()
    keep_out_of_git(home, tmp_path / "elsewhere")
    assert list(home.iterdir()) == []
    keep_out_of_git(home, home / "store")
    assert (home / ".gitignore").read_text() == "*\n"
    (home / ".gitignore").write_text("mine")
    keep_out_of_git(home, home / "store")
    assert (home / ".gitignore").read_text() == "mine"


def test_no_part_of_a_small_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk is full in the middle of it."""
    write_bytes = Path.write_bytes

    def write_half(self: Path, data: bytes) -> None:
        write_bytes(self, data[:1])
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_half)
        with pytest.raises(OSError, match="full"):
            replace_small(tmp_path / "small", b"text")
    assert list(tmp_path.iterdir()) == []
    replace_small(tmp_path / "small", b"text")
    assert (tmp_path / "small").read_text() == "text"


def test_writers_of_a_small_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Not even those of one process number: the first processes of two containers have the same."""
    path, texts = tmp_path / "small", [f"{n}" * 100 for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(replace_small, [path] * 400, [text.encode() for text in texts] * 50))
    assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_a_stamp_tells_changes_and_is_settled_when_the_file_was_old(tmp_path: Path) -> None:
    """Whatever a trainer does: another file of the same size and time, another size, the same size.

    It is settled by the moment in which the stamp was taken, not by now.
    """
    file, fresh = tmp_path / "weights", tmp_path / "fresh"
    for path, text in ((file, "one"), (fresh, "two")):
        path.write_text(text)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    stamps = [FileStamp.of(file)]
    assert FileStamp.of(file) == stamps[0]
    assert stamps[0].settled
    fresh.replace(file)
    stamps.append(FileStamp.of(file))
    for text in ("four", "two"):
        file.write_text(text)
        stamps.append(FileStamp.of(file))
    assert len(set(stamps)) == 4
    young = stamps[-1]
    assert not young.settled
    os.utime(file, ns=(0, young.taken_ns - RACY_NS - 10**9))
    assert FileStamp.of(file).settled
    assert not young.settled
    os.utime(file, ns=(0, young.taken_ns + 60 * 10**9))  # the clock of a file server may be ahead
    ahead = FileStamp.of(file)
    assert not ahead.settled
    assert replace(ahead, changed_ns=ahead.taken_ns - RACY_NS - 1).settled  # out of an archive
