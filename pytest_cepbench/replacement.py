"""Replacing several files at once: whenever it ends, all of them are new, or all of them are old.

Everything is written beside its place and brought to the disk before the first name changes. A
journal in the folder says what is under way: an error is undone at once, and what a process leaves
behind that is killed is undone by `recover`. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from pytest_cepbench.errors import UnfitFileError, WriteError
from pytest_cepbench.files import MOST_TEXT, parse_json, read_regular

JOURNAL = ".cepbench-replacing"
"""Lies in the folder until all names have changed: what it lists is to be undone."""

DONE = ".cepbench-replaced"
"""The journal once they have: what was kept for undoing is to be removed."""

_BEGUN = f"{JOURNAL}.new"

_PATIENCE = 10.0  # seconds for another process that replaces files there, which takes it far less

_LOOK = 0.05

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EBADF, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True)
class _Change:
    """One file. digest: of its new content, None where it is removed. had: whether it was there."""

    target: Path
    digest: str | None
    had: bool

    @property
    def fresh(self) -> Path:
        """Where the new content waits."""
        return self.target.with_name(f".{self.target.name}.new")

    @property
    def kept(self) -> Path:
        """Where the old file waits."""
        return self.target.with_name(f".{self.target.name}.old")


def replace_files(root: Path, contents: Mapping[Path, bytes | None]) -> None:
    """Give files new contents, all or none.

    root: a folder that all of them lie below, made where it is absent. contents: by path; None
    removes the file. Raises WriteError, after everything was put back.
    """
    wanted = {path: data for path, data in contents.items() if not _is_so(path, data)}
    if not wanted:
        return
    folders = sorted({path.parent for path, data in wanted.items() if data is not None})
    made: list[Path] = []
    done = False
    try:
        for folder in (root, *folders):
            with _named(folder):
                _make_folder(folder, made)
        with _locked(root):
            _finish_earlier(root)
            _replace(root, wanted)
        done = True
    finally:
        for folder in () if done else reversed(made):
            with suppress(OSError):
                folder.rmdir()


def recover(root: Path) -> str | None:
    """Put right what a process left behind that ended while it replaced files below a folder.

    Returns what was done, as a sentence; None where nothing was to do. Raises WriteError where it
    cannot be put right, or another process replaces files there and does not come to an end.
    """
    if not any(os.path.lexists(root / name) for name in (_BEGUN, JOURNAL, DONE)):
        return None
    with _locked(root):
        return _finish_earlier(root)


# -- forth -------------------------------------------------------------------------------------------


def _replace(root: Path, contents: Mapping[Path, bytes | None]) -> None:
    changes = [_change(path, data) for path, data in contents.items()]
    at = root
    try:
        _write_journal(root, changes)
        for change in changes:
            at = change.target
            _prepare(change, contents[at])
        _sync_folders(changes)
        for change in changes:
            at = change.target
            if change.digest is None:
                change.target.rename(change.kept)
            else:
                change.fresh.replace(change.target)
        _sync_folders(changes)
        at = root
        (root / JOURNAL).rename(root / DONE)
    except BaseException as error:
        left = _undo(root, changes)
        if isinstance(error, OSError):
            raise _failed(at, error, len(changes), left) from error
        raise
    with suppress(OSError):  # all are new: what is left over goes with the next that writes here
        _sync(root)  # or after a power cut the journal could be back, and some of what it needs not
        _clean(root, changes)


def _change(path: Path, data: bytes | None) -> _Change:
    digest = None if data is None else sha256(data).hexdigest()
    return _Change(path, digest, os.path.lexists(path))


def _prepare(change: _Change, data: bytes | None) -> None:
    """Write the new content beside its place; keep the old file under a second name."""
    if change.target.is_dir() and not change.target.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    for left in (change.fresh, change.kept):  # by an earlier version, or by hand
        left.unlink(missing_ok=True)
    if data is None:
        return
    _write(change.fresh, data)
    if change.had:
        try:
            os.link(change.target, change.kept, follow_symlinks=False)
        except (OSError, NotImplementedError):  # a file system without links
            shutil.copy2(change.target, change.kept, follow_symlinks=False)


def _write(path: Path, data: bytes) -> None:
    """A new file, on the disk when this returns."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(file, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(file)


def _write_journal(root: Path, changes: Sequence[_Change]) -> None:
    files = [[_inside(root, one.target), one.digest, one.had] for one in changes]
    fresh = root / _BEGUN
    _write(fresh, json.dumps({"format": 1, "files": files}).encode())
    fresh.rename(root / JOURNAL)
    _sync(root)


