"""CONTRIBUTING.md and docs/architecture.md: code that they show and files that they name exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import DOCS, ROOT, blocks
from tests.test_floors import FLOORS

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
ARCHITECTURE = DOCS / "architecture.md"

PACKAGE = ROOT / "pytest_cepbench"


def test_diffs_apply_and_their_tests_pass(tmp_path: Path) -> None:
    """A metric, an adapter and a data set: a file, a line of a table and a test each."""
    shutil.copytree(PACKAGE, tmp_path / "pytest_cepbench")
    diffs = [block.text for block in blocks(CONTRIBUTING) if block.kind == "diff"]
    for diff in diffs:
        subprocess.run(
            ["git", "apply", "-C1", "-"], input=diff, text=True, cwd=tmp_path, check=True
        )

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "tests", "-q", "--basetemp=base"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "PYTEST_ADDOPTS": ""},
        check=False,
        capture_output=True,
        text=True,
    )

    assert len(diffs) == 3
    assert "4 passed" in ended.stdout, ended.stdout


@pytest.mark.parametrize("page", [CONTRIBUTING, ARCHITECTURE], ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    """Every path of a module or folder in code marks exists, from the root or the package."""
    prose = page.read_text(encoding="utf-8")
    for block in blocks(page):
        prose = prose.replace(block.text, "")
    named = re.findall(r"`([\w./]+(?:\.py|/))`", prose)
    roots = (
        ROOT,
        PACKAGE,
        PACKAGE / "models",
        PACKAGE / "datasets",
        PACKAGE / "suites" / "measures",
    )

    assert named
    assert [path for path in named if not any((root / path).exists() for root in roots)] == []


def test_floors_are_drawn_as_they_are() -> None:
    """The drawing has every floor, from the top down."""
    (drawing,) = [block.text for block in blocks(ARCHITECTURE) if block.kind == "text"]

    assert [line.split()[0] for line in drawing.splitlines()] == FLOORS[::-1]
