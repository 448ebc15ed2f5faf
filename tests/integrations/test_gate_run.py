"""The gating of one checkpoint after another, by a process whose rule is known and by pytest.

What stays accepted, what the verdicts name, and what a kill at any instant leaves.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import TrainingGateError
from pytest_cepbench.integrations import Gate, Outcome, TrainingGate, gate_process
from pytest_cepbench.integrations.gate import GateRun
from pytest_cepbench.integrations.gate_folder import _read_files
from pytest_cepbench.integrations.gate_process import GateProcess
from tests.integrations.conftest import ROOT, TEST, MakeGate, interpreter
from tests.integrations.folder_model import save
from tests.optional import known


def miss_of(path: Path | None) -> float:
    """What a checkpoint misses."""
    assert path is not None
    miss: float = json.loads((path / "weights.json").read_text())["miss"]
    return miss


def baseline(gate: Gate) -> float:
    """The value that the next checkpoint is compared with."""
    value: float = json.loads((gate.files.baselines / "gc.toml").read_text())
    return value


def test_each_checkpoint_is_held_to_the_last_accepted_one(
    rule_gate: MakeGate, tmp_path: Path
) -> None:
    """The outcomes of seven checkpoints, and what stays accepted and compared with.

    All have one name, as a training saves that knows a single folder: none takes the place of one
    that was accepted. A verdict is true where the training may go on.
    """
    gate = rule_gate()
    latest = tmp_path / "latest"
    seen = []
    for miss in (0.3, 0.1, 0.13, 0.2, 0.9, 0.12, 0.9):
        verdict = gate(save(latest, miss))
        accepted = miss_of(verdict.accepted)
        assert verdict.accepted == gate.accepted
        assert (tmp_path / "gate/accepted").read_text() == str(gate.accepted)
        assert baseline(gate) == pytest.approx(1 - accepted)
        assert gate.files.load().running is None
        assert (verdict.code != 0) == (verdict.outcome is Outcome.REGRESSED)
        assert verdict.value == pytest.approx(1 - miss)
        seen.append((str(verdict.outcome), bool(verdict), accepted))

    assert seen == [
        ("accepted", True, 0.3),
        ("accepted", True, 0.1),
        ("accepted", True, 0.13),
        ("inconclusive", True, 0.13),
        ("regressed", False, 0.13),
        ("accepted", True, 0.12),
        ("regressed", False, 0.12),
    ]
    copies = gate.files.kept("").iterdir()
    assert sorted(miss_of(path) for path in copies) == [0.12, 0.9]


def test_verdict_says_what_was_done(rule_gate: MakeGate, tmp_path: Path) -> None:
    """Every field of it; the gate's process has the command line and the variables it should."""
    checkpoint = save(tmp_path / "checkpoint-7", 0.1)
    verdict = rule_gate(series="run-1", options=["--cep-samples=8"])(checkpoint, 7)

    assert (verdict.checkpoint, verdict.step, verdict.code) == (checkpoint, 7, 0)
    assert verdict.report == tmp_path / "gate/reports/checkpoint-7.html"
    assert verdict.report.exists()
    assert 0 < verdict.seconds < 600
    assert [case.name for case in verdict.cases] == ["instrument/overall/gc"]
    arguments = verdict.output.splitlines()
    assert arguments[:3] == ["-p", "pytest_cepbench.integrations.gate_process", TEST]
    for argument in (
        f"--model={tmp_path}/gate/checkpoints/checkpoint-7-{str(verdict.accepted)[-12:]}",
        f"--cep-report={tmp_path}/gate/reports/checkpoint-7.json",
        "--cep-series=run-1",
        "--cep-samples=8",
        f"--cep-baselines={tmp_path}/gate/baselines",
        "--snapshot-update",
        "--cep-accept-insensitive",
        f"CEPBENCH_STORE={tmp_path}/gate/store",
    ):
        assert argument in arguments

    again = rule_gate()(checkpoint, 8).output.splitlines()
    assert f"--cep-baselines={tmp_path}/gate/.baselines" in again
    assert not {"--snapshot-update", "--cep-series=run-1"} & set(again)


LAUNCHED = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "GROUP_RANK",
    "ACCELERATE_USE_FSDP", "PL_GLOBAL_SEED", "LOCAL_WORLD_SIZE", "GITHUB_STEP_SUMMARY",
)  # fmt: skip


