"""What is a case among pytest's tests, and where they are looked for. Needs nothing but pytest."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatch, translate
from pathlib import Path

import pytest

SUITE_FILE = "suite.toml"
"""The suite of the test modules beside it; marks may name others."""

FIXTURES = ("cep_case", "cep_gate")
"""By which a test takes a case."""

MISTAKE = "cepbench_mistake"
"""Attribute of the report on a module that was not collected since its suite is written wrongly."""


def is_case(item: pytest.Item) -> bool:
    """Whether a test takes a case."""
    return "cep_case" in getattr(item, "fixturenames", ())


def mentions(module: Path, words: Iterable[str]) -> bool:
    """Whether the source of a module has one of these words; not where it cannot be read."""
    from pytest_cepbench.files import MOST_TEXT, read_regular

    with suppress(OSError):
        source = read_regular(module, MOST_TEXT)
        return any(word.encode() in source for word in words)
    return False


def would_have_cases(place: Path) -> bool:
    """Whether a module or a folder that could not be collected belongs to a suite."""
    if place.is_dir():
        return any(mentions(module, FIXTURES) for module in place.rglob("*.py"))
    return place.with_name(SUITE_FILE).exists() or mentions(place, FIXTURES)


def stands_for(item: pytest.Item) -> str:
    """What is not judged where a test is skipped.

    Its "case"; the "suite" of which it takes the place; or "nothing", where there is no case, since
    the data is not here, or the model under test has no part in the suite.
    """
    params = getattr(getattr(item, "callspec", None), "params", {})
    absent = "cep_case" in params and params["cep_case"] is None
    return str(getattr(item, "stands_for", "nothing" if absent else "case"))


def walk(
    config: pytest.Config, root: Path, unentered: Iterable[str] | None = None
) -> Iterator[tuple[Path, list[str]]]:
    """Folders that the engineer has pytest look into, and the names of their files.

    Those that a conftest.py ignores are among them. unentered: patterns of others, in the place of
    norecursedirs.
    """
    here = config.invocation_params.dir
    ignored = {here / path for path in config.getoption("ignore") or ()}
    globs = [str(here / glob) for glob in config.getoption("ignore_glob") or ()]
    unentered = ["__pycache__", *(unentered or config.getini("norecursedirs"))]
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
