"""Stamps of files: they show that a file was written to, without reading it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

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
