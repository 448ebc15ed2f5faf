"""The floors of the package: which module may import which, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "pytest_cepbench"

FLOORS = [
    "artifacts",
    "store",
    "metrics",
    "datasets",
    "ratings",
    "models",
    "chains",
    "gate",
    "suites",
    "studies",
    "report",
    "construction",
    "evaluation",
    "plugin",
    "cli",
    "integrations",
]
"""From the ground up; a floor imports only from itself and from those before it."""

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
    "lightning",
    "pytorch_lightning",
}

CALLBACKS = {"transformers": {"transformers"}, "lightning": {"lightning", "pytorch_lightning"}}
"""Module of `integrations` that holds a library's callback -> what it imports at its top."""

TREES = {
    path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))
}


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported anywhere in a source file, at its top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def level_of(parts: Sequence[str]) -> int | None:
    """The level of a floor, 0 the lowest; None for the modules beside the floors."""
    return FLOORS.index(parts[0]) if parts and parts[0] in FLOORS else None


def test_imports_run_downward() -> None:
    """No module imports from a floor above its own."""
    upward = []
    for path, tree in TREES.items():
        level = level_of(path.parts[:-1])
        for name in imports(tree):
            imported = (
                level_of(name.split(".")[1:]) if name.startswith("pytest_cepbench.") else None
            )
            if level is not None and imported is not None and imported > level:
                upward.append(f"{path} imports {name}")
    assert upward == []


def test_torch_stays_in_models_and_integrations() -> None:
    """Torch and the libraries above it are imported on two floors alone, and inside functions.

    So importing any module of the package imports none of them. The exceptions are the modules that
    hold a library's callback, which only its users import.
    """
    misplaced = []
    for path, tree in TREES.items():
        at_top = [
            node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.Try)
        ]
        outside = [tree] if path.parts[0] not in {"models", "integrations"} else at_top
        own = CALLBACKS.get(path.stem, set()) if path.parts[0] == "integrations" else set()
        misplaced += [
            f"{path} imports {name}"
            for node in outside
            for name in imports(node)
            if name.partition(".")[0] in HEAVY - own
        ]
    assert misplaced == []


def test_integrations_import_no_floor_but_their_own() -> None:
    """What runs inside a training loads nothing of the package that the gate's process needs."""
    imported = {
        ".".join(name.split(".")[1:2])
        for path, tree in TREES.items()
        if path.parts[0] == "integrations"
        for name in imports(tree)
        if name.startswith("pytest_cepbench.")
    }
    assert imported == {"errors", "escapes", "files", "integrations"}


def test_only_the_plugin_needs_pytest() -> None:
    """What `gate_checkpoint` and the command line use works without a run of pytest."""
    users = {path.parts[0] for path, tree in TREES.items() if "pytest" in set(imports(tree))}
    assert users == {"plugin"}
