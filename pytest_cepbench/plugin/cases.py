"""What is a case among pytest's tests, and where they are looked for. Needs nothing but pytest."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatch, translate
from pathlib import Path

import pytest

SUITE_FILE = "suite.toml"
"""The suite of the test modules beside it; marks may name others."""

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
    # As pytest has it: of a pattern without a slash the name counts, or nothing below a hidden
    # folder, such as ~/.jenkins, would be looked into.
    skipped_name = re.compile("|".join(translate(p) for p in unentered if "/" not in p)).match
    skipped_paths = [p if p[0] == "/" else f"*/{p}" for p in unentered if "/" in p]
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
            if not skipped_name(name)
            and is_kept(folder / name)
            and not any(fnmatch(f"{folder}/{name}", p) for p in skipped_paths)
        )
        sparing = ignored or globs  # else a path for each file of a large tree is made for nothing
        yield folder, sorted(n for n in names if not sparing or is_kept(folder / n))
