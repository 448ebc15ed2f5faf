"""CONTRIBUTING.md, docs/architecture.md and lowest versions: what they show and name is so."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
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


# -- the lowest versions: in pyproject.toml, in the docs, in tox, and left alone by pip ------------

EXTRAS = ("models", "xdist", "openai", "ray", "audio")


def _lowest() -> dict[str, tuple[str, str]]:
    """(extra, version) of each package that has a lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {"": project["dependencies"]}
    asked |= {extra: project["optional-dependencies"][extra] for extra in EXTRAS}
    return {
        package: (extra, version)
        for extra, requirements in asked.items()
        for package, version in (line.split(">=") for line in requirements)
    }


def test_the_page_and_tox_have_what_pip_is_asked_for() -> None:
    """No requirement is stricter than the page says, nor has an upper bound; what is promised is
    what `tox -e oldest` runs with.
    """
    rows = re.findall(
        r"^\| (?:`(\w+)`)? \| ([\w-]+) \| ([\d.]+) \|",
        (DOCS / "reference.md").read_text(encoding="utf-8").partition("## Versions")[2],
        re.MULTILINE,
    )
    assert {package: (extra, version) for extra, package, version in rows} == _lowest()
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    pinned = dict(line.split("==") for line in tox["testenv:oldest"]["deps"].split())
    assert pinned == {package: version for package, (_, version) in _lowest().items()}


@pytest.mark.slow
@pytest.mark.parametrize("env", ["oldest", "torch211"])
def test_installing_replaces_nothing(env: str, tmp_path: Path) -> None:
    """Where everything suffices, pip would install this package alone."""
    python = ROOT / ".tox" / env / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no environment to install into: tox -e {env} makes it")
    report = tmp_path / "report.json"
    subprocess.run(
        [
            *(str(python), "-m", "pip", "install", "--dry-run", "--quiet", "--no-build-isolation"),
            *("--report", str(report), f"{ROOT}[{','.join(EXTRAS)}]"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    installed = json.loads(report.read_text(encoding="utf-8"))["install"]
    assert [each["metadata"]["name"] for each in installed] == ["pytest-cepbench"]
