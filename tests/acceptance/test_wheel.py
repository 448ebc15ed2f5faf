"""The wheel, built and installed into a fresh virtual environment: two commands to a verdict."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
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
    """A virtual environment with the wheel and the libraries of this one, and a user's project."""

    environment: Path
    project: Path

    @classmethod
    def create(cls, root: Path) -> Installed:
        """The wheel of this clone, installed without its dependencies, which are lent to it."""
        environment = root / "venv"
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(root)]
        subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = root.glob("*.whl")
        venv.create(environment, symlinks=True)
        python = environment / "bin" / "python"
        install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
        subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True)
        # A plain line adds the folder alone: .pth files in it, such as a clone's, are not read.
        (site_packages,) = environment.glob("lib/python*/site-packages")
        (site_packages / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        (root / "project").mkdir()
        return cls(environment, root / "project")

    def run(self, command: str, *args: str) -> subprocess.CompletedProcess[str]:
        """A command of the environment; nothing of the clone is on its path."""
        kept = {name: os.environ[name] for name in ("HOME", "PATH", "LANG") if name in os.environ}
        return subprocess.run(
            [self.environment / "bin" / command, *args],
            cwd=self.project,
            env=kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "100"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


def test_two_commands_to_a_verdict(tmp_path: Path) -> None:
    """The suite for the folder is written and its baselines accepted; a worse model fails. Shipped
    suites are listed and found by name; their baselines and store are the project's.
    """
    pytest.importorskip("hatchling")
    installed = Installed.create(tmp_path)
    make_photos(installed.project, {"cats": 14, "dogs": 14})
    init = installed.run("cepbench", "init", "--images=photos", MODEL, *ROLES, "--accept")
    assert init.returncode == 0, init.stderr + init.stdout
    assert "accepted: 4 baselines below baselines/photos" in init.stdout
    held = installed.run(*PYTEST, "suites/photos", MODEL)
    assert held.returncode == 0, held.stdout
    worse = installed.run(*PYTEST, "suites/photos", f"{MODEL}?loss=1.5")
    assert worse.returncode == 1, worse.stdout
    assert re.search("^REGRESSED +photos overall GC@3 ", worse.stdout, re.MULTILINE)
    doctor = installed.run("cepbench", "doctor", "suites/photos")
    subject = "model: python:user_models:noisy, which was accepted for "
    assert doctor.stderr.startswith(subject), doctor.stderr
    assert "doctor of photos" in doctor.stdout

    listed = installed.run("cepbench", "suites").stdout
    suites = {line.split()[0] for line in listed.splitlines() if line}
    assert {"folder", "geneval", "mgg", "instrument", "sdp", "opening-criteria"} <= suites
    assert not {"shapes", "arena"} & suites
    suite = ("--pyargs", "pytest_cepbench.suites.folder", "--cep-data=folder=photos")
    run = (*PYTEST, *suite, MODEL, *ROLES)
    assert installed.run(*run).returncode == 1  # it has no baselines
    accepted = installed.run(*run, "--snapshot-update")
    assert accepted.returncode == 0, accepted.stdout
    baselines = installed.project / "baselines" / "folder"
    assert list(baselines.glob("overall-gc-*.toml"))
    assert len(list(baselines.iterdir())) == 4
    assert (installed.project / ".cepbench" / "store").is_dir()
    again = installed.run(*run)
    assert again.returncode == 0, again.stdout