def test_environment_of_the_gate(
    rule_gate: MakeGate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All devices that the training sees unless it is told, and its store. What a launcher tells a
    rank would have the gate wait for the others.
    """
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    for name in (*LAUNCHED, "CEPBENCH_STORE", "RANKING"):
        monkeypatch.setenv(name, "1")
    for device, visible in ((None, "0,1"), ("1", "1"), ("cpu", "")):
        lines = rule_gate(device=device)(save(tmp_path / "c-1", 0.1)).output.splitlines()
        variables = dict(line.split("=", 1) for line in lines if "=" in line)
        assert variables["CUDA_VISIBLE_DEVICES"] == visible
        assert variables["CEPBENCH_STORE"] == variables["RANKING"] == "1"
        assert not variables.keys() & set(LAUNCHED)


@pytest.mark.parametrize("first", [False, True])
def test_files_that_change_while_they_are_gated_are_not_accepted(
    rule_gate: MakeGate, tmp_path: Path, first: bool
) -> None:
    """Nothing is known of them: the outcome is `failed`, and what was accepted before stays."""
    gate = rule_gate()
    if not first:
        gate(save(tmp_path / "c-1", 0.1), 1)
    before = None if first else gate.accepted
    submission = gate.submit(save(tmp_path / "latest", 0.1))
    copy = gate.files.kept(submission.kept)
    save(copy, 0.1, overwrite=str(copy))  # somebody writes into the copy
    submission = replace(submission, files=_read_files(copy))
    with closing(GateRun(gate, submission)) as run:
        verdict = run.wait()

    assert verdict.outcome is Outcome.FAILED
    assert (verdict.code, bool(verdict)) == (1, False)
    assert "was written to while it was gated" in verdict.summary
    assert gate.accepted == verdict.accepted == before
    assert gate.files.load().running is not None


def test_what_cannot_be_measured_is_not_accepted(rule_gate: MakeGate, tmp_path: Path) -> None:
    """A broken checkpoint is `failed` with its process's code, and noted as without a verdict. So
    is one that passed where its numbers could not become the baseline.
    """
    gate = rule_gate()
    accepted = gate(save(tmp_path / "c-1", 0.1), 1).accepted
    broken = save(tmp_path / "c-2", 0.1)
    (broken / "weights.json").write_text("{")

    verdict = gate(broken, 2)

    assert (verdict.outcome, verdict.code, verdict.cases) == (Outcome.FAILED, 1, ())
    assert "JSONDecodeError" in verdict.output
    assert "wrote no report" in verdict.output
    assert verdict.accepted == accepted
    running = known(gate.files.load().running)
    assert (running.name, running.accepting) == ("c-2", False)
    assert gate(save(tmp_path / "c-3", 0.1, code=4), 3).code == 4
    (broken / "weights.json").write_text("{")  # the report of before is not read
    again = gate(save(tmp_path / "c-1", 0.1), 1), gate(broken, 1)
    assert [verdict.report.exists() for verdict in again] == [True, False]

    verdict = gate(save(tmp_path / "c-4", 0.05, refused=True), 4)
    assert (verdict.outcome, verdict.code) == (Outcome.FAILED, 1)
    assert "could not be accepted" in verdict.output
    assert [case.verdict for case in verdict.cases] == ["held"]
    assert miss_of(verdict.accepted) == 0.1
    assert baseline(gate) == pytest.approx(0.9)


def test_run_that_takes_too_long_is_ended(rule_gate: MakeGate, tmp_path: Path) -> None:
    """It counts as failed, and nothing of it runs on: the pipe that it read has no reader.

    A verdict comes when the process has ended. Until then there is none, the folder is taken, and
    it is free once the run is closed, or could not be started, which is an error of one line.
    """
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    verdict = rule_gate(timeout=0.2)(save(tmp_path / "c-1", 0.1, wait=str(pipe)), 1)

    assert (verdict.outcome, verdict.code, verdict.accepted) == (Outcome.FAILED, 1, None)
    assert "longer than its 0.2 s and was ended" in verdict.output
    with pytest.raises(OSError, match="No such device or address"):
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    gate = rule_gate(timeout=600)
    run = GateRun(gate, gate.submit(save(tmp_path / "c-1", 0.1, wait=str(pipe)), 1))
    assert run.poll() is None
    with pytest.raises(TrainingGateError, match="another process gates into"):
        gate(save(tmp_path / "c-2", 0.1))

    pipe.write_text("")
    verdict = run.wait()

    assert verdict.outcome is Outcome.ACCEPTED
    assert run.poll() is run.wait() is verdict
    run.close()
    run = GateRun(gate, gate.submit(save(tmp_path / "c-3", 0.1, wait=str(pipe)), 3))
    run.close()
    running = known(gate.files.load().running)
    assert running.name == "c-3"
    with pytest.raises(TrainingGateError, match=r"the gate cannot be started: .*nowhere"):
        rule_gate(python="/nowhere/python")(save(tmp_path / "c-2", 0.1))
    assert gate(save(tmp_path / "c-2", 0.1)).outcome is Outcome.ACCEPTED


@pytest.mark.parametrize(("accepted", "intact"), [(False, True), (True, True), (False, False)])
def test_acceptance_that_was_cut_off_is_made_good(
    rule_gate: MakeGate, tmp_path: Path, accepted: bool, intact: bool
) -> None:
    """The process was killed after the verdict, before or after the baselines were replaced.

    The next gate measures it once more, and then judges its own.
    """
    gate = rule_gate()
    gate(save(tmp_path / "c-1", 0.3), 1)
    second = save(tmp_path / "c-2", 0.1)
    first = gate.submit(tmp_path / "c-1", 1)
    gate(second, 2)
    passed = gate.submit(second, 2)
    if not accepted:
        (gate.files.baselines / "gc.toml").write_text("0.7")
    gate.files.change(accepted=first, running=replace(passed, accepting=True))
    if not intact:
        save(gate.files.kept(passed.kept), 0.9)

    verdict = gate(save(tmp_path / "c-3", 0.12 if intact else 0.08), 3)

    assert (verdict.step, verdict.outcome) == (3, Outcome.ACCEPTED)
    assert miss_of(gate.accepted) == (0.12 if intact else 0.08)
    assert baseline(gate) == pytest.approx(0.88 if intact else 0.92)


KILLED = """
import ctypes, json, os, shutil, signal, sys
from pathlib import Path
from tests.integrations.conftest import TEST
from tests.integrations.folder_model import save
from pytest_cepbench.integrations import Gate

root, python = Path(sys.argv[1]), sys.argv[2]
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: gates of killed trainings are waited for

def gate(folder):
    return Gate(folder / "gate", TEST, python=python)

begun = root / "begun"
gate(begun)(save(begun / "latest", 0.3))

def train(folder, last):
    seen = 0
    def hook(event, args):
        nonlocal seen
        reads = event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR)
        listed = event in ("os.scandir", "os.listdir", "shutil.copytree", "shutil.rmtree")
        if event.partition(".")[0] in ("open", "os", "subprocess") and not (reads or listed) and (
            any(str(folder / "gate") in str(arg) for arg in args)
        ):
            seen += 1
            if seen == last:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    gate(folder)(save(folder / "latest", 0.1))
    os._exit(0)

