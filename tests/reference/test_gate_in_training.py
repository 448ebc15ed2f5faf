"""The gate in the reference training: the workflow's own commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.reference.conftest import REFERENCE

pytest.importorskip("torch", reason="the training needs the [models] extra")
pytest.importorskip("diffusers", reason="the training needs the [models] extra")

pytestmark = pytest.mark.models

ROOT = REFERENCE.parent

SHORT = {
    "STEPS": "600", "SAVE": "16,18", "BATCH": "16", "SPOIL_AT": "17",
    "CEPBENCH_SAMPLES": "1", "CEPBENCH_ATTRIBUTE": "0",
    "PYTEST_ADDOPTS": "-k 'overall-gc and not (gc1 or fid)'",
}  # fmt: skip
"""A training that its gate ends at step 18 of 600; 8 scenes and one number of the whole suite."""


def workflow() -> dict[str, Any]:
    """The jobs, and what starts them."""
    # YAML 1.1 reads a bare `on` as true; GitHub does not.
    text = (REFERENCE / "training-gate.yml").read_text(encoding="utf-8")
    yaml: Any = import_module("yaml")  # ships no type information
    loaded: dict[str, Any] = yaml.safe_load(text.replace("\non:\n", "\n'on':\n"))
    return loaded


def steps(job: str) -> dict[str, dict[str, Any]]:
    """The steps of a job that have a name."""
    return {step["name"]: step for step in workflow()["jobs"][job]["steps"] if "name" in step}


def bash(script: str, where: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a script as the workflow's runner does, which ends it at the first error."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CEPBENCH_", "PYTEST_"))}
    path = f"{where}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=where,
        env={**clean, "PATH": path, **extra},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A clone with what the workflow needs, and a place to push to."""
    made = tmp_path / "clone"
    no_caches = shutil.ignore_patterns("__pycache__", "checkpoints")
    shutil.copytree(ROOT / "suites" / "shapes", made / "suites" / "shapes", ignore=no_caches)
    shutil.copytree(REFERENCE, made / "reference", ignore=no_caches)
    (made / "reference" / "checkpoints").symlink_to(REFERENCE / "checkpoints")
    (made / "pytest.ini").write_text("[pytest]\n")
    ended = bash("git init --bare --quiet ../upstream && git init --quiet && "
                 "git remote add origin ../upstream", made)  # fmt: skip
    assert ended.returncode == 0, ended.stdout
    return made


def prune(source: Path, folder: Path, share: float) -> Path:
    """A copy of a describer whose linear layers have lost so much of their smallest weights."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder)
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if tensor.dim() == 2 and "embed" not in name and "lm_head" not in name:
            size = tensor.abs().float()
            tensor[size <= torch.quantile(size, share)] = 0
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_no_input_of_the_workflow_runs_as_a_command() -> None:
    """Inputs reach commands by the environment only; the job that runs models may not write."""
    jobs = workflow()["jobs"]
    named = {key.upper() for key in workflow()["on"]["workflow_dispatch"]["inputs"]}

    assert workflow()["permissions"] == {"contents": "read"}
    assert "permissions" not in jobs["train"]
    assert all("${{" not in step.get("run", "") for job in jobs.values() for step in job["steps"])
    assert named == {*jobs["train"]["env"], *jobs["propose"]["env"]} - {"GH_TOKEN"}


def test_workflow_keeps_store_and_reports_also_after_a_failure() -> None:
    """What a failed gate is looked into with is not lost, and the newest store is restored."""
    there = steps("train")
    restore = there["Restore what was computed before"]["with"]
    kept = [step for name, step in there.items() if name.startswith(("Save", "Keep", "Write"))]

    assert len(kept) == 3
    assert all(step["if"] == "${{ !cancelled() }}" for step in kept)
    assert kept[1]["with"]["path"] == restore["path"]
    assert kept[1]["with"]["key"].startswith(restore["restore-keys"])


@pytest.mark.slow
def test_workflow_trains_accepts_stops_and_proposes(repository: Path, tmp_path: Path) -> None:
    """A pruned describer is accepted, then what training makes of it; spoiled training is stopped.

    What was accepted last is gated in full, from the store, and proposed as a baseline.
    """
    train, propose = steps("train"), steps("propose")
    start = prune(REFERENCE / "checkpoints/describer-step2000", tmp_path / "pruned", 0.8)

    training = bash(
        train["Train, and gate each checkpoint"]["run"], repository, START=f"{start}", **SHORT
    )

    assert training.returncode == 1, training.stdout
    run = repository / "run"
    lines = [json.loads(line) for line in (run / "describer.jsonl").read_text().splitlines()]
    gated = {line["step"]: line for line in lines if line["event"] == "gate"}
    outcomes = {step: line["outcome"] for step, line in gated.items()}
    assert outcomes == {0: "accepted", 16: "accepted", 18: "regressed"}
    assert gated[16]["value"] > gated[0]["value"] + 0.1
    better, spoiled = run / "describer-step16", run / "gate/reports/describer-step18.html"
    assert spoiled.exists()
    for line in (
        "1 of 1 gating case regressed; worst shapes/overall GC@3",
        "run/describer-step18: regressed, the training stops here",
        "last accepted checkpoint: run/describer-step16",
        "report: run/gate/reports/describer-step18.html",
    ):
        assert line in training.stdout

    full = bash(train["Gate the last accepted checkpoint in full"]["run"], repository, **SHORT)
    assert full.returncode == 1, full.stdout  # nothing is accepted for the whole suite yet
    assert "0 model loads, 0 model inputs" in full.stdout
    summary = train["Write the summary of the gates in the training, also when one failed"]["run"]
    bash(summary, repository, GITHUB_STEP_SUMMARY=f"{tmp_path / 'summary.md'}")
    heads = [
        line.split(":")[0]
        for line in (tmp_path / "summary.md").read_text().splitlines()
        if "# " in line
    ]
    assert heads == [
        "# describer-step16", "## May ship", "# describer-step18", "## Do not ship",
        "# pruned", "## Accepted",
    ]  # fmt: skip
    for path in str(
        train["Keep reports, baselines and the training's log"]["with"]["path"]
    ).split():
        assert (repository / path).exists(), path

    gh = repository / "gh"  # GitHub's own command, which needs GitHub
    gh.write_text('#!/bin/bash\necho "gh $*"\n')
    gh.chmod(0o755)
    reason = "healed; see $(run 12)"
    for name in ("Accept what was measured", "Propose it"):
        ended = bash(propose[name]["run"], repository, REASON=reason, GITHUB_RUN_ID="7")
        assert ended.returncode == 0, ended.stdout
    assert "gh pr create --fill" in ended.stdout
    pushed = bash("git show --format=%s --name-only baselines-7", tmp_path / "upstream").stdout
    assert pushed.splitlines()[0] == reason
    assert "baselines/shapes/overall-gc-" in pushed
    (accepted,) = (repository / "baselines/shapes").glob("overall-gc-*.toml")
    assert f"{better.relative_to(repository)}" in accepted.read_text()
