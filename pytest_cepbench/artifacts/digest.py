"""Identity of contents by digest, and of files by stamps that show a write without reading them."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self


def digest_bytes(data: bytes) -> str:
    """SHA-256 of the bytes, 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def digest_text(text: str) -> str:
    """Digest of a text's UTF-8 bytes; lone surrogates, which some tokenizers emit, are kept."""
    return digest_bytes(b"text\0" + text.encode("utf-8", "surrogatepass"))


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces, the same for equal values.

    Raises TypeError for anything but built-in types and ValueError for NaN and infinities, so that
    nothing enters a key by its `repr`.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


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
        of its index so, and calls them racily clean.
        """
        return self.taken_ns - self.modified_ns > RACY_NS

    def __str__(self) -> str:
        return f"{self.size} {self.modified_ns} {self.changed_ns} {self.inode}"
