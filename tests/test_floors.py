"""The floors of the house (design: who may import whom), read off the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pytest_cepbench"

FLOORS = [
    "artifacts",
    "store",
    "metrics",
    "datasets",
    "models",
    "chains",
    "gate",
    "suites",
    "studies",
    "report",
    "evaluation",
    "plugin",
    "cli",
]
"""From the ground up; a floor imports only what lies below it."""

HEAVY = {
    "torch",
    "transformers",
    "diffusers",
    "open_clip",
    "timm",
    "accelerate",
    "torchvision",
    "sentence_transformers",
    "cleanfid",
}

MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported anywhere in a source file, at its top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def floor_of(path: Path) -> str | None:
    """The floor a source file lies on; None for the package's own two modules."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else None


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_downward(path: Path) -> None:
    """No module imports from a floor above its own, and torch's family stays in models/."""
    floor = floor_of(path)
    names = list(imports(ast.parse(path.read_text())))
    above = {
        name
        for name in names
        if floor
        and name.startswith("pytest_cepbench.")
        and name.split(".")[1] in FLOORS
        and FLOORS.index(name.split(".")[1]) > FLOORS.index(floor)
    }
    heavy = {name for name in names if name.partition(".")[0] in HEAVY and floor != "models"}

    assert not above
    assert not heavy


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_torch_is_imported_inside_functions_only(path: Path) -> None:
    """Importing any module of the package imports neither torch nor its family."""
    tree = ast.parse(path.read_text())
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]

    assert not {name for node in top for name in imports(node) if name.partition(".")[0] in HEAVY}
