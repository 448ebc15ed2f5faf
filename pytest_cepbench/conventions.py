"""What the pytest plugin and the command line read and write alike; standard library only."""

from __future__ import annotations

import re
from pathlib import Path

_NAMED = re.compile(r"([a-z0-9][a-z0-9_-]*)=(.+)")


def split_name(text: str) -> tuple[str | None, str]:
    """Name and spec of `NAME=SPEC`; no name where there is none, or the text is a path that exists.

    A name is made of lower-case letters, digits, - and _.
    """
    match = _NAMED.fullmatch(text)
    return (None, text) if match is None or Path(text).exists() else (match[1], match[2])


def keep_out_of_git(home: Path, path: Path) -> None:
    """Put a `.gitignore` into the folder of everything that runs leave behind.

    home: that folder. path: what was written; nothing is done where it lies elsewhere.
    """
    ignore = home / ".gitignore"
    if path.absolute().is_relative_to(home.absolute()) and not ignore.exists():
        ignore.write_text("*\n")
