"""A release: what is built, and whether version, changelog, tag and workflow agree."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench._version import __version__
from tests.docs.markdown import ROOT


def test_the_changelog_has_the_version_or_what_is_unreleased() -> None:
    """Its first entry is the version's, or collects what the next one brings."""
    first = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert first is not None
    assert first[1] in ("Unreleased", __version__)


def test_a_tag_publishes_what_was_checked() -> None:
    """The workflow runs .ci/run, builds after it, and publishes without a stored token."""
    yaml: Any = import_module("yaml")  # ships no type information
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))["jobs"]

    assert any(".ci/run" in step.get("run", "") for step in jobs["check"]["steps"])
    assert jobs["build"]["needs"] == "check"
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert not any("password" in step.get("with", {}) for step in jobs["publish"]["steps"])


@pytest.mark.slow
def test_archives_have_what_they_need_and_nothing_else(tmp_path: Path) -> None:
    """The wheel: the package with its pages and shipped suites. The sdist: what git tracks."""
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    tracked = set(
        subprocess.run(
            ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.splitlines()
    )
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    shipped = "pytest_cepbench/suites/shipped/"
    sources = {name.replace(shipped, "suites/") if shipped in name else name for name in names}

    assert wheel.name == f"pytest_cepbench-{__version__}-py3-none-any.whl"
    assert all(name.startswith("pytest_cepbench/") for name in names)
    assert sources <= tracked
    assert {name for name in tracked if name.startswith("pytest_cepbench/")} <= names
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert held - {"PKG-INFO"} <= tracked  # checkpoints of 47 MB are in the repository alone
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= held
