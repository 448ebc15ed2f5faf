"""The suites that come with the package: benchmarks that need no checkpoint of this repository.

They are kept once, in the folder `suites/` of the repository. A wheel has those of them that stand
in `pyproject.toml` beside this module, in the folder `shipped`. Either folder is on the path of the
package `pytest_cepbench.suites`, so that `pytest --pyargs pytest_cepbench.suites.folder` finds them
by the same name in a clone and where the wheel is installed.
"""

from __future__ import annotations

from pathlib import Path

from pytest_cepbench.suites.definition import FILE_NAME, Suite, load_suite

PACKAGE = "pytest_cepbench.suites"
"""What `--pyargs` calls the folder."""

_HERE = Path(__file__).parent

FOLDER = _HERE / "shipped" if (_HERE / "shipped").is_dir() else _HERE.parents[1] / "suites"
"""Where they lie."""


def list_suites() -> list[Suite]:
    """All suites that are shipped, those of one folder together, the folder's own first.

    Raises SuiteError where a file was changed and cannot be read.
    """
    folders = sorted(path.parent for path in FOLDER.glob(f"*/{FILE_NAME}"))
    return [load_suite(file) for folder in folders for file in _files(folder)]


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.toml"), key=lambda path: (path.name != FILE_NAME, path.name))


def package_of(suite: Suite) -> str:
    """What `pytest --pyargs` calls the folder of a shipped suite."""
    return f"{PACKAGE}.{suite.folder.name}"


def find_shipped(name: str) -> Path | None:
    """The folder that `--pyargs` would find under a name; None for any other text."""
    package, _, folder = name.rpartition(".")
    path = FOLDER / folder
    return path if package == PACKAGE and (path / FILE_NAME).is_file() else None
