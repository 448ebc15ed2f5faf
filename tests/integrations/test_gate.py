"""The gate of a training as a process: settings, what stays, ends, and what is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import TrainingGateError
from pytest_cepbench.integrations import Gate, Outcome, TrainingGate, gate_process
from pytest_cepbench.integrations.gate_process import GateProcess
from tests.integrations.conftest import ROOT, TEST, MakeGate
from tests.integrations.folder_model import save


def test_settings_that_cannot_be_meant_are_errors(make_gate: MakeGate) -> None:
    """Of a gate and of its loop, before a step is trained, in one line; a mistyped suite too."""
    for make, settings, message in (
        (make_gate, {"options": "--cep-samples=1"}, "give a list"),
        (make_gate, {"options": ["--model=other"]}, "set by the gate itself"),
        (make_gate, {"options": ["--cep-samples", 8]}, "8 is no string"),
        (make_gate, {"env": {"CEPBENCH_SAMPLES": 8}}, "8 is no string"),
        (make_gate, {"device": 0}, "0 is no string"),
        (make_gate, {"options": ["--cep-plan=1"]}, "--cep-plan is set by the gate itself"),
        (make_gate, {"model": "checkpoint"}, "does not contain {checkpoint}"),
        (make_gate, {"timeout": 0}, "above 0"),
        (Gate, {"folder": "gate", "suites": "suites/shape"}, "there is no suites/shape"),
        (Gate, {"folder": "gate", "suites": []}, "suites is empty"),
        (TrainingGate, {"gate": make_gate(), "when": "after"}, "unknown when 'after'"),
        (TrainingGate, {"gate": make_gate(), "on_error": "ignore"}, "unknown on_error 'ignore'"),
        (TrainingGate, {"gate": make_gate(), "stop_on": "regression"}, "Did you mean 'regressed'"),
        (TrainingGate, {"gate": make_gate(), "stop_on": ["regressed"]}, "unknown stop_on"),
        (TrainingGate, {"gate": make_gate(), "every": 0}, "at least 1"),
    ):
        with pytest.raises(TrainingGateError, match=message):
            make(**settings)
    gate = Gate("gate", [TEST, f"{ROOT}/suites"], timeout=0.5, env={"HF_HOME": ROOT})
    assert gate.accepted is None
    assert TrainingGate(gate, every=1, stop_on="never").every == 1


def test_accepted_outlives_the_training_s_own(make_gate: MakeGate, tmp_path: Path) -> None:
    """Real runs of pytest on three steps of a training that saves each into one folder: a small
    loss passes and a large one does not, by the numbers of their reports.

    The weights of the first step are overwritten while they are gated. Of the checkpoints the last
    accepted one stays, as measured, though the training has deleted its folder. What stopped the
    training can be looked into until the next gate. The first baseline stays as the anchor, to
    which small losses are held too.
    """
    gate, latest = make_gate(), tmp_path / "latest"
    orders: list[dict[str, Any]] = [{"miss": 0.0, "overwrite": str(latest)}]
    orders += [{"miss": 0.02}, {"miss": 0.6}]
    verdicts = [gate(save(latest, **order)) for order in orders]
    shutil.rmtree(latest)

    seen = [(str(verdict.outcome), bool(verdict), verdict.code) for verdict in verdicts]
    assert seen == [("accepted", True, 0), ("accepted", True, 0), ("regressed", False, 1)]
    first, second, last = verdicts
    (case,) = last.cases
    assert (case.name, case.verdict) == ("instrument/overall/gc", "regressed")
    assert (case.label, case.higher_is_better) == ("GC@3", True)
    assert (case.baseline, case.value) == (second.value, last.value)
    assert first.value is not None
    assert last.value is not None
    assert first.value > last.value + 0.1
    assert last.report.exists()
    assert "1 of 1 gating case regressed; worst instrument/overall GC@3" in last.summary

    assert last.accepted == gate.accepted
    assert gate.accepted is not None
    copies = gate.accepted.parent.iterdir()
    misses = {path: json.loads((path / "weights.json").read_text())["miss"] for path in copies}
    assert misses[gate.accepted] == 0.02
    assert sorted(misses.values()) == [0.02, 0.6]
    (anchor,) = (gate.files.baselines / "instrument/anchors").glob("overall-gc-*.toml")
    assert tomllib.loads(anchor.read_text())["value"] == pytest.approx(first.value, abs=1e-9)
    assert (gate.files.root / "accepted").read_text() == str(gate.accepted)
    assert f"last accepted checkpoint: {gate.accepted}" in last.summary


def test_process_that_ignores_interrupts_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted first, so that it ends its own; one that has ended is left alone."""
    monkeypatch.setattr(gate_process, "_GRACE", 0.2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    stubborn = f"trap '' INT; echo > {pipe}; read x < {pipe}"
    process = GateProcess(["sh", "-c", stubborn], tmp_path / "log", {})
    pipe.read_text()  # the trap is set
    process.end()
    assert process.poll() == -signal.SIGKILL
    process.end()

    polite = f"trap 'exit 7' INT; echo > {pipe}; read x < {pipe}"
    process = GateProcess(["sh", "-c", polite], tmp_path / "log", {})
    pipe.read_text()
    monkeypatch.setattr(gate_process, "_GRACE", 60)
    process.end()
    assert process.poll() == 7


@pytest.mark.slow
def test_ini_file_that_accepts_everything_accepts_nothing(
    make_gate: MakeGate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--snapshot-update for each run of pytest is an error, and no baseline changes."""
    gate = make_gate()
    gate(save(tmp_path / "checkpoint-1", 0.1), 1)
    baselines = {path: path.read_text() for path in gate.files.baselines.rglob("*.toml")}
    monkeypatch.setenv("PYTEST_ADDOPTS", "--snapshot-update")

    verdict = gate(save(tmp_path / "checkpoint-2", 0.3), 2)

    assert (verdict.outcome, verdict.stops) == (Outcome.FAILED, True)
    assert "remove --snapshot-update" in verdict.summary
    assert {path: path.read_text() for path in gate.files.baselines.rglob("*.toml")} == baselines


TRAINING = """
import sys
from tests.integrations.conftest import QUICK, ROOT, TEST
from tests.integrations.folder_model import SPEC
from pytest_cepbench.integrations import Gate

folder, checkpoint = sys.argv[1:]
Gate(folder, TEST, QUICK, model=SPEC, env={"PYTHONPATH": str(ROOT)})(checkpoint, 1)
"""


@pytest.mark.slow
def test_killed_training_takes_its_gate_along(make_gate: MakeGate, tmp_path: Path) -> None:
    """After SIGKILL in mid-gate nothing runs on; meanwhile nothing else may use the folder.

    The checkpoint is noted as one that has no verdict.
    """
    gate, folder = make_gate(), tmp_path / "gate"
    checkpoint = save(tmp_path / "checkpoint-1", 0.1, seconds=600)
    command = [sys.executable, "-c", TRAINING, str(folder), str(checkpoint)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    deadline = time.monotonic() + 60
    while not (folder / "store").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(TrainingGateError, match="another process gates into"):
        gate(checkpoint, 1)

    process.kill()
    process.wait()

    def runs() -> bool:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has ended
                if f"--cep-baselines={folder}".encode() in path.read_bytes():
                    return True
        return False

    deadline = time.monotonic() + 30
    while runs():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running = gate.files.load().running
    assert running is not None
    assert running.name == "checkpoint-1"
    assert gate.files.exists(running)
    assert gate.accepted is None