def _inside(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


# -- back --------------------------------------------------------------------------------------------


def _finish_earlier(root: Path) -> str | None:
    """Undo what a process began that is no more; see `recover`."""
    if os.path.lexists(root / DONE):
        with _named(root / DONE):
            _clean(root, _read_journal(root / DONE, root))
    with _named(root / _BEGUN):
        (root / _BEGUN).unlink(missing_ok=True)  # nothing has happened before it has its name
    if not os.path.lexists(root / JOURNAL):
        return None
    changes = _read_journal(root / JOURNAL, root)
    left = _undo(root, changes)
    if left is not None:
        path, error = left
        msg = (
            f"a process ended while it replaced {len(changes)} files below {root}, and they cannot be "
            f"put back ({path}: {_words(error)}): mend that, or restore the folder from version "
            f"control and delete {root / JOURNAL}"
        )
        raise WriteError(msg) from error
    return (
        f"a process ended while it replaced {len(changes)} files below {root}: all of them are as "
        "they were before"
    )


def _undo(root: Path, changes: Iterable[_Change]) -> tuple[Path, OSError] | None:
    """Put everything back as it was. Returns what could not be, with the reason; the journal stays."""
    left = None
    for change in changes:
        try:
            _put_back(change)
        except OSError as error:
            left = left or (change.target, error)
    if left is None:
        try:
            for name in (JOURNAL, _BEGUN):
                (root / name).unlink(missing_ok=True)
        except OSError as error:
            left = root / JOURNAL, error
    return left


def _put_back(change: _Change) -> None:
    """What somebody else has put there since is left alone."""
    if not change.had:
        if not change.fresh.exists() and _is_new(change):
            change.target.unlink()
    elif os.path.lexists(change.kept) and _is_new(change):
        change.kept.replace(change.target)
    for path in (change.kept, change.fresh):
        if path.is_symlink() or not path.is_dir():  # a folder was in the way
            path.unlink(missing_ok=True)


def _is_new(change: _Change) -> bool:
    """Whether what lies there is what was to come there."""
    if change.digest is None:
        return not os.path.lexists(change.target)
    try:
        data = read_regular(change.target, MOST_TEXT, links=False)
    except (FileNotFoundError, UnfitFileError):
        return False
    return sha256(data).hexdigest() == change.digest


def _clean(root: Path, changes: Iterable[_Change]) -> None:
    for change in changes:
        change.kept.unlink(missing_ok=True)
    (root / DONE).unlink(missing_ok=True)


def _read_journal(path: Path, root: Path) -> list[_Change]:
    try:
        told = parse_json(read_regular(path, MOST_TEXT, links=False).decode())
        found = [
            _Change(_below(root, name), digest, bool(had)) for name, digest, had in told["files"]
        ]
    except (OSError, ValueError, LookupError, TypeError) as error:
        msg = (
            f"{path} is no journal of replaced files ({error}): restore the folder from version control "
            "and delete it"
        )
        raise WriteError(msg) from error
    return found


def _below(root: Path, name: str) -> Path:
    inner = PurePosixPath(name)
    if inner.is_absolute() or ".." in inner.parts or not inner.parts:
        msg = f"{name!r} leads out of the folder"
        raise ValueError(msg)
    return root / inner


# -- folders, locks, words ---------------------------------------------------------------------------


def _is_so(path: Path, data: bytes | None) -> bool:
    """Whether a file has this content already."""
    if data is None:
        return not os.path.lexists(path)
    try:
        return read_regular(path, len(data), links=False) == data
    except OSError:
        return False


def _make_folder(folder: Path, made: list[Path]) -> None:
    """With what it lies in. made: is told which ones were not there."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        _make_folder(folder.parent, made)
    with suppress(FileExistsError):  # by another process; what else it may be shows later
        folder.mkdir()
        made.append(folder)


def _sync_folders(changes: Iterable[_Change]) -> None:
    for folder in sorted({change.target.parent for change in changes}):
        _sync(folder)


def _sync(folder: Path) -> None:
    """Bring the names of a folder to the disk, where its file system can do that for folders."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(file)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """One process at a time; the lock ends with the process, however that ends."""
    with _named(root):
        file = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _named(root):
            _lock(file, root)
        yield
    finally:
        os.close(file)


def _lock(file: int, root: Path) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                msg = (
                    f"another process is replacing files below {root} and has not ended within "
                    f"{_PATIENCE:g} s: wait for it, or end it, and try again"
                )
                raise WriteError(msg) from None
            time.sleep(_LOOK)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return  # some network file systems have none for folders
        else:
            return


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn errors of the file system into WriteError."""
    try:
        yield
    except OSError as error:
        msg = f"{path} could not be written: {_words(error)}; nothing was changed"
        raise WriteError(msg) from error


def _failed(at: Path, error: OSError, number: int, left: tuple[Path, OSError] | None) -> WriteError:
    said = f"{at} could not be written: {_words(error)}"
    if left is None:
        return WriteError(
            f"{said}; {'it was not changed' if number == 1 else f'none of the {number} files was changed'}"
        )
    path, why = left
    return WriteError(
        f"{said}; and what was changed before could not be put back ({path}: {_words(why)}): the next "
        "run that can write there does it"
    )


def _words(error: OSError) -> str:
    return error.strerror or str(error)
