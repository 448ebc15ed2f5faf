"""Two ranks of a training: one gates, both know, both stop at the same step."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrations.conftest import ROOT, interpreter

pytest.importorskip("accelerate", reason="distributed loops need the [models] extra")

pytestmark = pytest.mark.models

LOOP = """
import json, sys, time
from pathlib import Path
import torch
from accelerate import Accelerator
from tests.integrations.conftest import ENVIRONMENT, QUICK, TEST
from tests.integrations.folder_model import SPEC, save
from pytest_cepbench.errors import CepError
from pytest_cepbench.integrations import Gate, TrainingGate

accelerator = Accelerator(cpu=True)
model = accelerator.prepare(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
folder = Path(sys.argv[1])
saved = []

def save_model(path):  # both ranks are asked, as where each has a shard of the model
    saved.append(path.name)
    if accelerator.is_main_process:
        save(path, 0.05 if len(saved) == 1 else 0.8)

def train(when):
    saved.clear()
    gate = Gate(folder / when, TEST, QUICK, model=SPEC, env=ENVIRONMENT)
    training_gate = TrainingGate(gate, every=5, when=when)
    error = None
    try:
        with training_gate:
            training_gate.begin(0)
            for step in range(1, 10_000):
                accelerator.backward(model(torch.ones(1, 2)).sum())  # ranks add their gradients
                optimizer.step()
                time.sleep(0.2 * (when == "beside"))
                if training_gate.step(step, save_model):
                    break
    except CepError as stopped:
        error = type(stopped).__name__
    outcomes = {verdict.step: str(verdict.outcome) for verdict in training_gate.verdicts}
    return [step, error, outcomes, saved[0]]

ends = {when: train(when) for when in ("between", "beside")}
(folder / f"rank-{accelerator.process_index}.json").write_text(json.dumps(ends))
accelerator.end_training()
"""


def launch(script: Path, rank: int, port: int) -> subprocess.Popen[str]:
    """A rank of two, with what a launcher tells it."""
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    return subprocess.Popen(
        [sys.executable, str(script), str(script.parent)],
        env={**os.environ, **ranks, **address, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.slow
def test_all_ranks_stop_at_the_same_step(tmp_path: Path) -> None:
    """A world of two gloo processes under accelerate: rank 0 gates, both have the same verdicts.

    Both are asked to save, both end the loop after the same step, and both raise; between the steps
    and beside them.
    """
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    port = free_port()
    ranks = [launch(script, rank, port) for rank in (0, 1)]
    printed = [process.communicate(timeout=500)[0] for process in ranks]

    assert [process.returncode for process in ranks] == [0, 0], printed
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["between"] == [
        10, "TrainingStoppedError", {"5": "accepted", "10": "regressed"}, ".step-5.new",
    ]  # fmt: skip
    step, error, outcomes, saved = first["beside"]
    assert step > 10
    assert (error, saved) == ("TrainingStoppedError", ".step-5.new")
    assert list(outcomes.values()) == ["accepted", "regressed"]


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
