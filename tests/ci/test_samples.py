"""Samples for other services: their own commands, run; what they keep is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.docs.markdown import EXAMPLES

SAMPLES = EXAMPLES / "ci"

GOOD, WORSE = "python:my_models:describer", "python:my_models:describer?color_blind=true"


def _gitlab() -> dict[str, Any]:
    yaml: Any = import_module("yaml")  # ships no type information
    loaded: dict[str, Any] = yaml.safe_load((SAMPLES / "gitlab-ci.yml").read_text())
    return loaded


def _jenkins_script() -> str:
    text = (SAMPLES / "Jenkinsfile").read_text()
    (script,) = re.findall(r"stage\('Gate'\).*?sh '''(.*?)'''", text, re.DOTALL)
    return str(script)


def _run(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH_", "PYTEST_"))}
    paths = (str(Path(sys.executable).parent), clean["PATH"])
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env={**clean, "PATH": os.pathsep.join(paths), **environment},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_commands_of_the_samples_gate(tmp_path: Path) -> None:
    """A worse checkpoint fails in GitLab and a good one passes in Jenkins; the kept files exist."""
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    accepted = _run(f"pytest my-suite --model={GOOD} --snapshot-update", tmp_path)
    assert accepted.returncode == 0, accepted.stdout

    job = _gitlab()["gate"]
    (script,) = job["script"]
    failed = _run(script, tmp_path, CHECKPOINT=WORSE)
    assert failed.returncode == 1, failed.stdout
    kept = job["artifacts"]
    files = [*kept["paths"], *kept["reports"].values(), *job["cache"]["paths"]]
    assert [name for name in files if not (tmp_path / name).exists()] == []

    # The agent's virtual environment is the one that runs the tests.
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "pytest").symlink_to(Path(sys.executable).parent / "pytest")
    held = _run(_jenkins_script(), tmp_path, CHECKPOINT=GOOD)
    assert held.returncode == 0, held.stdout
    text = (SAMPLES / "Jenkinsfile").read_text()
    kept_by_jenkins = re.findall(r"(?:testResults|artifacts): '(.*?)'", text)
    assert kept_by_jenkins == ["report/junit.xml", "report/"]
    assert all((tmp_path / name).exists() for name in kept_by_jenkins)


def test_no_parameter_runs_as_a_command() -> None:
    """Both samples leave the checkpoint's spec to the shell, in quotes."""
    (script,) = _gitlab()["gate"]["script"]
    for text in (script, _jenkins_script()):
        assert '"--model=$CHECKPOINT"' in text
    # Groovy would put its own value of a parameter into a text in double quotes.
    jenkins = (SAMPLES / "Jenkinsfile").read_text()
    assert re.findall(r"sh \"|params\.|\$\{", jenkins) == []


def test_what_a_failed_gate_leaves_is_kept() -> None:
    """The store and the reports, in both."""
    job = _gitlab()["gate"]
    assert (job["cache"]["when"], job["artifacts"]["when"]) == ("always", "always")
    post = (SAMPLES / "Jenkinsfile").read_text().partition("post {")[2]
    assert post.strip().startswith("always {")
