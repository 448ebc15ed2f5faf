"""The callback in real Lightning trainings: models are exported, gated, and stop the Trainer."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_cepbench.errors import TrainingGateError, TrainingStoppedError
from pytest_cepbench.integrations import TrainingGate
from tests.integrations.conftest import MakeGate
from tests.integrations.folder_model import save

pytestmark = [
    pytest.mark.models,
    pytest.mark.filterwarnings("default"),  # of Lightning, about torch
    pytest.mark.skipif(
        find_spec("lightning") is None, reason="needs the dependency group integrations"
    ),
]


def test_regression_stops_the_trainer(rule_gate: MakeGate, tmp_path: Path) -> None:
    """Every three steps, counted in steps of the optimizer; `fit` raises, and the loggers know."""
    from pytest_cepbench.integrations.lightning import GateCallback
    from tests.integrations.lightning_modules import fit, make_trainer

    pytest.importorskip("tensorboard", reason="needs tensorboard")
    from lightning.pytorch.loggers import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoardLogger(tmp_path / "logs", name="", version="")
    gate = TrainingGate(rule_gate(), every=3)
    trainer = make_trainer(tmp_path, GateCallback(gate), logger=logger)

    with pytest.raises(TrainingStoppedError, match=r"step-6-.*: regressed"):
        fit(trainer)

    assert trainer.global_step == 6
    assert {verdict.step: str(verdict.outcome) for verdict in gate.verdicts} == {
        3: "accepted", 6: "regressed",
    }  # fmt: skip
    events = EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    outcomes = [(event.step, event.value) for event in events.Scalars("cepbench/outcome")]
    assert outcomes == [(3, 1.0), (6, -1.0)]
    assert gate.trackers is not None
    assert len(gate.trackers) == 1


def test_each_checkpoint_of_lightning_is_exported_and_gated(
    rule_gate: MakeGate, tmp_path: Path
) -> None:
    """Without `every`: when Lightning has saved, and once where it saves two files in a step."""
    from lightning.pytorch.callbacks import ModelCheckpoint

    from pytest_cepbench.integrations.lightning import GateCallback
    from tests.integrations.lightning_modules import fit, make_trainer

    exported = []

    def export(module: Any, folder: Path) -> None:
        exported.append(module.trainer.global_step)
        save(folder, 0.1)

    checkpoints = ModelCheckpoint(
        dirpath=tmp_path / "ckpt", every_n_train_steps=9, save_last=True, save_top_k=-1
    )
    gate = TrainingGate(rule_gate(), when="between")

    fit(make_trainer(tmp_path, checkpoints, GateCallback(gate, export), max_steps=18))

    assert exported == [9, 18]
    assert [(verdict.step, verdict.outcome) for verdict in gate.verdicts] == [
        (9, "accepted"), (18, "accepted"),
    ]  # fmt: skip
    assert {path.suffix for path in (tmp_path / "ckpt").iterdir()} == {".ckpt"}


@pytest.mark.parametrize(("code", "error"), [(0, TrainingStoppedError), (3, SystemExit)])
def test_exit_that_says_success_waits_for_the_verdict(
    rule_gate: MakeGate, tmp_path: Path, code: int, error: type[BaseException]
) -> None:
    """A module that calls sys.exit() while a regressed checkpoint is gated does not end with 0; a
    failure is not held up by a verdict.
    """
    from pytest_cepbench.integrations.lightning import GateCallback
    from tests.integrations.lightning_modules import Module, fit, make_trainer

    class Leaving(Module):
        def on_train_batch_end(self, *args: Any) -> None:
            if self.trainer.global_step == 2:
                sys.exit(code)

    rule_gate()(save(tmp_path / "start", 0.0))
    gate = TrainingGate(rule_gate(), every=2, when="beside")
    callback = GateCallback(gate, lambda module, folder: save(folder, 0.9))

    with pytest.raises(error):
        fit(make_trainer(tmp_path, callback), Leaving())

    assert [str(verdict.outcome) for verdict in gate.verdicts] == ["regressed"] * (code == 0)


def test_model_that_is_in_parts_needs_an_export(rule_gate: MakeGate) -> None:
    """Under a strategy that shards, a rank would export its part as the whole.

    Nor can a model be exported that has no save_pretrained.
    """
    from pytest_cepbench.integrations.lightning import GateCallback
    from tests.integrations.lightning_modules import Bare, Module

    class FSDPStrategy: ...

    trainer = SimpleNamespace(strategy=FSDPStrategy(), loggers=[], global_step=0)
    callback = GateCallback(rule_gate())

    with pytest.raises(TrainingGateError, match="under FSDPStrategy a rank may hold a part"):
        callback.on_train_start(trainer, Module())
    with pytest.raises(TrainingGateError, match=r"Bare has no `model` with save_pretrained"):
        callback.on_train_start(trainer, Bare())
    GateCallback(rule_gate(), lambda module, folder: None).on_train_start(trainer, Module())
