"""A gate in a loop: when it runs, what stops the training, where a restarted one goes on."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import TrainingGateError, TrainingStoppedError
from pytest_cepbench.integrations import GateVerdict, Outcome, TrainingGate
from pytest_cepbench.integrations.gate_folder import Submission
from tests.integrations.conftest import ROOT, MakeGate
from tests.integrations.folder_model import save


def outcomes(gate: TrainingGate) -> dict[int | None, str]:
    """Step -> outcome of the verdicts so far."""
    return {verdict.step: str(verdict.outcome) for verdict in gate.verdicts}


def train(gate: TrainingGate, misses: list[float]) -> None:
    """A loop that saves in every step that is due.

    misses: share of objects that the model leaves out after each step.
    """
    with gate:
        for step, miss in enumerate(misses, start=1):
            if gate.step(step, lambda folder, miss=miss: save(folder, miss)):  # type: ignore[misc]
                break


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"when": "after"}, "unknown when 'after'"),
        ({"waiting": "none"}, "unknown waiting 'none'"),
        ({"on_error": "ignore"}, "unknown on_error 'ignore'"),
        ({"stop_on": "regression"}, "Did you mean 'regressed'"),
        ({"stop_on": ("never", "regressed")}, "cannot stand beside another"),
        ({"every": 0}, "at least 1"),
        ({"share_device": True, "when": "beside"}, "beside it, the training uses the device"),
    ],
)
def test_settings_that_do_not_exist_are_errors(
    make_gate: MakeGate, settings: dict[str, Any], message: str
) -> None:
    """In one line, before a step is trained."""
    with pytest.raises(TrainingGateError, match=message):
        TrainingGate(make_gate(), **settings)


def test_shared_device_needs_something_to_give_back(make_gate: MakeGate) -> None:
    """Without the model and the optimizer the memory would stay taken."""
    with pytest.raises(TrainingGateError, match="a device of the gate's own"):
        TrainingGate(make_gate(device="1"), share_device=True)
    with pytest.raises(TrainingGateError, match="name modules and optimizers"):
        TrainingGate(make_gate(), share_device=True).begin()


@pytest.mark.slow
def test_training_stops_between_steps(make_gate: MakeGate, tmp_path: Path) -> None:
    """The gate comes every two steps; the loop ends at the first one that regressed.

    Leaving the loop raises, so that no script goes on to publish what did not pass. The next
    process may not go on from there, but from the accepted checkpoint.
    """
    gate = TrainingGate(make_gate(), every=2)

    with pytest.raises(TrainingStoppedError, match="step-4: regressed, the training stops") as stop:
        train(gate, [0.9, 0.1, 0.1, 0.8, 0.1, 0.1])

    assert stop.value.code == 1
    assert outcomes(gate) == {2: "accepted", 4: "regressed"}
    assert gate.gate.accepted == tmp_path / "gate/checkpoints/step-2"
    with pytest.raises(TrainingStoppedError, match=r"stopped this training at step 4.*step-2"):
        TrainingGate(make_gate()).begin(4)
    assert not TrainingGate(make_gate(), stop_on="never").begin(5)
    assert not TrainingGate(make_gate()).begin(4)  # it went on, on purpose


@pytest.mark.slow
def test_training_that_is_faster_than_its_gate(
    make_gate: MakeGate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Beside the training one checkpoint is gated at a time, the newest of the others waits.

    The last verdict is waited for at the end, and a regression ends the training also there.
    """
    caplog.set_level(logging.INFO)
    gate = TrainingGate(make_gate(), every=1, when="beside")
    began = time.monotonic()

    with pytest.raises(TrainingStoppedError, match="step-5: regressed"):
        train(gate, [0.1, 0.2, 0.3, 0.4, 0.8])

    assert outcomes(gate) == {1: "accepted", 5: "regressed"}
    assert time.monotonic() - began >= gate.verdicts[0].seconds
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "gate: step 5" in caplog.text
    assert gate.gate.accepted == tmp_path / "gate/checkpoints/step-1"


