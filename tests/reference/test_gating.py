"""The gate of a training: what it accepts, lets pass and stops, on models whose loss is known.

And the workflow's own commands.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from gating import reference_gate

from pytest_cepbench.integrations import Outcome
from tests.docs.markdown import workflow
from tests.reference.conftest import REFERENCE, ROOT

TEST = f"{ROOT}/suites/instrument/test_instrument.py::test_drift[overall-gc]"


def model(miss: float) -> Path:
    """A describer that misses this share of all objects, in the place of a checkpoint."""
    return Path(f"shapes:?miss={miss}")


@pytest.mark.slow
def test_gate_of_the_reference_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A better checkpoint than the first is accepted, and what would have passed against the first
    then stops. One that its samples cannot tell apart stops nothing and moves no baseline, also for
    a gate made anew.
    """
    gate = reference_gate(tmp_path / "gate", TEST)
    first, better, worse = model(0.4), model(0.05), model(0.3)
    verdicts = [gate(checkpoint) for checkpoint in (first, better, worse)]
    assert [verdict.outcome for verdict in verdicts] == ["accepted", "accepted", "regressed"]
    assert [verdict.stops for verdict in verdicts] == [False, False, True]
    assert [verdict.accepted for verdict in verdicts] == [first, better, better]
    (anchor,) = (tmp_path / "gate/baselines/instrument/anchors").glob("overall-gc-*.toml")
    assert tomllib.loads(anchor.read_text())["model"]["spec"] == str(first)
    assert f"{worse}: regressed, the training stops here" in verdicts[-1].summary

    monkeypatch.setenv("CEPBENCH_SAMPLES", "1")
    folder = tmp_path / "other"
    assert reference_gate(folder, TEST)(model(0.1)).outcome is Outcome.ACCEPTED
    before = {path: path.read_text() for path in (folder / "baselines").rglob("*.toml")}
    verdict = reference_gate(folder, TEST)(model(0.12))  # as a training that is started again
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert (verdict.stops, verdict.accepted) == (False, model(0.1))
    assert {path: path.read_text() for path in (folder / "baselines").rglob("*.toml")} == before


WORKFLOW = workflow(REFERENCE / "training-gate.yml")


def test_no_input_of_the_workflow_runs_as_a_command() -> None:
    """Inputs reach commands by the environment only; the job that runs models may not write."""
    jobs = WORKFLOW["jobs"]
    named = {key.upper() for key in WORKFLOW["on"]["workflow_dispatch"]["inputs"]}

    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "permissions" not in jobs["train"]
    assert all("${{" not in step.get("run", "") for job in jobs.values() for step in job["steps"])
    assert named == {*jobs["train"]["env"], *jobs["propose"]["env"]} - {"GH_TOKEN"}


def test_workflow_keeps_store_and_reports_also_after_a_failure() -> None:
    """What a failed gate is looked into with is not lost, and the newest store is restored."""
    there = {s["name"]: s for s in WORKFLOW["jobs"]["train"]["steps"] if "name" in s}
    restore = there["Restore what was computed before"]["with"]
    kept = [step for name, step in there.items() if name.startswith(("Save", "Keep", "Write"))]

    assert len(kept) == 3
    assert all(step["if"] == "${{ !cancelled() }}" for step in kept)
    assert kept[1]["with"]["path"] == restore["path"]
    assert kept[1]["with"]["key"].startswith(restore["restore-keys"])
