"""The gate in the reference training: the workflow's own commands."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from tests.reference.conftest import REFERENCE

pytest.importorskip("torch", reason="the training needs the [models] extra")
pytest.importorskip("diffusers", reason="the training needs the [models] extra")

pytestmark = pytest.mark.models


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
