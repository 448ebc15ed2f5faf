"""The gate of a training as a process: settings, what stays, ends, and what is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import TrainingGateError
from pytest_cepbench.integrations import Gate, Outcome
from pytest_cepbench.integrations.gate_process import inherited_environment
from tests.integrations.conftest import QUICK, ROOT, TEST, MakeGate
from tests.integrations.folder_model import SPEC, save


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until a file is there, at most a minute, while a process runs."""
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children(marker: str) -> list[int]:
    """Processes whose command line has a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if marker.encode() in line and path.parent.name != str(os.getpid()):
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"options": "--cep-samples=1"}, "give a list"),
        ({"options": ["--model=other"]}, "set by the gate itself"),
        ({"options": ["--snapshot-update"]}, "set by the gate itself"),
        ({"options": ["--cep-plan"]}, "set by the gate itself"),
        ({"model": "checkpoint"}, "does not contain {checkpoint}"),
        ({"timeout": 0}, "above 0"),
    ],
)
def test_settings_that_cannot_be_meant_are_errors(
    make_gate: MakeGate, settings: dict[str, Any], message: str
) -> None:
    """Before a step is trained, in one line."""
    with pytest.raises(TrainingGateError, match=message):
        make_gate(**settings)


def test_suites_must_be_there(tmp_path: Path) -> None:
    """A mistyped suite is found when the gate is made, not after the first thousand steps."""
    with pytest.raises(TrainingGateError, match="there is no suites/shape"):
        Gate(tmp_path, "suites/shape")
    with pytest.raises(TrainingGateError, match="suites is empty"):
        Gate(tmp_path, [])


def test_gate_is_no_rank_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a launcher tells a rank would have the gate wait for the others."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "1")
    for name in ("ACCELERATE_USE_FSDP", "PL_GLOBAL_SEED", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("RANKING", "kept")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "page")

    left = {name for name in inherited_environment() if "RANK" in name or "WORLD" in name}

    assert left == {"RANKING"}
    assert "GITHUB_STEP_SUMMARY" not in inherited_environment()
    assert {"ACCELERATE_USE_FSDP", "PL_GLOBAL_SEED", "MASTER_ADDR"}.isdisjoint(
        inherited_environment()
    )


@pytest.mark.slow
def test_accepted_and_best_outlive_the_training_s_own(make_gate: MakeGate, tmp_path: Path) -> None:
    """Of three checkpoints that the training deletes, the best and the last accepted one stay.

    A small loss is accepted and a large one is not; the headline decides which is the best.
    """
    gate = make_gate(timeout=300)
    verdicts = []
    for step, miss in ((1, 0.0), (2, 0.02), (3, 0.6)):
        checkpoint = save(tmp_path / f"checkpoint-{step}", miss)
        verdicts.append(gate(checkpoint, step))
        shutil.rmtree(checkpoint)

    assert [verdict.outcome for verdict in verdicts] == ["accepted", "accepted", "regressed"]
    last = verdicts[-1]
    assert last.stops
    assert last.step == 3
    assert last.code == 1
    assert last.cases[0].name == "instrument/overall/gc"
    assert last.cases[0].verdict == "regressed"
    assert last.report.exists()
    assert "regressed: instrument, overall, GC@3" in last.summary
    kept = tmp_path / "gate" / "checkpoints"
    assert (gate.accepted, gate.best) == (kept / "checkpoint-2", kept / "checkpoint-1")
    assert (last.accepted, last.best) == (gate.accepted, gate.best)
    # What stopped the training can be looked into until the next gate.
    assert {path.name for path in kept.iterdir()} == {
        "checkpoint-1", "checkpoint-2", "checkpoint-3",
    }  # fmt: skip
    assert json.loads((kept / "checkpoint-1" / "weights.json").read_text())["miss"] == 0.0


@pytest.mark.slow
def test_gates_of_a_series_share_its_error(make_gate: MakeGate, tmp_path: Path) -> None:
    """Each gate has the next number, with less of alpha; one that is repeated keeps its own."""
    options = ("--cep-tolerance=0.05", "-p", "no:xdist")
    gate = make_gate(options=options, series="run-1")
    outcomes = [
        gate(save(tmp_path / f"checkpoint-{step}", miss), step).outcome
        for step, miss in ((1, 0.1), (2, 0.11), (3, 0.9), (3, 0.9))
    ]

    assert outcomes == ["accepted", "accepted", "regressed", "regressed"]
    record = gate.files.baselines / "series" / "run-1.jsonl"
    lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    entered = [line for line in lines if "look" in line and not line.get("verdict")]
    assert [line["look"] for line in entered] == [1, 2, 3]
    spent = {line["look"]: line["spent"] for line in lines if line.get("spent")}
    assert spent[3] < spent[2] < 0.05 / 20


@pytest.mark.slow
def test_ini_file_that_accepts_everything_accepts_nothing(
    make_gate: MakeGate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--snapshot-update for each run of pytest is an error, and no baseline changes."""
    gate = make_gate()
    gate(save(tmp_path / "checkpoint-1", 0.1), 1)
    baselines = {path: path.read_text() for path in gate.files.baselines.rglob("*.toml")}
    monkeypatch.setenv("PYTEST_ADDOPTS", "--snapshot-update")

    verdict = gate(save(tmp_path / "checkpoint-2", 0.9), 2)

    assert (verdict.outcome, verdict.stops) == (Outcome.FAILED, True)
    assert "remove --snapshot-update" in verdict.summary
    assert {path: path.read_text() for path in gate.files.baselines.rglob("*.toml")} == baselines


