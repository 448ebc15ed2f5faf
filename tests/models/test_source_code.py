"""The digest of a user's code: the files of factory and class, nothing that they import."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cepbench.models.python_model import make_model, source_of
from tests.models.binding import bind_text

FILES = {
    "own/__init__.py": "from own.factory import make\n",
    "own/factory.py": (
        "from functools import partial\n"
        "from own.models import Model\n\n"
        "def make():\n    return Model()\n\n"
        "made = partial(Model)\n"
    ),
    "own/models.py": (
        "from . import colors\n\n"
        "class Model:\n"
        "    fingerprint = 'own/1'\n\n"
        "    def describe(self, images, prompt, seeds): ...\n"
    ),
    "own/colors.py": "RED = 1\n",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package, imported."""
    before = set(sys.modules)
    write(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own.models")
    yield tmp_path
    make_model.cache_clear()
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "own":
            del sys.modules[name]


def write(folder: Path) -> None:
    """The package as files."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("spec", "covered"),
    [
        ("own:make", ["own/__init__.py", "own/factory.py", "own/models.py"]),
        ("own.factory:make", ["own/factory.py", "own/models.py"]),
        ("own.factory:made", ["own/factory.py", "own/models.py"]),
        ("own.models:Model", ["own/models.py"]),
    ],
)
def test_a_model_is_covered_by_factory_and_class(root: Path, spec: str, covered: list[str]) -> None:
    """In whichever files these are defined; a package that passes the factory on counts too."""

    def code() -> object:
        return bind_text(f"python:{spec}", "describer").provenance["code"]

    before = code()
    assert before == f"{spec} ({source_of(*(module_of(name) for name in covered))})"
    changed = []
    for name, text in FILES.items():
        (root / name).write_text(text + "# another comment\n")
        changed += [name] * (code() != before)
        (root / name).write_text(text)
    assert changed == covered


def module_of(name: str) -> str:
    """The module that a file is."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_the_digest_does_not_depend_on_the_place(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another checkout of the same code is the same code."""
    here = source_of("own.models")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write(elsewhere)
    monkeypatch.setattr(sys.modules["own.models"], "__file__", str(elsewhere / "own" / "models.py"))
    assert source_of("own.models") == here
