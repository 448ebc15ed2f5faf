"""Files: safe reading of those from outside, whole writing of small ones, digests and stamps.

Reading accepts regular files of a limited size only. A data set, a shared folder or a baseline may
hold a named pipe, a link to a device, or a sparse file of many gigabytes: to open the first blocks
for ever, to read the others never ends.

Contents are identified by digests; stamps show a write to a file without reading it. Standard
library only, so that every floor can use it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from pytest_cepbench.errors import UnfitFileError

MOST_TEXT = 64 * 2**20
"""Limit in bytes for files that people or this package write: suites, baselines, configurations."""

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a symbolic link"),
)

_POINTER = b"version https://git-lfs.github.com/spec/"
"""How the file begins that Git has in the place of a large one until `git lfs pull` brings that."""

_MOST_POINTER = 1024  # bytes, by the specification of Git LFS

_POLL_SECONDS = 0.02  # between two tries for a lock


def expand_user(place: str) -> Path:
    """A path with `~` as the home directory; that of a user who is not there stays as it is.

    `Path.expanduser` raises RuntimeError for such a name, which is a path that does not exist.
    """
    return Path(os.path.expanduser(place))  # noqa: PTH111


def open_regular(path: Path, most: int | None = None, *, links: bool = True) -> BufferedReader:
    """Open a regular file for reading, as `path.open("rb")` does, without ever blocking.

    most: largest size in bytes; None for no limit, where the file is read in parts.
    links: whether the name may be a symbolic link, which is followed.
    Raises OSError; UnfitFileError, a kind of it, for what is not regular or too large, and for a
    pointer of Git LFS in the place of a file.
    """
    if "\0" in str(path):
        raise UnfitFileError("a name with a NUL byte is none that a file can have")
    follow = 0 if links else os.O_NOFOLLOW
    # Checked before the file is opened as well: opening a pipe or a device can change something.
    _check(path.stat(follow_symlinks=links), most)
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | follow)
    try:
        status = os.fstat(file)
        _check(status, most)
        if status.st_size < _MOST_POINTER:
            _refuse_pointer(os.pread(file, len(_POINTER), 0))
        os.set_blocking(file, True)
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def tells_of_file(error: OSError) -> bool:
    """Whether an error of reading says what is there: no file, or none that is fit.

    Any other one (no handle or memory is left, no right to read, a faulty disk) tells nothing of
    the file, which may be whole.
    """
    absent = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
    return isinstance(error, UnfitFileError) or error.errno in absent


def names_beside(path: Path, *, folders: bool = False) -> list[str]:
    """Names in the folder where a path was looked for; none where that cannot be read.

    folders: of folders alone.
    """
    try:
        return [entry.name for entry in path.parent.iterdir() if entry.is_dir() or not folders]
    except (OSError, ValueError):  # ValueError: a path with a NUL byte
        return []


def read_regular(path: Path, most: int, *, links: bool = True) -> bytes:
    """The bytes of a regular file. Parameters and errors as of `open_regular`."""
    with open_regular(path, most, links=links) as stream:
        # As much as the file has, since Python sets aside whatever is asked for; but the size at
        # opening proves nothing: a file may grow, and /proc reports a size of 0.
        size = os.fstat(stream.fileno()).st_size
        data = stream.read(size + 1)
        if len(data) > size:
            data += stream.read(most + 1 - len(data))
    if len(data) > most:
        raise UnfitFileError(_too_large(f"more than {most:,}", most))
    return data


def sha256_of(path: Path) -> str:
    """SHA-256 of the bytes of a regular file, in hexadecimal. Errors as of `open_regular`."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_text(path: Path, most: int = MOST_TEXT) -> str:
    """The text of a regular file in UTF-8. Raises OSError and UnicodeDecodeError."""
    return read_regular(path, most).decode("utf-8")


def parse_toml(data: bytes | str) -> dict[str, Any]:
    """The tables of a TOML text. Raises ValueError, in one line, where it is not valid."""
    import tomllib  # here, since the plugin imports this module in every run of pytest

    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data  # as Notepad saves it
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}: save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(_why(error)) from error


