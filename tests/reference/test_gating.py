"""The gate of a training: what it accepts, lets pass and stops, on models whose loss is known.

And the workflow's own commands.
"""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from gating import reference_gate

from pytest_cepbench.integrations import Outcome
from tests.reference.conftest import REFERENCE, ROOT

TEST = f"{ROOT}/suites/instrument/test_instrument.py::test_drift[overall-gc]"


def model(miss: float) -> Path:
    """A describer that misses this share of all objects, in the place of a checkpoint."""
    return Path(f"shapes:?miss={miss}")


@pytest.mark.slow
def test_each_checkpoint_is_held_to_the_last_accepted_one(tmp_path: Path) -> None:
    """The first is accepted, a better one too; what would have passed against the first then stops.

    The first baseline stays as the anchor.
    """
    gate = reference_gate(tmp_path / "gate", TEST)
    first, better, worse = model(0.4), model(0.05), model(0.3)

    verdicts = [gate(checkpoint) for checkpoint in (first, better, worse)]

    assert [verdict.outcome for verdict in verdicts] == ["accepted", "accepted", "regressed"]
    assert [verdict.stops for verdict in verdicts] == [False, False, True]
    assert [verdict.accepted for verdict in verdicts] == [first, better, better]
    (anchor,) = (tmp_path / "gate/baselines/instrument/anchors").glob("overall-gc-*.toml")
    assert tomllib.loads(anchor.read_text())["model"]["spec"] == str(first)
    last = verdicts[-1]
    assert last.code == 1
    assert last.report.exists()
    for line in (
        "1 of 1 gating case regressed; worst instrument/overall GC@3",
        f"{worse}: regressed, the training stops here",
        f"last accepted checkpoint: {better}",
        f"report: {last.report}",
    ):
        assert line in last.summary


@pytest.mark.slow
def test_what_the_samples_do_not_tell_goes_on_and_is_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inconclusive checkpoint stops nothing and moves no baseline, also for a gate made anew."""
    monkeypatch.setenv("CEPBENCH_SAMPLES", "1")
    first, alike = model(0.1), model(0.12)
    assert reference_gate(tmp_path, TEST)(first).outcome is Outcome.ACCEPTED
    before = {path: path.read_text() for path in (tmp_path / "baselines").rglob("*.toml")}

    verdict = reference_gate(tmp_path, TEST)(alike)  # as a training that is started again

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert (verdict.stops, verdict.accepted) == (False, first)
    assert {path: path.read_text() for path in (tmp_path / "baselines").rglob("*.toml")} == before


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
