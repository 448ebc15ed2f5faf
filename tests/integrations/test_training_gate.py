"""A gate in a loop: when it runs, what stops the training, where a restarted one goes on."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import TrainingGateError, TrainingStoppedError
from pytest_cepbench.integrations import GateVerdict, Outcome, TrainingGate
from pytest_cepbench.integrations.gate_folder import Submission
from tests.integrations.conftest import ROOT, MakeGate, interpreter
from tests.integrations.folder_model import save
from tests.optional import known


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


def test_training_stops_between_steps(rule_gate: MakeGate, tmp_path: Path) -> None:
    """The gate comes every two steps; the loop ends at the first one that regressed.

    Leaving the loop raises, so that no script goes on to publish what did not pass. The next
    process may not go on from there, but from the accepted checkpoint.
    """
    gate = TrainingGate(rule_gate(), every=2)

    with pytest.raises(
        TrainingStoppedError, match=r"step-4-.*: regressed, the training st"
    ) as stop:
        train(gate, [0.9, 0.1, 0.1, 0.8, 0.1, 0.1])

    assert stop.value.code == 1
    assert outcomes(gate) == {2: "accepted", 4: "regressed"}
    accepted = known(gate.gate.accepted)
    assert accepted.name.startswith("step-2-")
    for step in (4, 5):
        with pytest.raises(
            TrainingStoppedError, match=rf"at step 4.*step {step}: .*{accepted}"
        ) as no:
            TrainingGate(rule_gate()).begin(step)
        assert no.value.code == 1
    assert not TrainingGate(rule_gate(), stop_on="never").begin(5)
    assert not TrainingGate(rule_gate()).begin(4)  # it went on, on purpose


def test_the_first_checkpoint_is_held_to_what_the_training_starts_from(
    rule_gate: MakeGate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a model that forgot everything is the first baseline, which the log says."""
    start = save(tmp_path / "base", 0.1)
    gate = TrainingGate(rule_gate(), start=start)
    with pytest.raises(TrainingStoppedError):
        train(gate, [0.9])

    assert outcomes(gate) == {0: "accepted", 1: "regressed"}
    (line,) = [each for each in caplog.messages if "regressed" in each]
    assert "; worse than tolerated in 1 of 1 cases, instrument/overall/gc: go on from " in line
    assert f" {gate.gate.accepted}, see " in line
    again = TrainingGate(rule_gate(), start=start, on_error="warn")
    again.begin()
    assert not again.verdicts  # it is accepted already
    again.close()


