"""The folder that a command is run in: where its store lies and from where it imports."""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_cepbench.files import keep_out_of_git
from pytest_cepbench.store import Store

HOME = Path(".cepbench")
"""Of everything that a command leaves behind by default, never to be committed."""


def open_store(folder: Path) -> Store:
    """The store in a folder. Raises StoreError."""
    store = Store(folder.absolute())
    keep_out_of_git(HOME, folder)
    return store


def import_from(suite_file: Path) -> None:
    """As under pytest, modules of `python:` models and loaders lie here or beside the suite."""
    for place in (str(suite_file.parent.absolute()), str(Path.cwd())):
        if place not in sys.path:
            sys.path.insert(0, place)
