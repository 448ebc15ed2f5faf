"""What is a case among pytest's tests, and where they are looked for. Needs nothing but pytest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

MISTAKE = "cepbench_mistake"
"""Attribute of the report on a module that was not collected since its suite is written wrongly."""


def is_case(item: pytest.Item) -> bool:
    """Whether a test takes a case."""
    return "cep_case" in getattr(item, "fixturenames", ())


def stands_for(item: pytest.Item) -> str:
    """What is not judged where a test is skipped.

    Its "case"; the "suite" of which it takes the place; or "nothing", where there is no case, since
    the data is not here, or the model under test has no part in the suite.
    """
    params = getattr(getattr(item, "callspec", None), "params", {})
    absent = "cep_case" in params and params["cep_case"] is None
    return str(getattr(item, "stands_for", "nothing" if absent else "case"))


def walk(config: pytest.Config, root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders that the engineer has pytest look into, and the names of their files.

    Those that a conftest.py ignores are among them.
    """
    here = config.invocation_params.dir
    ignored = {here / path for path in config.getoption("ignore") or ()}
    globs = [str(here / glob) for glob in config.getoption("ignore_glob") or ()]
    unentered = ["__pycache__", *config.getini("norecursedirs")]
    known = set()

    def is_kept(path: Path) -> bool:
        return path not in ignored and not any(fnmatch(str(path), glob) for glob in globs)

    for place, below, names in os.walk(root, followlinks=True):
        folder = Path(place)
        try:
            status = folder.stat()
        except FileNotFoundError:  # it went meanwhile
            continue
        if (status.st_dev, status.st_ino) in known or "pyvenv.cfg" in names:
            below.clear()  # a link back, or an environment
            continue
        known.add((status.st_dev, status.st_ino))
        below[:] = sorted(
            name
            for name in below
            if is_kept(folder / name)
            and not any(
                fnmatch(name, p) or fnmatch(f"{folder}/{name}", f"*/{p}") for p in unentered
            )
        )
        yield folder, sorted(name for name in names if is_kept(folder / name))