def test_checkpoints_that_the_training_saved_are_gated_once(
    rule_gate: MakeGate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each step once, though a Trainer asks twice, and each anew though all have one path.

    The end of a training of which nothing was gated is no pass, which the log says.
    """
    with TrainingGate(rule_gate(), every=500) as gate:
        assert not gate.step(3, lambda folder: save(folder, 0.1))
    assert "no checkpoint of it was gated" in caplog.text

    with TrainingGate(rule_gate()) as gate:
        for step, miss in ((1, 0.3), (1, 0.3), (2, 0.2)):
            assert not gate.submit(step, save(tmp_path / "latest", miss))
    assert outcomes(gate) == {1: "accepted", 2: "accepted"}
    assert len(gate.verdicts) == 2
    assert caplog.text.count("no checkpoint of it was gated") == 1

    with pytest.raises(TrainingStoppedError), TrainingGate(rule_gate()) as gate:
        gate.submit(3, save(tmp_path / "latest", 0.9))
    with pytest.raises(TrainingStoppedError, match="from step 3"):
        TrainingGate(rule_gate()).submit(3, save(tmp_path / "latest", 0.1))
    with pytest.raises(TrainingStoppedError, match="from step 3"):
        TrainingGate(rule_gate()).step(4)  # the first step of one that goes on from there


def pipes(folder: Path, *names: str) -> list[Path]:
    """Named pipes, at which `rule_gate` waits until something is written into them."""
    paths = [folder / name for name in names]
    for path in paths:
        os.mkfifo(path)
    return paths


def test_training_that_is_faster_than_its_gate(
    rule_gate: MakeGate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Beside the training one checkpoint is gated at a time, and the newest waits.

    Its copy alone is kept. The last verdict is waited for at the end, and a regression ends the
    training also there.
    """
    caplog.set_level(logging.INFO)
    (pipe,) = pipes(tmp_path, "pipe")
    gate = TrainingGate(rule_gate(), when="beside")

    def wait_for_end() -> None:
        assert not gate.step(1, lambda folder: save(folder, 0.1, wait=str(pipe)))
        for step, miss in ((2, 0.2), (3, 0.14), (4, 0.9)):
            assert not gate.step(step, lambda folder, miss=miss: save(folder, miss))  # type: ignore[misc]
            assert not gate.look()
        assert gate.verdicts == []
        assert [each.step for each in gate.gate.files.load().waiting] == [4]
        copies = {path.name.rpartition("-")[0] for path in gate.gate.files.kept("").iterdir()}
        assert copies == {"step-1", "step-4"}
        pipe.write_text("")

    with pytest.raises(TrainingStoppedError, match=r"step-4-.*: regressed"), gate:
        wait_for_end()

    assert outcomes(gate) == {1: "accepted", 4: "regressed"}
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "gate: step 4" in caplog.text
    assert gate.gate.files.load().waiting == ()


def test_verdict_is_taken_at_the_first_step_after_it(rule_gate: MakeGate, tmp_path: Path) -> None:
    """It stops the training there; what waited is not gated any more, nor what comes later."""
    first, second = pipes(tmp_path, "first", "second")
    gate = TrainingGate(rule_gate(), when="beside")
    train(gate, [0.1])
    assert not gate.begin(1)
    assert not gate.step(2, lambda folder: save(folder, 0.9, wait=str(first)))
    assert not gate.step(3, lambda folder: save(folder, 0.1, wait=str(second)))
    first.write_text("")
    known(gate._run)._process.wait(None)

    assert gate.step(4)
    assert gate.step(5, lambda folder: save(folder, 0.1))
    assert gate.look(wait=True)
    assert outcomes(gate) == {1: "accepted", 2: "regressed"}
    state = gate.gate.files.load()
    assert (state.waiting, state.running) == ((), None)
    assert known(state.stopped).step == 2
    with pytest.raises(TrainingStoppedError):
        gate.finish()


def test_what_cannot_be_measured(rule_gate: MakeGate, caplog: pytest.LogCaptureFixture) -> None:
    """A broken checkpoint stops the training, or is a warning where that was asked for.

    Neither accepts it, and the next process gates it once more.
    """

    def broken(folder: Path) -> None:
        save(folder, 0.1)
        (folder / "weights.json").write_text("{")

    with pytest.raises(TrainingStoppedError) as stop, TrainingGate(rule_gate()) as gate:
        assert gate.step(1, broken)
    assert stop.value.code == 1
    assert outcomes(gate) == {1: "failed"}
    assert gate.gate.files.load().stopped is None
    assert caplog.text.count("JSONDecodeError") == 0

    with TrainingGate(rule_gate(), on_error="warn") as gate:
        assert not gate.begin(1)
        assert outcomes(gate) == {1: "failed"}
        assert not gate.step(2, broken)
        assert not gate.step(3, lambda folder: save(folder, 0.1))
    assert caplog.text.count("JSONDecodeError") == 2
    assert outcomes(gate) == {1: "failed", 2: "failed", 3: "accepted"}


def test_gate_that_cannot_run(
    rule_gate: MakeGate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An error at the step, or a warning, on each way into the gate; nothing is accepted."""
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate" / "state.json").write_text("{")
    (tmp_path / "gate" / "checkpoints").write_text("")
    checkpoint = save(tmp_path / "c-1", 0.1)
    uses: list[Callable[[TrainingGate], bool]] = [
        lambda gate: gate.begin(),
        lambda gate: gate.step(1, lambda folder: save(folder, 0.1)),
        lambda gate: gate.submit(1, checkpoint),
    ]
    for use in uses:
        stopping, warning = TrainingGate(rule_gate()), TrainingGate(rule_gate(), on_error="warn")
        with pytest.raises(TrainingGateError, match="a new folder for its gate"):
            use(stopping)
        assert not use(warning)
        assert stopping.verdicts == warning.verdicts == []
    assert caplog.text.count("a new folder for its gate") == 3
    (tmp_path / "gate" / "state.json").unlink()
    gate = TrainingGate(rule_gate(), on_error="warn")
    assert not gate.step(1, lambda folder: save(folder, 0.1))
    assert "step-1 cannot be kept" in caplog.text


def test_interrupt_ends_the_gate_beside_the_training(rule_gate: MakeGate, tmp_path: Path) -> None:
    """No verdict is waited for; the checkpoint has its verdict in the next process."""
    (pipe,) = pipes(tmp_path, "pipe")
    gate = TrainingGate(rule_gate(), when="beside")

    def interrupted() -> None:
        with gate:
            gate.step(1, lambda folder: save(folder, 0.1, wait=str(pipe)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not gate.look()
    with pytest.raises(OSError, match="No such device or address"):
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    running = known(gate.gate.files.load().running)
    assert running.step == 1
    (Path(gate.gate.files.path(running)) / "weights.json").unlink()
    with TrainingGate(rule_gate(), on_error="warn") as again:
        assert not again.begin(1)
    assert outcomes(again) == {1: "failed"}


@pytest.mark.parametrize(
    ("code", "error"),
    [(None, TrainingStoppedError), (3, SystemExit)],
)
def test_exit_that_says_success_waits_for_the_verdict(
    rule_gate: MakeGate, code: int | None, error: type[BaseException]
) -> None:
    """A script that calls sys.exit() in its loop does not end with 0 over a regression.

    One that exits with another code has failed already, and waits for nothing.
    """
    gate = TrainingGate(rule_gate(), when="beside")

    def leave() -> None:
        with gate:
            assert not gate.step(1, lambda folder: save(folder, 0.1))
            assert not gate.look(wait=True)
            gate.step(2, lambda folder: save(folder, 0.9))
            sys.exit(code)

    with pytest.raises(error):
        leave()
    last = TrainingGate(gate.gate, stop_on="never")
    with pytest.raises(TrainingGateError, match=r"was not saved: save called sys.exit\(\)"):
        last.step(3, lambda _: sys.exit(0))
    last.close()
    assert outcomes(gate) == {1: "accepted", 2: "regressed"} if not code else {1: "accepted"}


def test_tracker_that_exits_hides_no_regression(
    rule_gate: MakeGate, caplog: pytest.LogCaptureFixture
) -> None:
    """What a tracker raises is a warning, and the stop is written down before it is asked."""
    stopped: list[Any] = []

    def leave(values: Any, step: int) -> None:
        stopped.append(gate.gate.files.load().stopped)
        sys.exit(0)

    gate = TrainingGate(rule_gate(), trackers=[leave])
    with pytest.raises(TrainingStoppedError):
        train(gate, [0.1, 0.9])

    assert stopped[0] is None
    assert stopped[1].step == 2
    assert caplog.text.count("could not be logged: SystemExit") == 2


def test_preempted_training_gates_what_it_left(
    rule_gate: MakeGate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was being gated, then what waited, in this order; what is gone is a warning.

    Also one that had passed and was not accepted yet.
    """
    gate = rule_gate()
    gate(save(tmp_path / "c-1", 0.3), 1)
    before = gate.submit(tmp_path / "c-1", 1)
    gate(save(tmp_path / "c-2", 0.2), 2)
    passed = gate.submit(tmp_path / "c-2", 2)
    third = gate.submit(save(tmp_path / "c-3", 0.14), 3)
    gone = Submission(str(tmp_path / "gone"), "gone", 4, local=True)
    (gate.files.baselines / "gc.toml").write_text("0.7")
    gate.files.change(
        accepted=before,
        running=Submission(**{**vars(passed), "accepting": True}), waiting=(third, gone),
    )  # fmt: skip

    with TrainingGate(gate) as training_gate:
        assert not training_gate.begin(4)

    assert outcomes(training_gate) == {2: "accepted", 3: "accepted"}
    assert f"{tmp_path}/gone was to be gated and is gone" in caplog.text
    left = gate.files.load()
    assert (left.running, left.waiting) == (None, ())


def test_outcomes_that_stop(make_gate: MakeGate) -> None:
    """Regressed and inconclusive by `stop_on`, failed by `on_error`; accepted never.

    Of a run that was told to fail for an inconclusive case that case counts as regressed.
    """
    path = Path("checkpoint-1")
    for outcome, code, stopping in (
        (Outcome.ACCEPTED, 0, ()),
        (Outcome.INCONCLUSIVE, 0, ("inconclusive stop", "inconclusive warn")),
        (Outcome.INCONCLUSIVE, 1, ("regressed stop", "inconclusive stop", "inconclusive warn")),
        (Outcome.REGRESSED, 1, ("regressed stop", "inconclusive stop", "inconclusive warn")),
        (Outcome.FAILED, 4, ("regressed stop", "inconclusive stop", "never stop")),
    ):
        verdict = GateVerdict(path, 1, outcome, code, (), None, path, "", 1.0)
        for settings in (
            "regressed stop", "inconclusive stop", "inconclusive warn", "never stop", "never warn",
        ):  # fmt: skip
            stop_on, on_error = settings.split()
            gate = TrainingGate(make_gate(), stop_on=stop_on, on_error=on_error)  # type: ignore[arg-type]
            assert gate._stops(verdict) == (settings in stopping), (outcome, code, settings)


FORKED = """
import json, os, sys
from pathlib import Path
from pytest_cepbench.integrations.training_gate import Ranks, current_ranks

assert current_ranks() == Ranks() == Ranks(0, None)
assert "torch" not in sys.modules

import torch.distributed as dist
from pytest_cepbench.errors import TrainingStoppedError
from pytest_cepbench.integrations import Gate, TrainingGate
from tests.integrations.conftest import TEST
from tests.integrations.folder_model import save

root, python = Path(sys.argv[1]), sys.argv[2]
assert current_ranks() == Ranks()

def begin(rank, size):
    dist.init_process_group(
        "gloo", init_method=f"file://{root}/rendezvous-{size}", rank=rank, world_size=size
    )

def fail(error):
    raise error

def work(rank):
    begin(rank, 2)
    ranks = current_ranks()
    errors = []
    for error in (ValueError("full"), SystemExit("left")):
        try:
            ranks.on_first(lambda: fail(error))
        except BaseException as raised:
            errors.append([type(raised).__name__, str(raised)])
    acted = []
    result = ranks.on_first(lambda: acted.append(rank) or 7)
    pipe, written = root / "pipe", root / "written"
    if rank == 1:
        pipe.read_bytes()
        written.write_text("")
    else:
        pipe.write_bytes(b"1")
    ranks.wait_for_all()
    arrived = written.exists()

    gate = TrainingGate(Gate(root / "gate", TEST, python=python), every=2, when="beside")
    saved, stopped = [], None
    def save_model(folder):
        saved.append(folder.name)
        if rank == 0:
            save(folder, 0.1 if len(saved) == 1 else 0.9)
    try:
        with gate:
            for step in range(1, 9):
                if gate.step(step, save_model):
                    break
                if step in (2, 4):
                    gate.look(wait=True)
    except TrainingStoppedError as error:
        stopped = str(error).rpartition(": regressed")[0].rpartition("/")[2]
    return {
        "rank": ranks.rank, "errors": errors, "acted": acted, "result": result,
        "arrived": arrived, "step": step, "stopped": stopped, "saved": saved,
        "outcomes": [[verdict.step, str(verdict.outcome)] for verdict in gate.verdicts],
    }

os.mkfifo(root / "pipe")
children = []
for rank in (0, 1):
    if not (child := os.fork()):
        (root / f"rank-{rank}.json").write_text(json.dumps(work(rank)))
        os._exit(0)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
begin(0, 1)
assert current_ranks() == Ranks()
"""


@pytest.mark.slow
@pytest.mark.models
def test_ranks_act_once_and_know_the_same(tmp_path: Path) -> None:
    """Two forked ranks: the first acts, fails and gates; the second has its results and errors."""
    subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path), interpreter(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        check=True,
    )
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))

    assert (first.pop("rank"), second.pop("rank")) == (0, 1)
    assert (first.pop("acted"), second.pop("acted")) == ([0], [])
    assert first.pop("errors") == [["ValueError", "full"], ["SystemExit", "left"]]
    assert second.pop("errors") == [
        ["TrainingGateError", "on rank 0: full"], ["TrainingGateError", "on rank 0: left"],
    ]  # fmt: skip
    assert first == second
    stopped = first.pop("stopped")
    assert stopped.startswith("step-4-")
    assert first == {
        "result": 7, "arrived": True, "step": 5, "saved": [".step-2.new", ".step-4.new"],
        "outcomes": [[2, "accepted"], [4, "regressed"]],
    }  # fmt: skip