def parse_json(text: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value of a JSON text. Raises ValueError, in one line, where it is not valid.

    pairs: makes an object of its keys and values; a dict by default.
    """
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise ValueError(_why(error)) from error


def first_text(path: Path, text: str) -> str:
    """The text that the first process wrote here: this one where none did before.

    path: of a folder that holds it. Raises OSError.
    """
    fresh = path.with_name(f".{uuid4().hex}")
    try:
        fresh.mkdir()
        (fresh / "text").write_text(text, encoding="utf-8")
        try:
            fresh.rename(path)  # whole at once, and never over a folder that is not empty
        except OSError:
            if not path.exists():
                raise
        return (path / "text").read_text(encoding="utf-8")
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def replace_small(path: Path, data: bytes) -> None:
    """Write a small file in one step, in the place of an earlier one. Raises OSError."""
    fresh = path.with_name(f".{uuid4().hex}")  # processes of containers have equal numbers
    try:
        fresh.write_bytes(data)
        fresh.replace(path)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def lock_file(file: int, seconds: float) -> None:
    """Lock an open file for one process at a time, until it is closed or the process ends.

    Raises BlockingIOError where another one has it for so many seconds, OSError where locks fail.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return


def append_line(file: int, line: bytes) -> None:
    """Add a line to an open file and sync it; on an error no part of it is left. Raises OSError.

    A line that was cut off when a process was killed stays, and the new one begins below it.
    """
    size = os.fstat(file).st_size
    cut_off = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    data = b"\n" + line if cut_off else line
    try:
        if os.write(file, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301 - as a full disk
        os.fsync(file)
    except OSError:
        with suppress(OSError):  # what is left is found when it is read next
            os.ftruncate(file, size)
        raise


def keep_out_of_git(home: Path, path: Path) -> None:
    """Put a `.gitignore` into the folder for everything that runs leave behind.

    home: that folder.
    path: what was written; nothing is done where it lies outside of the folder.
    """
    ignore = home / ".gitignore"
    if path.absolute().is_relative_to(home.absolute()) and not ignore.exists():
        replace_small(ignore, b"*\n")


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    message = str(error)
    # Python's message goes on with a setting by which a program could allow it.
    return "a number has thousands of digits" if "integer string conversion" in message else message


def _check(status: os.stat_result, most: int | None) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise UnfitFileError(os.strerror(errno.EISDIR))
    for is_kind, name in _KINDS:
        if is_kind(status.st_mode):
            raise UnfitFileError(f"it is {name}, and a regular file is expected")
    if most is not None and status.st_size > most:
        raise UnfitFileError(_too_large(f"{status.st_size:,}", most))


def _refuse_pointer(beginning: bytes) -> None:
    if beginning == _POINTER:
        raise UnfitFileError(
            "it is a pointer of Git LFS to a file that was not fetched: run git lfs pull"
        )


def _too_large(size: str, most: int) -> str:
    return f"it has {size} bytes, and at most {most:,} are expected"


# -- digests and stamps ---------------------------------------------------------------------------


def digest_bytes(data: bytes) -> str:
    """SHA-256 of the bytes, 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def digest_text(text: str) -> str:
    """Digest of a text's UTF-8 bytes; lone surrogates, which some tokenizers emit, are kept."""
    return digest_bytes(b"text\0" + text.encode("utf-8", "surrogatepass"))


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces, the same for equal values.

    Raises TypeError for anything but built-in types and ValueError for NaN and infinities, so that
    nothing enters a key by its `repr`.
    """
    return _CANONICAL.encode(value)


def digest_json(value: Any) -> str:
    """Digest of `canonical_json(value)`."""
    return digest_bytes(canonical_json(value).encode("utf-8"))


RACY_NS = 2_000_000_000
"""Age in nanoseconds from which a stamp is trusted: file systems tick every 2 s at worst."""


@dataclass(frozen=True)
class FileStamp:
    """Properties that change when a file is written to, or another file replaces it.

    Take it before the content is read: a write meanwhile then shows in the next stamp.

    size: bytes.
    modified_ns: mtime, nanoseconds since the epoch; any user can set it back.
    changed_ns: ctime, nanoseconds since the epoch, which moves even then.
    inode: of the file; a file that was renamed to this name has another one.
    taken_ns: time of the stamp, nanoseconds since the epoch.
    """

    size: int
    modified_ns: int
    changed_ns: int
    inode: int
    taken_ns: int = field(compare=False)

    @classmethod
    def of(cls, path: Path) -> Self:
        """The stamp of a file, now. Raises OSError where there is none."""
        taken = time.time_ns()  # before the look, so that the file seems younger, never older
        status = path.stat()
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, taken)

    @property
    def settled(self) -> bool:
        """True where any later write changes the stamp.

        A file that was written within the clock's tick of its stamp can be written once more in the
        same tick, and keep size and stamp: its content has to be read again. Git treats the entries
        of its index so, and calls them racily clean. Of a file from the future, as archives of
        another time zone hold them, that is seen by its ctime.
        """
        future = self.modified_ns > self.taken_ns
        return self.taken_ns - (self.changed_ns if future else self.modified_ns) > RACY_NS

    def __str__(self) -> str:
        return f"{self.size} {self.modified_ns} {self.changed_ns} {self.inode}"


def shown_path(path: Path) -> Path:
    """A path, relative to the working directory where it lies below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
