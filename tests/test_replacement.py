"""Replacing several files: all new or all old, whatever fails and whenever the process dies."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import signal
import stat
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from pytest_cepbench.errors import WriteError
from pytest_cepbench.replacement import JOURNAL, recover, replace_files
from tests.interruption import CHANGES, at_change, in_child
from tests.plugin.project import contents

OLD = {
    "a/kept.toml": b"old",
    "a/changed.toml": b"old",
    "b/changed.toml": b"old",
    "b/gone.toml": b"old",
}
NEW = {
    "a/kept.toml": b"old",
    "a/changed.toml": b"new, and longer",
    "a/fresh.toml": b"new",
    "b/changed.toml": b"new, and longer",
    "c/fresh.toml": b"new",
}


def fill(root: Path) -> None:
    """The files as they are before."""
    for name, data in OLD.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def wanted(root: Path) -> dict[Path, bytes | None]:
    """What makes the new files of the old ones."""
    return {root / name: NEW.get(name) for name in sorted(OLD | NEW)}


def test_contents_are_replaced_made_and_removed(tmp_path: Path) -> None:
    """Together, in folders that are made; what has its content already is not touched."""
    fill(tmp_path)
    before = (tmp_path / "a/kept.toml").stat().st_mtime_ns
    replace_files(tmp_path, wanted(tmp_path))
    assert contents(tmp_path) == NEW
    assert (tmp_path / "a/kept.toml").stat().st_mtime_ns == before
    assert recover(tmp_path) is None


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_all_old_or_all_new(tmp_path: Path) -> None:
    """Killed before its first, second, ... change: the next process restores and reports."""
    number, ends = 0, set()
    remark: set[bool] = set()
    while True:
        number += 1
        root = tmp_path / str(number)
        fill(root)

        def die(root: Path = root, number: int = number) -> None:
            at_change(number, lambda: os.kill(os.getpid(), signal.SIGKILL))
            replace_files(root, wanted(root))

        code = in_child(die)
        remark.add(recover(root) is not None)
        files = contents(root)
        assert files in (OLD, NEW), number
        ends.add(files == NEW)
        assert recover(root) is None
        replace_files(root, wanted(root))
        assert contents(root) == NEW
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert number > 15
    assert ends == remark == {True, False}


@pytest.mark.slow
def test_an_error_leaves_all_old_or_all_new(tmp_path: Path) -> None:
    """At its first, second, ... change: WriteError where all is old; nothing is left over."""
    codes = itertools.cycle((errno.ENOSPC, errno.EROFS, errno.EACCES))
    for number, code in enumerate(codes, 1):
        root = tmp_path / str(number)
        fill(root)

        def fail(root: Path = root, number: int = number, code: int = code) -> None:
            def refuse() -> None:
                raise OSError(code, os.strerror(code))

            at_change(number, refuse)
            replace_files(root, wanted(root))

        ended = in_child(fail)
        left = contents(root)
        assert ended in (0, 1), number
        # An error while leftovers are removed is none: all is new, and the next one removes them.
        recover(root)
        assert contents(root) == (OLD if ended else NEW), number
        assert not ended or left == OLD, number
        if ended == 0 and left == NEW and number > 40:
            break


def test_what_cannot_be_put_back_is_named_and_put_back_later(tmp_path: Path) -> None:
    """A disk that turns read-only in the middle: the journal stays for the next who can write."""
    fill(tmp_path)
    turned = False

    def turn() -> None:
        nonlocal turned
        turned = True

    def fail() -> None:
        def refuse(event: str, _: object) -> None:
            if turned and event in CHANGES:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        seen = 0

        def watch(event: str, args: tuple[object, ...]) -> None:
            nonlocal seen
            seen += event == "os.rename" and str(args[0]).endswith(".toml.new")
            if seen == 2:
                turn()

        sys.addaudithook(watch)
        sys.addaudithook(refuse)
        failure = r"could not be restored \(.*: Read-only file system\)"
        with pytest.raises(WriteError, match=failure) as refused:
            replace_files(tmp_path, wanted(tmp_path))
        raise refused.value

    assert in_child(fail) == 1
    assert (tmp_path / JOURNAL).exists()
    remark = recover(tmp_path)
    assert remark is not None
    assert "as they were before" in remark
    assert contents(tmp_path) == OLD


def test_a_leftover_beside_a_removed_file_hides_nothing(tmp_path: Path) -> None:
    """A process was killed before, and another one now, when only the journal was left to remove.

    What was a symbolic link has its content again.
    """
    fill(tmp_path)
    (tmp_path / "b/.gone.toml.new").write_bytes(b"left over")
    (tmp_path / "a/changed.toml").unlink()
    (tmp_path / "a/changed.toml").symlink_to("kept.toml")

    def die() -> None:
        def watch(event: str, args: tuple[object, ...]) -> None:
            if event == "os.remove" and str(args[0]).endswith(JOURNAL):
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        replace_files(tmp_path, wanted(tmp_path))

    assert in_child(die) == -signal.SIGKILL
    assert recover(tmp_path) is not None
    assert contents(tmp_path) == OLD


def test_what_was_restored_by_hand_stays(tmp_path: Path) -> None:
    """Files that were checked out after a process died there stay."""
    fill(tmp_path)

    def die() -> None:
        at_change(15, lambda: os.kill(os.getpid(), signal.SIGKILL))
        replace_files(tmp_path, wanted(tmp_path))

    assert in_child(die) == -signal.SIGKILL
    by_hand = dict.fromkeys((*OLD, "a/fresh.toml", "c/fresh.toml"), b"restored")
    for name, data in by_hand.items():
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).write_bytes(data)
    assert recover(tmp_path) is not None
    assert contents(tmp_path) == by_hand


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    """Nothing else is changed then."""
    fill(tmp_path)
    (tmp_path / "c" / "fresh.toml").mkdir(parents=True)
    with pytest.raises(
        WriteError, match=r"c/fresh\.toml could not be written: Is a directory; none"
    ):
        replace_files(tmp_path, wanted(tmp_path))
    assert contents(tmp_path) == OLD


@pytest.mark.parametrize(
    ("function", "code", "fails"),
    [
        ("fsync", errno.EINVAL, False),
        ("fsync", errno.EIO, True),
        ("flock", errno.ENOLCK, False),
        ("flock", errno.EIO, True),
    ],
)
def test_file_systems_that_can_not_sync_or_lock_folders_are_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, code: int, *, fails: bool
) -> None:
    """Only an error that means that much is passed over; after any other, all is as before."""
    fill(tmp_path)
    fsync = os.fsync

    def refuse(file: int, *options: object) -> None:
        if options or stat.S_ISDIR(os.fstat(file).st_mode):  # flock has an option
            raise OSError(code, os.strerror(code))
        fsync(file)

    monkeypatch.setattr(os if function == "fsync" else fcntl, function, refuse)
    if fails:
        with pytest.raises(WriteError, match="Input/output error"):
            replace_files(tmp_path, wanted(tmp_path))
    else:
        replace_files(tmp_path, wanted(tmp_path))
    assert contents(tmp_path) == (OLD if fails else NEW)


def test_folders_that_were_made_for_nothing_go(tmp_path: Path) -> None:
    """Also the folder of all."""
    root = tmp_path / "not" / "there"
    (tmp_path / "file").write_bytes(b"x")

    def fail() -> None:
        def refuse() -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        at_change(4, refuse)
        replace_files(root, {root / "a" / "b": b"x"})

    assert in_child(fail) == 1
    assert not (tmp_path / "not").exists()
    with pytest.raises(WriteError, match=r"Not a directory|File exists"):
        replace_files(tmp_path / "file", {tmp_path / "file" / "b": b"x"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        f'{{"files": [["../x", "{sha256(b"mine").hexdigest()}", null]]}}',
        f'{{"files": [["/x", "{sha256(b"mine").hexdigest()}", null]]}}',
        "[" * 100_000,
    ],
    ids=["empty", "no list", "outside", "absolute", "deep"],
)
def test_a_journal_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    """It is believed as little as any other file of the folder; nothing outside is touched."""
    (tmp_path / "x").write_bytes(b"mine")
    root = tmp_path / "root"
    root.mkdir()
    (root / JOURNAL).write_text(text)
    with pytest.raises(WriteError, match=f"{JOURNAL} is no journal"):
        recover(root)
    assert contents(tmp_path) == {"x": b"mine", f"root/{JOURNAL}": text.encode()}


def test_a_second_process_waits_and_then_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for ever: a process that was stopped in the middle is reported."""
    monkeypatch.setattr("pytest_cepbench.replacement._PATIENCE", 0.2)
    fill(tmp_path)
    child = os.fork()
    if child == 0:
        at_change(12, lambda: os.kill(os.getpid(), signal.SIGSTOP))
        replace_files(tmp_path, wanted(tmp_path))
        os._exit(0)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    try:
        with pytest.raises(WriteError, match="another process is replacing files"):
            recover(tmp_path)
        with pytest.raises(WriteError, match="another process is replacing files"):
            replace_files(tmp_path, wanted(tmp_path))
    finally:
        os.kill(child, signal.SIGCONT)
    assert os.waitpid(child, 0)[1] == 0
    assert contents(tmp_path) == NEW
