"""Replacement of several files at once: whenever it ends, all of them are new, or all are old.

New contents are written to temporary files and synced before the first name changes. A journal in
the folder lists the changes: an error is undone at once, and `recover` undoes what a killed process
left behind. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from pytest_cepbench.errors import UnfitFileError, WriteError
from pytest_cepbench.files import MOST_TEXT, parse_json, read_regular

JOURNAL = ".cepbench-replacing"
"""The journal until all names have changed: `recover` undoes what it lists."""

DONE = ".cepbench-replaced"
"""The journal after that: the copies of old files that it lists are to be removed."""

_BEGUN = f"{JOURNAL}.new"

_PATIENCE = 10.0  # seconds for another process to replace files there, which needs far less

_POLL_SECONDS = 0.05

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EBADF, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True)
class _Change:
    """The change of one file.

    target: the file.
    digest: of its new content; None where the file is removed.
    existed: whether the file existed before.
    """

    target: Path
    digest: str | None
    existed: bool

    @property
    def new(self) -> Path:
        """Temporary file with the new content."""
        return self.target.with_name(f".{self.target.name}.new")

    @property
    def old(self) -> Path:
        """Second name of the old file."""
        return self.target.with_name(f".{self.target.name}.old")


def replace_files(root: Path, contents: Mapping[Path, bytes | None]) -> None:
    """Give files new contents, all or none.

    root: a folder that contains all of them; created where it is absent.
    contents: by path; None removes the file.
    Raises WriteError, after everything was restored.
    """
    wanted = {path: data for path, data in contents.items() if not _has_content(path, data)}
    if not wanted:
        return
    folders = sorted({path.parent for path, data in wanted.items() if data is not None})
    created: list[Path] = []
    try:
        for folder in (root, *folders):
            with _write_errors(folder):
                _make_folder(folder, created)
        with _locked(root):
            _finish_earlier(root)
            _replace(root, wanted)
    except BaseException:
        for folder in reversed(created):
            with suppress(OSError):
                folder.rmdir()
        raise


def recover(root: Path) -> str | None:
    """Undo what a killed process left half done while it replaced files below a folder.

    Returns a sentence about it; None where there was nothing to do.
    Raises WriteError where it cannot be undone, or another process goes on replacing files there.
    """
    if not any(os.path.lexists(root / name) for name in (_BEGUN, JOURNAL, DONE)):
        return None
    with _locked(root):
        return _finish_earlier(root)


# -- replacement -----------------------------------------------------------------------------------


def _replace(root: Path, contents: Mapping[Path, bytes | None]) -> None:
    changes = [
        _Change(path, None if data is None else sha256(data).hexdigest(), os.path.lexists(path))
        for path, data in contents.items()
    ]
    path = root  # of the current step, for the error
    try:
        files = [
            [change.target.relative_to(root).as_posix(), change.digest, change.existed]
            for change in changes
        ]
        _write(root / _BEGUN, json.dumps({"format": 1, "files": files}).encode())
        (root / _BEGUN).rename(root / JOURNAL)
        _sync(root)
        for change in changes:
            path = change.target
            _prepare(change, contents[path])
        _sync_folders(changes)
        for change in changes:
            path = change.target
            if change.digest is None:
                change.target.rename(change.old)
            else:
                change.new.replace(change.target)
        _sync_folders(changes)
        path = root
        (root / JOURNAL).rename(root / DONE)
    except BaseException as error:
        failed = _undo(root, changes)
        if not isinstance(error, OSError):
            raise
        unchanged = f"none of the {len(changes)} files was changed"
        rest = "it was not changed" if len(changes) == 1 else unchanged
        if failed is not None:
            changed, reason = failed
            rest = (
                "and files that were changed before could not be restored "
                f"({changed}: {_reason(reason)}): the next run that can write there restores them"
            )
        raise WriteError(f"{path} could not be written: {_reason(error)}; {rest}") from error
    with suppress(OSError):  # all are new, and the next process that writes here cleans up
        # Without it, a power cut could bring back the journal, without the files that it lists.
        _sync(root)
        _clean(root, changes)


def _prepare(change: _Change, data: bytes | None) -> None:
    """Write the new content to a temporary file; give the old file a second name."""
    if change.target.is_dir() and not change.target.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    for path in (change.new, change.old):  # of an earlier version, or made by hand
        path.unlink(missing_ok=True)
    if data is None:
        return
    _write(change.new, data)
    if change.existed:
        try:
            os.link(change.target, change.old, follow_symlinks=False)
        except (OSError, NotImplementedError):
            # A file system without links, or a platform that cannot link a symbolic link itself.
            shutil.copy2(change.target, change.old, follow_symlinks=False)
            if not change.old.is_symlink():
                with change.old.open("rb") as stream:
                    os.fsync(stream.fileno())  # a power cut must not lose what it restores


def _write(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(file, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(file)


# -- undoing ---------------------------------------------------------------------------------------


def _finish_earlier(root: Path) -> str | None:
    """Undo what a killed process began; see `recover`."""
    if os.path.lexists(root / DONE):
        with _write_errors(root / DONE):
            _clean(root, _read_journal(root / DONE, root))
    with _write_errors(root / _BEGUN):
        (root / _BEGUN).unlink(missing_ok=True)  # nothing has changed before it is renamed
    if not os.path.lexists(root / JOURNAL):
        return None
    changes = _read_journal(root / JOURNAL, root)
    failed = _undo(root, changes)
    if failed is not None:
        path, error = failed
        raise WriteError(
            f"a process ended while it replaced {len(changes)} files below {root}, and they cannot "
            f"be restored ({path}: {_reason(error)}): fix that, or restore the folder from version "
            f"control and delete {root / JOURNAL}"
        ) from error
    return (
        f"a process ended while it replaced {len(changes)} files below {root}: all of them are as "
        "they were before"
    )


def _undo(root: Path, changes: Iterable[_Change]) -> tuple[Path, OSError] | None:
    """Restore the old files. Returns the first that failed and its error; the journal stays."""
    failed = None
    for change in changes:
        try:
            _restore(change)
        except OSError as error:
            failed = failed or (change.target, error)
    if failed is None:
        try:
            for name in (JOURNAL, _BEGUN):
                (root / name).unlink(missing_ok=True)
        except OSError as error:
            failed = root / JOURNAL, error
    return failed


def _restore(change: _Change) -> None:
    """Restore one file, unless it has been changed by others since."""
    if not change.existed:
        if not change.new.exists() and _is_new(change):
            change.target.unlink()
    elif os.path.lexists(change.old) and _is_new(change):
        change.old.replace(change.target)
    for path in (change.old, change.new):
        if path.is_symlink() or not path.is_dir():  # a folder stood there before
            path.unlink(missing_ok=True)


def _is_new(change: _Change) -> bool:
    """True where the file has its new content, or is removed as planned."""
    if change.digest is None:
        return not os.path.lexists(change.target)
    try:
        data = read_regular(change.target, MOST_TEXT, links=False)
    except (FileNotFoundError, UnfitFileError):
        return False
    return sha256(data).hexdigest() == change.digest


def _clean(root: Path, changes: Iterable[_Change]) -> None:
    for change in changes:
        change.old.unlink(missing_ok=True)
    (root / DONE).unlink(missing_ok=True)


def _read_journal(path: Path, root: Path) -> list[_Change]:
    try:
        journal = parse_json(read_regular(path, MOST_TEXT, links=False).decode())
        return [
            _Change(_below(root, name), digest, bool(existed))
            for name, digest, existed in journal["files"]
        ]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise WriteError(
            f"{path} is no journal of replaced files ({error}): restore the folder from version "
            "control and delete it"
        ) from error


def _below(root: Path, name: str) -> Path:
    inner = PurePosixPath(name)
    if inner.is_absolute() or ".." in inner.parts or not inner.parts:
        raise ValueError(f"{name!r} leads out of the folder")
    return root / inner


# -- folders, locks, errors ------------------------------------------------------------------------


def _has_content(path: Path, data: bytes | None) -> bool:
    """True where a file has this content already; None for absence."""
    if data is None:
        return not os.path.lexists(path)
    try:
        return read_regular(path, len(data), links=False) == data
    except OSError:
        return False


def _make_folder(folder: Path, created: list[Path]) -> None:
    """Create a folder with its parents. created: receives those that did not exist."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        _make_folder(folder.parent, created)
    with suppress(FileExistsError):  # created by another process, or a file: that shows later
        folder.mkdir()
        created.append(folder)


def _sync_folders(changes: Iterable[_Change]) -> None:
    for folder in sorted({change.target.parent for change in changes}):
        _sync(folder)


def _sync(folder: Path) -> None:
    """Sync the names in a folder, where its file system can."""
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
    """A lock for one process at a time, which ends with the process."""
    with _write_errors(root):
        file = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _write_errors(root):
            until = time.monotonic() + _PATIENCE
            while not _try_lock(file):
                if time.monotonic() > until:
                    raise WriteError(
                        f"another process is replacing files below {root} and has not finished "
                        f"within {_PATIENCE:g} s: wait for it, or end it, and try again"
                    )
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(file)


def _try_lock(file: int) -> bool:
    """Lock without waiting; False where another process has the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return True  # some network file systems cannot lock folders
    return True


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system into WriteError."""
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"{path} could not be written: {_reason(error)}; nothing was changed"
        ) from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
