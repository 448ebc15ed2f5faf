"""The baseline files of a project: where they are, of which case each is, which no case has."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_cepbench.errors import BaselineError
from pytest_cepbench.files import MOST_TEXT, parse_toml, read_regular, tells_of_file
from pytest_cepbench.gate import CaseKey, Measurement
from pytest_cepbench.gate.baseline import (
    ANCHORS,
    REMEDY,
    SUFFIX,
    anchor_path,
    baseline_path,
    read_baseline,
)
from pytest_cepbench.gate.series import SERIES
from pytest_cepbench.suites.judge_cards import JUDGE_CARDS

_CONFIGURATIONS = (
    "pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini",
    "setup.cfg",
)  # fmt: skip

_SETTING = re.compile(
    r"""cepbench_baselines["']?\s*=[ \t\["']*([^"'\]\n#]+)|--cep-baselines[=\s"',]+([^\s"',\]]+)"""
)
"""The key or the option, in INI, TOML and a command line alike."""


def project_baselines(*starts: Path) -> list[Path]:
    """Folders that runs of pytest in these folders, or around them, would have for baselines.

    Where `CEPBENCH_BASELINES`, `PYTEST_ADDOPTS` and the configurations of pytest say, and the
    folders `baselines`. Raises OSError where that cannot be read.
    """
    variable = os.environ.get("CEPBENCH_BASELINES", "")
    named = [*([variable] if variable else []), *_named(os.environ.get("PYTEST_ADDOPTS", ""))]
    folders = [Path.cwd() / name for name in named]
    for home in dict.fromkeys(f for start in starts for f in (start, *start.parents)):
        folders.append(home / "baselines")
        for name in _CONFIGURATIONS:
            try:
                text = read_regular(home / name, MOST_TEXT).decode("utf-8", "replace")
            except OSError as error:
                if not tells_of_file(error):
                    raise
            else:
                folders += [home / folder for folder in _named(text)]
    return list(dict.fromkeys(folder.resolve() for folder in folders if folder.is_dir()))


def _named(text: str) -> list[str]:
    return [(match[1] or match[2]).strip() for match in _SETTING.finditer(text)]


def case_of_file(path: Path, suite: str) -> CaseKey | str:
    """The case whose baseline a file is, or why it is none."""
    if path.is_symlink() or not path.is_file():
        return f"{kind_of(path)}, not a file"
    if path.suffix != SUFFIX:
        return "not a baseline"
    try:
        table = parse_toml(read_regular(path, MOST_TEXT))
    except (OSError, ValueError) as error:
        return f"cannot be read as a baseline: {error}"
    if not (isinstance(table.get("format"), int) and isinstance(table.get("case"), str)):
        return "not a baseline: it has no format and case"
    key = CaseKey.parse(table["case"])
    if key.suite != suite or path.stem != key.file_stem:
        return f"is called otherwise than the baseline of its case {table['case']!r} would be"
    return key


def kind_of(path: Path) -> str:
    """What lies at a path, for people."""
    if path.is_symlink():
        return "a symbolic link"
    return "a folder" if path.is_dir() else "a file" if path.is_file() else "something else"


def suite_baselines(folder: Path) -> Iterator[tuple[Path, Measurement]]:
    """All baselines and anchors in a suite's folder; none where there is none.

    Raises BaselineError for a file that cannot be used.
    """
    for place in (folder, folder / ANCHORS):
        for path in sorted(place.glob(f"*{SUFFIX}")):
            key = case_of_file(path, folder.name)
            if isinstance(key, str):
                raise BaselineError(f"{path}: {key}; {REMEDY}")
            baseline = read_baseline(path, key)
            if baseline is not None:
                yield path, baseline


def list_baselines(
    root: Path, keys: Mapping[str, set[CaseKey]]
) -> tuple[list[tuple[Path, CaseKey]], list[str]]:
    """Baselines and anchors of cases that are no more, with these; what is not touched, and why.

    keys: the cases by suite. Raises OSError where the folder of baselines cannot be listed.
    """
    unused: list[tuple[Path, CaseKey]] = []
    left: list[str] = []
    for folder in sorted(root.iterdir()):
        if folder.name not in keys:
            if folder.name in (JUDGE_CARDS, SERIES):  # of no suite
                continue
            if is_folder(folder) and any(folder.iterdir()):
                left.append(
                    f"{folder}: the results have no case of this suite; where it is gone, delete "
                    "its folder"
                )
        elif not is_folder(folder):
            left.append(f"{folder}: {kind_of(folder)}, not a folder")
        else:
            entries: list[Path] = []
            places = (baseline_path, anchor_path)
            known = {place(root, key) for key in keys[folder.name] for place in places}
            for path in sorted(folder.iterdir()):
                # Nothing behind a symbolic link.
                below = path.name == ANCHORS and is_folder(path)
                entries += sorted(path.iterdir()) if below else [path]
            for path in entries:
                if path in known:
                    continue
                key = case_of_file(path, folder.name)
                if isinstance(key, str):
                    left.append(f"{path}: {key}")
                else:
                    unused.append((path, key))
    return unused, left


def is_folder(path: Path) -> bool:
    """Whether a folder lies at a path, and no link to one."""
    return path.is_dir() and not path.is_symlink()