@pytest.mark.slow
def test_what_cannot_be_measured(make_gate: MakeGate, caplog: pytest.LogCaptureFixture) -> None:
    """A broken checkpoint stops the training, or is a warning where that was asked for.

    Neither accepts it.
    """

    def broken(folder: Path) -> None:
        (folder / "weights.json").write_text("{")

    with pytest.raises(TrainingStoppedError) as stop, TrainingGate(make_gate()) as gate:
        assert gate.step(1, broken)
    assert stop.value.code != 0
    assert outcomes(gate) == {1: "failed"}

    with TrainingGate(make_gate(), on_error="warn") as gate:
        assert not gate.step(2, broken)
    assert "JSONDecodeError" in caplog.text
    assert set(outcomes(gate).values()) == {"failed"}
    assert gate.gate.accepted is None


KILLED = """
import os, signal, sys, time
from pathlib import Path
from tests.integrations.conftest import QUICK, ROOT, TEST
from tests.integrations.folder_model import SPEC, save
from pytest_cepbench.integrations import Gate, TrainingGate

folder = Path(sys.argv[1])
gate = Gate(folder / "gate", TEST, QUICK, model=SPEC, env={"PYTHONPATH": str(ROOT)})
training_gate = TrainingGate(gate, when="beside", waiting="all")
for step, miss in ((1, 0.1), (2, 0.05)):
    training_gate.submit(step, save(folder / f"checkpoint-{step}", miss))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_preempted_training_gates_what_it_was_killed_over(
    make_gate: MakeGate, tmp_path: Path
) -> None:
    """Checkpoints that were being gated, or waited, have their verdicts in the next process.

    Also where the training deleted its own meanwhile, and where the gate was killed between the
    verdict and its acceptance.
    """
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ended.returncode == -9
    for step in (1, 2):
        for path in (tmp_path / f"checkpoint-{step}").iterdir():
            path.unlink()
        (tmp_path / f"checkpoint-{step}").rmdir()

    with TrainingGate(make_gate()) as gate:
        assert not gate.begin(2)
    assert outcomes(gate) == {1: "accepted", 2: "accepted"}

    files = gate.gate.files
    baselines = {path: path.read_text() for path in files.baselines.rglob("*.toml")}
    state = files.load()
    assert state.accepted is not None
    submission = Submission("", "checkpoint-2", 2, folder=True, kept=True, accepting=True)
    files.change(running=submission)
    with TrainingGate(make_gate()) as again:
        again.begin(2)
    assert outcomes(again) == {2: "accepted"}
    assert {path: path.read_text() for path in files.baselines.rglob("*.toml")} == baselines


def test_checkpoint_that_is_gone_is_a_warning(
    make_gate: MakeGate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing can be measured of it, and the training has gone on: the log says so."""
    gate = TrainingGate(make_gate())
    gate.gate.files.change(running=Submission("runs/c-1", "c-1", 1, folder=True))

    assert not gate.begin(3)

    assert "runs/c-1 was to be gated and is gone" in caplog.text
    assert gate.gate.files.load().running is None


@pytest.mark.parametrize(
    ("stop_on", "on_error", "stopping"),
    [
        ("regressed", "stop", {"regressed", "failed", "inconclusive by order"}),
        ("inconclusive", "stop",
         {"regressed", "inconclusive", "inconclusive by order", "failed"}),
        (["regressed", "inconclusive"], "warn",
         {"regressed", "inconclusive", "inconclusive by order"}),
        ("never", "stop", {"failed"}),
        ("never", "warn", set()),
    ],
)  # fmt: skip
def test_outcomes_that_stop(
    make_gate: MakeGate, stop_on: str, on_error: Any, stopping: set[str]
) -> None:
    """Regressed and inconclusive by `stop_on`, failed by `on_error`; accepted never."""
    gate = TrainingGate(make_gate(), stop_on=stop_on, on_error=on_error)
    cases = {
        "accepted": (Outcome.ACCEPTED, 0),
        "inconclusive": (Outcome.INCONCLUSIVE, 0),
        "inconclusive by order": (Outcome.INCONCLUSIVE, 1),
        "regressed": (Outcome.REGRESSED, 1),
        "failed": (Outcome.FAILED, 4),
    }
    path = Path("checkpoint-1")

    stops = {
        name
        for name, (outcome, code) in cases.items()
        if gate._stops(GateVerdict(path, 1, outcome, code, (), None, None, path, "", 1.0))
    }

    assert stops == stopping
