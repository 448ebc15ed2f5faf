"""The floors of the package: which module imports which, where exceptions are, public names."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

import pytest_cepbench
from benchmarks.house import PACKAGE, circle_of, import_graph, imports_of
from pytest_cepbench import errors

FLOORS = [
    "artifacts",
    "store",
    "metrics",
    "datasets",
    "ratings",
    "models",
    "chains",
    "gate",
    "measures",
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

MUTUAL = {
    (
        "datasets.shapes",
        "datasets",
    ): "scenes are samples, and battles and questions of any data set may be of scenes",
    ("plugin", "plugin.terminal"): "hooks are above the controller, and what they show beside it",
    ("plugin", "plugin.workers"): "as above, of worker processes",
}
"""Imports of one folder from another that are left out where circles are looked for -> why the two
import each other. Every other pair has an order."""


@cache
def trees() -> Mapping[Path, ast.Module]:
    """All modules of the package, by their paths in it."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in paths}


imports = cache(imports_of)


def level_of(parts: Sequence[str]) -> int | None:
    """The level of a floor, 0 the lowest; None for the modules beside the floors."""
    return FLOORS.index(parts[0]) if parts and parts[0] in FLOORS else None


def test_imports_run_downward() -> None:
    """No module imports from a floor above its own."""
    upward = []
    for path, tree in trees().items():
        level = level_of(path.parts[:-1])
        for name in imports(tree):
            imported = (
                level_of(name.split(".")[1:]) if name.startswith("pytest_cepbench.") else None
            )
            if level is not None and imported is not None and imported > level:
                upward.append(f"{path} imports {name}")
    assert upward == []


@cache
def modules() -> Mapping[str, set[str]]:
    """The modules of the package that each of them imports, inside of functions too."""
    named = {}
    for path, tree in trees().items():
        name = ".".join((PACKAGE.name, *path.with_suffix("").parts))
        named[name.removesuffix(".__init__")] = imports(tree)
    return import_graph(named)


def test_no_modules_import_each_other() -> None:
    """Not in a circle of any length, not for types alone: each can be read after what it needs."""
    assert circle_of(modules()) == []


def folder_of(module: str) -> str:
    """The folder of a module below the package, with dots; empty for the package's own folder."""
    parts = module.split(".")[1:]
    is_folder = (PACKAGE.joinpath(*parts) / "__init__.py").exists()
    return ".".join(parts if is_folder else parts[:-1])


def test_no_folders_import_each_other() -> None:
    """But for the pairs that `MUTUAL` explains, each of which still is one."""
    graph: dict[str, set[str]] = {}
    for module, imported in modules().items():
        below = {folder_of(name) for name in imported} - {folder_of(module), ""}
        graph.setdefault(folder_of(module), set()).update(below)
    del graph[""]
    for upper, lower in MUTUAL:
        graph[upper].remove(lower)
    assert circle_of(graph) == []
    for upper, lower in MUTUAL:
        assert circle_of({**graph, upper: graph[upper] | {lower}}), f"{upper} and {lower}"


def test_torch_stays_in_models_and_integrations() -> None:
    """Torch and the libraries above it are imported on two floors alone, and inside functions.

    So importing any module of the package imports none of them. The exceptions are the modules that
    hold a library's callback, which only its users import.
    """
    misplaced = []
    for path, tree in trees().items():
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


def test_a_plain_pytest_run_gets_a_light_plugin() -> None:
    """What pytest loads in every project that has this package brings no library with it."""
    code = "import sys, pytest_cepbench.plugin; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=PACKAGE.parent, check=True, capture_output=True, text=True)
    loaded = set(ended.stdout.split())
    assert "pytest_cepbench.plugin" in loaded
    assert not loaded & (HEAVY | {"numpy", "PIL", "msgspec", "jinja2", "filelock", "sqlite3"})


def test_integrations_import_no_floor_but_their_own() -> None:
    """What runs inside a training loads nothing of the package that the gate's process needs."""
    imported = {
        ".".join(name.split(".")[1:2])
        for path, tree in trees().items()
        if path.parts[0] == "integrations"
        for name in imports(tree)
        if name.startswith("pytest_cepbench.")
    }
    assert imported == {"errors", "escapes", "files", "integrations"}


def test_only_the_plugin_needs_pytest() -> None:
    """What `gate_checkpoint` and the command line use works without a run of pytest."""
    users = {
        path.parts[0]
        for path, tree in trees().items()
        if "pytest" in {name.partition(".")[0] for name in imports(tree)}
    }
    assert users == {"plugin"}


def test_every_exception_is_defined_in_one_module_below_one_base() -> None:
    """A reader finds it in `errors.py`, and every handler can catch the base.

    Only an error of the file system and a warning are not below it, and say why.
    """
    elsewhere = [
        f"{path}: {node.name}"
        for path, tree in trees().items()
        if path.name != "errors.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith(("Error", "Exception")) for base in node.bases)
    ]
    assert elsewhere == []
    apart = {
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__ and not issubclass(kind, errors.CepError)
    }
    assert apart == {"UnfitFileError", "InconclusiveWarning"}


def test_every_public_name_is_there_and_documented() -> None:
    """Each name of `__all__` can be had, and says what it is; a misspelt one fails as elsewhere."""
    for name in pytest_cepbench.__all__:
        exported = getattr(pytest_cepbench, name)
        assert name in dir(pytest_cepbench)
        assert name == "__version__" or (exported.__doc__ or "").strip(), name
    with pytest.raises(AttributeError, match="no attribute 'Describe'"):
        _ = pytest_cepbench.Describe


def test_importing_the_package_imports_nothing_heavy() -> None:
    """`import pytest_cepbench` brings neither NumPy nor Pillow nor any floor of the house."""
    code = (
        "import sys; before = set(sys.modules); import pytest_cepbench; "
        "print(*(set(sys.modules) - before))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    new = set(ended.stdout.split())
    assert "pytest_cepbench" in new
    assert not {name for name in new if name.partition(".")[0] in {"numpy", "PIL", "torch"}}
    assert not {name for name in new if name.startswith("pytest_cepbench.")}
