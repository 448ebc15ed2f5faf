"""Checkpoints that were really trained: a good one is accepted and holds, an early one regresses.

The checkpoints are those of docs/gating-real-checkpoints.md. They do not ship with the project.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.models

REPOSITORY = Path(__file__).parents[2]

LAB = REPOSITORY.parent / "shared" / "lab" / "checkpoints"

DRAW = "num_inference_steps=8&guidance_scale=1&height=64&width=64&batch_size=16"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the shapes suite, small: 32 scenes instead of 192."""
    if not LAB.is_dir():
        pytest.skip("the trained checkpoints of the study are not beside this repository")
    pytest.importorskip("diffusers", reason="real checkpoints need the [models] extra")
    made = tmp_path_factory.mktemp("trained")
    suite = (REPOSITORY / "suites" / "shapes" / "suite.toml").read_text()
    assert "samples_per_category = 24" in suite
    (made / "suite.toml").write_text(suite.replace("category = 24", "category = 4"))
    (made / "test_small.py").write_text(
        "def test_drift(cep_case, cep_gate):\n    cep_gate(cep_case)\n"
    )
    (made / "pytest.ini").write_text("[pytest]\n")
    return made


def gate(folder: Path, step: int, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Gate the describer of a training step; (exit code, JSON report)."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", f"--model={LAB / f'describer-step{step}'}"),
            f"--generator={LAB / 'generator-step2000'}?{DRAW}",
            f"--encoder={LAB / 'clip'}",
            *arguments,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    report = folder / ".cepbench" / "report.json"
    assert report.exists(), ended.stdout + ended.stderr
    return ended.returncode, json.loads(report.read_text())


def test_a_training_run_is_gated(folder: Path) -> None:
    """Step 1600 is accepted and holds without one model call; step 400 comes out regressed."""
    code, _ = gate(folder, 1600, "--snapshot-update")
    assert code == 0

    code, again = gate(folder, 1600)
    assert code == 0
    assert {case["verdict"] for case in again["cases"]} == {"held"}
    assert sum(case["effort"]["inputs"] + case["effort"]["loads"] for case in again["cases"]) == 0

    code, early = gate(folder, 400)
    verdicts = {f"{case['part']}/{case['metric']}": case for case in early["cases"]}
    assert code == 1
    overall = verdicts["overall/gc"]
    assert overall["verdict"] == "regressed"
    assert overall["difference"] < -0.1
    assert verdicts["overall/failures"]["verdict"] == "held"
    assert overall["chains"][0]["links"][1]["text"].startswith(
        ("one shape", "two", "three", "four")
    )
