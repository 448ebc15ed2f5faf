"""The lowest versions: in pyproject.toml, in the docs, in tox, and left alone by pip."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.docs.markdown import DOCS, ROOT

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


def test_the_table_has_what_pip_is_asked_for() -> None:
    """No requirement is stricter than the page says, nor has an upper bound."""
    rows = re.findall(
        r"^\| (?:`(\w+)`)? \| ([\w-]+) \| ([\d.]+) \|",
        (DOCS / "reference.md").read_text(encoding="utf-8").partition("## Versions")[2],
        re.MULTILINE,
    )
    assert {package: (extra, version) for extra, package, version in rows} == _lowest()


def test_tox_installs_the_lowest_versions_exactly() -> None:
    """What is promised is what `tox -e oldest` runs with."""
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
