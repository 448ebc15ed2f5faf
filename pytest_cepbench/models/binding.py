"""From a model spec to the roles it can play, and to one role bound and ready to load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BindContext:
    """What binding needs from the run.

    hash_file: SHA-256 (hex) of a file's bytes; the run remembers it by path, size and mtime.
    threads: CPU threads that a model of this process may use; None leaves the library's choice.
    """

    hash_file: Callable[[Path], str]
    threads: int | None = None
