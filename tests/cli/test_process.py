"""The command as a process of its own: what it imports, how it is interrupted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.studies.toy import TOY, write_suite

MODULE = """\
import signal

from pytest_cepbench.datasets.shapes import Degradation
from pytest_cepbench.models.rule_based import ShapesDescriber


class Describer(ShapesDescriber):
    fingerprint = "interrupted/1"
    batch_size = 4
    asked = 0

    def describe(self, images, prompt, seeds):
        Describer.asked += 1
        if Describer.asked == {when}:
            signal.raise_signal(signal.SIGINT)
        return super().describe(images, prompt, seeds)


def describer():
    return Describer(Degradation(miss=0.2))
"""
"""A describer during whose batch number `when` the user presses Ctrl-C."""


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """The command in a folder."""
    command = [sys.executable, "-m", "pytest_cepbench.cli", *argv]
    environment = os.environ | {"COLUMNS": "100", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True
    )


def test_help_imports_nothing_heavy() -> None:
    """Help is instant: it imports no NumPy, pytest or torch, only the package's command line."""
    code = (
        "import sys; from pytest_cepbench.cli import main; "
        "code = main(['study', '--help']); "
        "print(*sys.modules); sys.exit(code)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *text, modules = ended.stdout.splitlines()
    loaded = modules.split()
    assert any("--seeds" in line for line in text)
    assert not {"numpy", "torch", "pytest", "msgspec", "PIL"} & set(loaded)
    assert {name for name in loaded if name.startswith("pytest_cepbench.")} == {
        "pytest_cepbench._version",
        "pytest_cepbench.cli",
        "pytest_cepbench.cli.arguments",
        "pytest_cepbench.cli.commands",
        "pytest_cepbench.cli.model_commands",
        "pytest_cepbench.cli.people_commands",
        "pytest_cepbench.cli.result_commands",
        "pytest_cepbench.errors",
        "pytest_cepbench.escapes",
    }


@pytest.mark.slow
def test_interrupted_it_keeps_what_was_computed(tmp_path: Path) -> None:
    """Ctrl-C gives one line and exit code 130; the same command again goes on from there."""
    write_suite(tmp_path, TOY)
    module = tmp_path / "mine.py"
    argv = (
        "study",
        "--vary=seeds",
        ".",
        "--model=python:mine:describer",
        "--seeds=0,1",
        "--metrics=gc",
    )

    module.write_text(MODULE.format(when=3))
    ended = run(tmp_path, *argv)
    assert ended.returncode == 130
    assert ended.stdout == ""
    assert ended.stderr.splitlines()[-1].startswith(
        "cepbench: interrupted; what was computed is in"
    )
    assert "Traceback" not in ended.stderr

    module.write_text(MODULE.format(when=-1))
    again, fresh = run(tmp_path, *argv), run(tmp_path, *argv, "--store=fresh")
    assert again.returncode == fresh.returncode == 0
    inputs = [_inputs(process.stdout) for process in (again, fresh)]
    # The first category was whole: two chains of four steps, three images of each encoded.
    assert inputs[1] - inputs[0] == 14


def _inputs(printed: str) -> int:
    line = next(line for line in printed.splitlines() if " model inputs (" in line)
    return int(line.split(" model inputs")[0].split()[-1])


def test_an_unknown_option_is_a_mistake(tmp_path: Path) -> None:
    """Refusals of argparse itself have exit code 2."""
    ended = run(tmp_path, "study", "--vary=seeds", ".", "--model=shapes:", "--sedes=1")
    assert ended.returncode == 2
    assert "unrecognized arguments: --sedes=1" in ended.stderr
