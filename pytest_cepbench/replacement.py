"""Replacement of several files at once: whenever it ends, all of them are new, or all are old.

A journal in the folder has the old contents before the first name changes, and new ones are written
to temporary files: an error is undone at once, and `recover` undoes what a killed process left
behind. Standard library only.
"""

from __future__ import annotations

import errno
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from pytest_cepbench.errors import UnfitFileError, WriteError
from pytest_cepbench.files import lock_file, parse_json, read_regular

JOURNAL = ".cepbench-replacing"
"""The journal until all names have changed: `recover` undoes what it lists."""

_BEGUN = f"{JOURNAL}.new"

_MOST = 2**30  # bytes of a file, and of a journal

_PATIENCE = 10.0  # seconds for another process to replace files there, which needs far less

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EBADF, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True)
class _Change:
    """The change of one file.

    digest: of its new content; None where the file is removed.
    old: its content before; None where it did not exist.
    """

    target: Path
    digest: str | None
    old: bytes | None

    def beside(self, suffix: str) -> Path:
        """A temporary file: `new` for the new content, `old` for an old one that is put back."""
        return self.target.with_name(f".{self.target.name}.{suffix}")

    def restore(self) -> None:
        """Put the old content back, unless others have changed the file since. Raises OSError."""
        new, old = self.beside("new"), self.beside("old")
        try:
            data = _read(self.target)
            digest = None if data is None else sha256(data).hexdigest()
        except UnfitFileError:
            digest = ""
        # Where the new content still lies beside it, what has that content is somebody else's.
        if digest == self.digest and (digest is None or not os.path.lexists(new)):
            if self.old is None:
                self.target.unlink(missing_ok=True)
            else:
                _write(old, self.old)
                old.replace(self.target)
        for path in (new, old):
            if path.is_symlink() or not path.is_dir():  # a folder stood there before
                path.unlink(missing_ok=True)


def replace_files(root: Path, contents: Mapping[Path, bytes | None]) -> None:
    """Give files new contents, all or none.

    root: a folder that contains all of them; created where it is absent.
    contents: by path; None removes the file.
    Raises WriteError, after everything was restored.
    """
    wanted = dict(contents)
    for path, data in contents.items():
        with suppress(OSError):  # what cannot be read is named when it is replaced
            if _read(path, 0 if data is None else len(data)) == data:
                del wanted[path]
    if not wanted:
        return
    folders = sorted({path.parent for path, data in wanted.items() if data is not None})
    created: list[Path] = []
    try:
        for folder in (root, *folders):
            with _write_errors(folder):
                _make_folder(folder, created)
        with _locked(root):
            _undo_earlier(root)
            if len(wanted) > 1:
                _replace(root, wanted)
            else:
                _replace_one(*wanted.popitem())
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
    if not any(os.path.lexists(root / name) for name in (_BEGUN, JOURNAL)):
        return None
    with _locked(root):
        return _undo_earlier(root)


def _replace_one(path: Path, data: bytes | None) -> None:
    """A name changes at once, so that there is nothing to undo, however large the file is."""
    new = path.with_name(f".{path.name}.new")
    try:
        if data is None:
            path.unlink()
        else:
            _write(new, data)
            new.replace(path)
    except OSError as error:
        raise WriteError(
            f"{path} could not be written: {_reason(error)}; it was not changed"
        ) from error
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)
    with suppress(OSError):
        _sync(path.parent)


def _replace(root: Path, contents: Mapping[Path, bytes | None]) -> None:
    changes: list[_Change] = []
    path = root  # of the current step, for the error
    try:
        files = []
        for path, data in contents.items():
            digest = None if data is None else sha256(data).hexdigest()
            changes.append(_Change(path, digest, _read(path)))
            old = changes[-1].old
            kept = None if old is None else b64encode(old).decode()
            files.append([path.relative_to(root).as_posix(), digest, kept])
        path = root
        _write(root / _BEGUN, json.dumps({"format": 2, "files": files}).encode())
        (root / _BEGUN).rename(root / JOURNAL)
        _sync(root)
        for path, data in contents.items():
            if data is not None:
                _write(_Change(path, None, None).beside("new"), data)
        _sync_folders(changes)
        for change in changes:
            path = change.target
            if change.digest is None:
                path.unlink()
            else:
                change.beside("new").replace(path)
        _sync_folders(changes)
        path = root
        (root / JOURNAL).unlink()
    except BaseException as error:
        failed = _undo(root, changes)
        if not isinstance(error, OSError):
            raise
        rest = f"none of the {len(contents)} files was changed"
        if failed is not None:
            changed, reason = failed
            rest = (
                "and files that were changed before could not be restored "
                f"({changed}: {_reason(reason)}): the next run that can write there restores them"
            )
        raise WriteError(f"{path} could not be written: {_reason(error)}; {rest}") from error
    with suppress(OSError):  # all are new; a power cut could bring the journal back, and all be old
        _sync(root)


def _undo_earlier(root: Path) -> str | None:
    """Undo what a killed process began; see `recover`."""
    with _write_errors(root / _BEGUN):
        (root / _BEGUN).unlink(missing_ok=True)  # nothing has changed before it is renamed
    journal = root / JOURNAL
    if not os.path.lexists(journal):
        return None
    try:
        changes = [
            _Change(_below(root, name), digest, None if old is None else b64decode(old))
            for name, digest, old in parse_json((_read(journal) or b"").decode())["files"]
        ]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise WriteError(
            f"{journal} is no journal of replaced files ({error}): restore the folder from version "
            "control and delete it"
        ) from error
    what = f"a process ended while it replaced {len(changes)} files below {root}"
    failed = _undo(root, changes)
    if failed is not None:
        path, reason = failed
        raise WriteError(
            f"{what}, and they cannot be restored ({path}: {_reason(reason)}): fix that, or "
            f"restore the folder from version control and delete {journal}"
        ) from reason
    return f"{what}: all of them are as they were before"


def _undo(root: Path, changes: Iterable[_Change]) -> tuple[Path, OSError] | None:
    """Restore the old files. Returns the first that failed and its error; the journal stays."""
    failed = None
    for change in changes:
        try:
            change.restore()
        except OSError as error:
            failed = failed or (change.target, error)
    if failed is None:
        try:
            for name in (JOURNAL, _BEGUN):
                (root / name).unlink(missing_ok=True)
        except OSError as error:
            failed = root / JOURNAL, error
    return failed


def _below(root: Path, name: str) -> Path:
    inner = PurePosixPath(name)
    if inner.is_absolute() or ".." in inner.parts or not inner.parts:
        raise ValueError(f"{name!r} leads out of the folder")
    return root / inner


# -- files, folders, locks, errors -----------------------------------------------------------------


def _read(path: Path, most: int = _MOST) -> bytes | None:
    """The content of a file; None where there is none. Raises OSError, also for what is no file."""
    try:
        return read_regular(path, most)
    except FileNotFoundError:
        return None


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)  # of an earlier version, or made by hand
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(file, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(file)


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
            try:
                lock_file(file, _PATIENCE)
            except BlockingIOError:
                raise WriteError(
                    f"another process is replacing files below {root} and has not finished within "
                    f"{_PATIENCE:g} s: wait for it, or end it, and try again"
                ) from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:  # some network file systems have no locks
                    raise
        yield
    finally:
        os.close(file)


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
