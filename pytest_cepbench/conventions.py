"""What the pytest plugin and the command line read and write alike; standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_NAMED = re.compile(r"([a-z0-9][a-z0-9_-]*)=(.+)")

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[a-z0-9]+::")


def split_name(text: str) -> tuple[str | None, str]:
    """Name and spec of `NAME=SPEC`; no name where there is none, or the text is a path that exists.

    A name is made of lower-case letters, digits, - and _.
    """
    match = _NAMED.fullmatch(text)
    return (None, text) if match is None or Path(text).exists() else (match[1], match[2])


def named_specs(texts: Iterable[str]) -> tuple[str | None, dict[str, str]]:
    """The last spec without a name, and specs by name; see `split_name`."""
    unnamed: str | None = None
    named: dict[str, str] = {}
    for name, spec in map(split_name, texts):
        if name is None:
            unnamed = spec
        else:
            named[name] = spec
    return unnamed, named


def split_pair(text: str, source: str) -> tuple[str, str]:
    """Name and path of `NAME=PATH`. source: who said it. Raises ValueError when it is none."""
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        msg = f"{source} {text!r}: NAME=PATH is expected, such as folder=photos"
        raise ValueError(msg)
    return name, path


def at_least_one(text: str, source: str) -> int:
    """A count. source: who said it. Raises ValueError for anything but a number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        msg = f"{source} {text!r}: a number of at least 1 is expected"
        raise ValueError(msg)
    return int(text)


def keep_out_of_git(home: Path, path: Path) -> None:
    """Put a `.gitignore` into the folder of everything that runs leave behind.

    home: that folder. path: what was written; nothing is done where it lies elsewhere.
    """
    ignore = home / ".gitignore"
    if path.absolute().is_relative_to(home.absolute()) and not ignore.exists():
        write_whole(ignore, "*\n")


def write_whole(path: Path, text: str) -> None:
    """Write a small file that is not there yet; nothing is left of it where that fails."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def is_url(text: str) -> bool:
    """Whether a place is named by a URL, as a bucket is, and not by a path."""
    return _URL.match(text) is not None