code, number = None, 0
while code != 0:
    number += 1
    folder = root / f"killed-{number}"
    shutil.copytree(begun, folder)
    child = os.fork()
    if child == 0:
        train(folder, number)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -9), code
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
"""


def _whole(folder: Path) -> str:
    """What lies in a gate's folder, the same for kills that leave the same."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".log")
    texts = {str(path.relative_to(folder)): path.read_text() for path in files}
    return json.dumps(texts).replace(str(folder), "")


@pytest.mark.slow
def test_kill_at_any_instant_leaves_an_accepted_checkpoint(
    rule_gate: MakeGate, tmp_path: Path
) -> None:
    """Killed at each of its operations on files, a training leaves one that passed, whole.

    Whatever is there, a regression is found by the next process, and the accepted checkpoint is
    the one of the baselines.
    """
    subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), interpreter(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    killed = {_whole(folder): folder for folder in tmp_path.glob("killed-*")}
    found = set()
    for folder in killed.values():
        gate = Gate(folder / "gate", TEST, python=interpreter(tmp_path))
        left = miss_of(gate.accepted)
        pointer = folder / "gate" / "accepted"
        assert miss_of(Path(pointer.read_text())) in (0.3, 0.1)
        verdict = gate(save(folder / "latest", 0.95))
        assert verdict.outcome is Outcome.REGRESSED
        assert gate.accepted == verdict.accepted == Path(pointer.read_text())
        assert baseline(gate) == pytest.approx(1 - miss_of(gate.accepted))
        found.add((left, miss_of(gate.accepted)))

    assert found == {(0.3, 0.3), (0.3, 0.1), (0.1, 0.1)}


# -- a gate as a process of the real pytest --------------------------------------------------------


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
    running = known(gate.files.load().running)
    assert running.name == "checkpoint-1"
    assert gate.files.exists(running)
    assert gate.accepted is None
