"""docs/threat-model.md: every test that it names exists, so no defence is claimed without one."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.markdown import DOCS, ROOT

PAGE = DOCS / "threat-model.md"

_TEST = re.compile(r"`(?P<path>tests/[\w/]+\.py)(?:::(?P<name>\w+))?`")
_ROW = re.compile(r"^\|(?!\s*-)(?P<cells>.+)\|$", re.MULTILINE)


def _named() -> list[tuple[str, str | None]]:
    matches = _TEST.finditer(PAGE.read_text(encoding="utf-8"))
    return sorted({(match["path"], match["name"]) for match in matches}, key=str)


@pytest.mark.parametrize(("path", "name"), _named())
def test_every_test_that_the_page_names_exists(path: str, name: str | None) -> None:
    """The file is there, and a test of that name in it."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))

    if name is not None:
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_defence_names_its_test() -> None:
    """No row of a table of defences stands without a test."""
    defended = PAGE.read_text(encoding="utf-8").split("## What it does not defend against")[0]
    rows = [match["cells"] for match in _ROW.finditer(defended)]
    rows = [cells for cells in rows if not cells.endswith("| test ")]

    assert rows
    assert [cells for cells in rows if not _TEST.search(cells)] == []
