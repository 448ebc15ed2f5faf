"""CONTRIBUTING.md and docs/architecture.md: code that they show and files that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.markdown import DOCS, ROOT, blocks
from tests.test_floors import FLOORS

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
ARCHITECTURE = DOCS / "architecture.md"

PACKAGE = ROOT / "pytest_cepbench"


def _shown_lines() -> list[tuple[str, str]]:
    """Each line that a diff of the page adds, with its file."""
    added: list[tuple[str, str]] = []
    for block in blocks(CONTRIBUTING):
        path = ""
        for line in block.text.splitlines() if block.kind == "diff" else ():
            if line.startswith("+++ b/"):
                path = line.removeprefix("+++ b/")
            else:
                added.append((path, line.removeprefix("+")))
    return added


def test_diffs_show_the_code_as_it_is() -> None:
    """Every added line stands in its file."""
    shown = _shown_lines()

    assert len(shown) > 30
    for path, line in shown:
        assert line in (ROOT / path).read_text(encoding="utf-8").splitlines(), f"{path}: {line}"


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
