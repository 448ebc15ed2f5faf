"""The folder of a run, where its processes leave word for one another; standard library only."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from pytest_cepbench.files import keep_out_of_git, write_small

STOP = "stop"
"""Written by the controller when the run is to stop."""

CASES = "cases.json"
"""Written by the worker that ends collection first: what its cases ask of whoever judges them."""


def run_folder(home: Path, run_id: str) -> Path:
    """Where it lies; gone when the run ends. home: of everything that runs leave behind."""
    return home / "runs" / run_id


def make_folder(home: Path, folder: Path) -> Path:
    """The folder, made where it is absent. home: of everything that runs leave behind."""
    folder.mkdir(parents=True, exist_ok=True)
    keep_out_of_git(home, folder)
    return folder


def write_message(folder: Path, name: str, text: str) -> None:
    """Write a file of the folder at once: nobody reads a part of it."""
    fresh = folder / f".{name}.{os.getpid()}"
    write_small(fresh, text)
    fresh.replace(folder / name)


def remove_folder(home: Path, folder: Path) -> None:
    """Remove the folder at the end of its run, and those around it that held nothing else.

    home: as above.
    """
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # another run may be going on beside, or nothing was ever left there
        folder.parent.rmdir()
        if [path.name for path in home.iterdir()] == [".gitignore"]:
            (home / ".gitignore").unlink()
            home.rmdir()
