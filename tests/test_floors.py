"""The floors of the package: which module imports which, exceptions, public names; its size."""

from __future__ import annotations

import ast
import inspect
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

import pytest_cepbench
from benchmarks.house import (
    BEGIN,
    END,
    PACKAGE,
    PAGE,
    WAYS,
    circle_of,
    count_tables,
    import_graph,
    imports_of,
    read_module,
    run_way,
)
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


# -- the size: what the page shows is counted, and a run loads few modules -------------------------


ROOT = Path(__file__).parents[1]

MOST_MODULES = 178
"""Modules of the package that a run of one case may load; lowered whenever it loads fewer."""

PLUGIN = """\
import sys

def pytest_unconfigure():
    loaded = [name for name in sys.modules if name.partition(".")[0] == "pytest_cepbench"]
    print("\\n".join(sorted(loaded)), file=open("modules.txt", "w"))
"""


def test_the_page_has_the_tables() -> None:
    """The same rows and columns; numbers are written anew now and then (benchmarks.house --write).

    So a room that came or went is seen, and a commit does not have to change a page of numbers.
    """
    shown = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].splitlines()
    one_of_each = {path.relative_to(PACKAGE).parts[0]: path for path in PACKAGE.glob("*/*.py")}
    counted = count_tables([*one_of_each.values(), PACKAGE / "errors.py"])
    for start in ("| room |", "| | number |", "| way |"):
        assert sum(line.startswith(start) for line in shown) == 1
    first = [line.split("|")[1] for line in shown if line.startswith("|")]
    assert first == [
        *(line.split("|")[1] for line in counted if line.startswith("|")),
        " way ", "---", *(f" {title} " for title, _ in WAYS.values()),
    ]  # fmt: skip


def test_what_is_counted_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code without comments and docstrings, functions in classes too, imports inside functions and
    for types.
    """
    monkeypatch.setattr("benchmarks.house.PACKAGE", tmp_path / "pytest_cepbench")
    path = tmp_path / "pytest_cepbench" / "room" / "a.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        '"""Text."""\n\nif TYPE_CHECKING:\n    from os import B\n\n'
        'class A:\n    def f(self):\n        """Of\n        f."""\n'
        "        # why\n        from pytest_cepbench.room import b\n\n        return b\n"
    )
    module = read_module(path)
    assert (module.name, module.room) == ("pytest_cepbench.room.a", "room")
    assert (module.lines, module.comments, module.functions) == (13, 1, (3,))
    assert module.classes == ("A",)
    assert module.imports == {"os.B", "pytest_cepbench.room.b"}
    circle = {
        module.name: module.imports,
        "pytest_cepbench.room.b": {"pytest_cepbench.c.C"},
        "pytest_cepbench.c": {"pytest_cepbench.room.a"},
    }
    assert sorted(circle_of(import_graph(circle))) == sorted(circle)
    assert circle_of(import_graph(circle | {"pytest_cepbench.c": {"os"}})) == []


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_watched(way: str) -> None:
    """It ends, and crosses some files and types, all of the package."""
    pytest.importorskip("httpx2" if way == "server" else "transformers")
    crossed = run_way(way)
    assert len(crossed["files"]) > 5
    assert len(crossed["types"]) > 5
    assert all((ROOT / file).is_file() for file in crossed["files"])


def test_a_run_of_one_case_loads_few_modules(tmp_path: Path) -> None:
    """Of the package: what other metrics, models and reports need is not imported."""
    shutil.copytree(ROOT / "suites" / "instrument", tmp_path / "instrument")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "counting.py").write_text(PLUGIN)
    options = ("--model=shapes:", "--cep-role=generator", "--snapshot-update", "-p", "counting")
    command = [sys.executable, "-m", "pytest", "instrument", "-k", "crowded-gc", *options]
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""}
    ended = subprocess.run(
        [*command, "-p", "no:xdist"], cwd=tmp_path, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    loaded = (tmp_path / "modules.txt").read_text().splitlines()
    assert len(loaded) <= MOST_MODULES, "\n".join(loaded)
