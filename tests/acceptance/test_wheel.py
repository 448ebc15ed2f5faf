"""The wheel, built and installed into a fresh virtual environment: two commands to a verdict."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.test_init import MODEL, ROLES, make_photos

ROOT = Path(__file__).parents[2]

PYTEST = ("python", "-m", "pytest")
"""Its script is not in the environment, as it is of the libraries that are lent."""

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, and the libraries of this one."""

    folder: Path

    def run(self, command: str, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """A command of the environment; nothing of the clone is on its path."""
        kept = {name: os.environ[name] for name in ("HOME", "PATH", "LANG") if name in os.environ}
        return subprocess.run(
            [self.folder / "bin" / command, *args],
            cwd=cwd,
            env=kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "100"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel of this clone, installed without its dependencies, which are lent to it."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    _run(build, ROOT)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "venv"
    _run([sys.executable, "-m", "venv", "--without-pip", str(environment)], folder)
    python = environment / "bin" / "python"
    install = ["install", "--no-deps", "--no-index", str(wheel)]
    _run([sys.executable, "-m", "pip", "--python", str(python), *install], folder)
    # A plain line adds the folder alone: .pth files in it, such as a clone's, are not read.
    (site_packages,) = environment.glob("lib/python*/site-packages")
    (site_packages / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return Installed(environment)


def _run(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with photographs and models."""
    make_photos(tmp_path, {"cats": 14, "dogs": 14})
    return tmp_path


def test_two_commands_to_a_verdict(installed: Installed, project: Path) -> None:
    """The suite for the folder is written and its baselines accepted; a worse model fails."""
    init = installed.run(
        "cepbench", "init", "--images=photos", MODEL, *ROLES, "--accept", cwd=project
    )
    assert init.returncode == 0, init.stderr + init.stdout
    assert "accepted: 4 baselines below baselines/photos" in init.stdout
    held = installed.run(*PYTEST, "suites/photos", MODEL, cwd=project)
    assert held.returncode == 0, held.stdout
    worse = installed.run(*PYTEST, "suites/photos", f"{MODEL}?loss=1.5", cwd=project)
    assert worse.returncode == 1, worse.stdout
    assert re.search("^REGRESSED +photos overall GC@3 ", worse.stdout, re.MULTILINE)
    doctor = installed.run("cepbench", "doctor", "suites/photos", cwd=project)
    accepted = "model: python:user_models:noisy, which was accepted for "
    assert doctor.stderr.startswith(accepted), doctor.stderr
    assert "doctor of photos" in doctor.stdout


def test_shipped_suites(installed: Installed, project: Path) -> None:
    """They are listed and found by name; their baselines and store are the project's."""
    listed = installed.run("cepbench", "suites", cwd=project).stdout
    suites = {line.split()[0] for line in listed.splitlines() if line}
    assert {"folder", "geneval", "mgg", "instrument", "sdp", "opening-criteria"} <= suites
    assert not {"shapes", "arena"} & suites
    suite = ("--pyargs", "pytest_cepbench.suites.folder", "--cep-data=folder=photos")
    run = (*PYTEST, *suite, MODEL, *ROLES)
    accepted = installed.run(*run, "--snapshot-update", cwd=project)
    assert accepted.returncode == 0, accepted.stdout
    assert list((project / "baselines" / "folder").glob("overall-gc-*.toml"))
    assert len(list((project / "baselines" / "folder").iterdir())) == 4
    assert (project / ".cepbench" / "store").is_dir()
    again = installed.run(*run, cwd=project)
    assert again.returncode == 0, again.stdout
