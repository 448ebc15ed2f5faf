"""The digest of a user's code: the module and what it imports from beside it, nothing else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cepbench.models.python_model import source_of

FILES = {
    "own/__init__.py": "",
    "own/models.py": (
        "import numpy\nfrom . import colors\nfrom own.deep.paint import draw\nimport beside\n"
    ),
    "own/colors.py": "RED = 1\n",
    "own/other.py": "unused = True\n",
    "own/deep/__init__.py": "",
    "own/deep/paint.py": "from ..late import x\n\ndef draw():\n    import own.lazy\n",
    "own/late.py": "x = 1\n",
    "own/lazy.py": "",
    "beside.py": "",
    "stranger.py": "",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package and modules beside it, imported."""
    before = set(sys.modules)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own.models")
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("own", "beside"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("own/models.py", True),
        ("own/__init__.py", True),
        ("own/colors.py", True),
        ("own/deep/__init__.py", True),
        ("own/deep/paint.py", True),
        ("own/late.py", True),
        ("own/lazy.py", True),
        ("beside.py", True),
        ("own/other.py", False),
        ("stranger.py", False),
    ],
)
def test_the_digest_follows_what_is_imported(root: Path, name: str, counts: bool) -> None:
    """Also what is imported late, relatively, or through a package."""
    before = source_of("own.models")
    (root / name).write_text(FILES[name] + "# another comment\n")
    assert (source_of("own.models") != before) == counts


def test_file_and_digest_are_named(root: Path) -> None:
    """For messages that send a user to the file."""
    file, digest = source_of("own.models").split()
    assert file == "own/models.py"
    assert len(digest) == 16
    assert source_of("own.models", "own.models") == source_of("own.models")


def test_the_digest_does_not_depend_on_the_place(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another checkout of the same code is the same code."""
    here = source_of("own.models")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name, text in FILES.items():
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / name).write_text(text)
    monkeypatch.setattr(sys.modules["own.models"], "__file__", str(elsewhere / "own" / "models.py"))
    assert source_of("own.models") == here


def test_an_installed_package_is_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries beside it have versions of their own, and millions of lines."""
    site = tmp_path / "lib" / "site-packages"
    (site / "library").mkdir(parents=True)
    (site / "library" / "__init__.py").write_text("")
    (site / "library" / "models.py").write_text("import huge, library\n")
    (site / "huge.py").write_text("")
    monkeypatch.syspath_prepend(site)
    importlib.import_module("library.models")
    before = source_of("library.models")
    (site / "huge.py").write_text("x = 1\n")
    assert source_of("library.models") == before
    (site / "library" / "__init__.py").write_text("x = 1\n")
    assert source_of("library.models") != before


@pytest.mark.parametrize("module", ["sys", "no_such_module", "__main__"])
def test_what_has_no_source_has_no_digest(module: str) -> None:
    """Built-in modules, and those that are not imported."""
    if module == "__main__":
        assert isinstance(source_of(module), str)
    else:
        assert source_of(module) == ""


def test_a_file_that_is_no_python_is_hashed_all_the_same(root: Path) -> None:
    """It may be half-written; that it is another one is what counts."""
    (root / "own" / "colors.py").write_text("def (\n")
    assert source_of("own.models").startswith("own/models.py ")