@pytest.mark.slow
def test_gate_that_hangs_is_ended(make_gate: MakeGate, tmp_path: Path) -> None:
    """After its time it counts as failed, nothing of it runs on, and it is no pass."""
    gate = make_gate(timeout=0.2)

    verdict = gate(save(tmp_path / "checkpoint-1", 0.1, seconds=600), 1)

    assert (verdict.outcome, verdict.accepted) == (Outcome.FAILED, None)
    assert verdict.code != 0
    assert "longer than its 0.2 s" in verdict.output
    assert children(f"{tmp_path}/gate") == []


TRAINING = """
import sys
from tests.integrations.conftest import QUICK, ROOT, TEST
from tests.integrations.folder_model import SPEC
from pytest_cepbench.integrations import Gate

folder, checkpoint, step = sys.argv[1:]
gate = Gate(folder, TEST, QUICK, model=SPEC, env={"PYTHONPATH": str(ROOT)})
print(gate(checkpoint, int(step)).outcome)
"""


def training(folder: Path, checkpoint: Path) -> subprocess.Popen[bytes]:
    """A process that gates one checkpoint."""
    return subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(folder), str(checkpoint), "1"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.mark.slow
def test_killed_training_takes_its_gate_along(tmp_path: Path) -> None:
    """After SIGKILL in mid-gate nothing runs on; meanwhile nothing else may use the folder.

    The checkpoint is noted as one that has no verdict.
    """
    folder = tmp_path / "gate"
    checkpoint = save(tmp_path / "checkpoint-1", 0.1, seconds=600)
    process = training(folder, checkpoint)
    wait_for(folder / "store", process)
    gate = Gate(folder, TEST, QUICK, model=SPEC)
    with pytest.raises(TrainingGateError, match="another process gates into"):
        gate(checkpoint, 1)

    process.kill()
    process.communicate()

    deadline = time.monotonic() + 30
    while children(f"--cep-baselines={folder}"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running = gate.files.load().running
    assert running is not None
    assert (running.name, running.kept) == ("checkpoint-1", True)
    assert gate.accepted is None


@pytest.mark.slow
def test_interrupted_training_ends_its_gate(tmp_path: Path) -> None:
    """Ctrl-C in mid-gate ends both, in the order in which a shell would."""
    folder = tmp_path / "gate"
    process = training(folder, save(tmp_path / "checkpoint-1", 0.1, seconds=600))
    wait_for(folder / "store", process)

    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)

    assert process.returncode != 0
    assert b"KeyboardInterrupt" in output
    assert children(f"--cep-baselines={folder}") == []
