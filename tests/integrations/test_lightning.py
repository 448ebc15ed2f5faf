"""The callback in real Lightning trainings: models are exported, gated, and stop the Trainer."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
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


@pytest.mark.slow
def test_regression_stops_the_trainer(make_gate: MakeGate, tmp_path: Path) -> None:
    """Every three steps, counted in steps of the optimizer; `fit` raises, and the loggers know."""
    from pytest_cepbench.integrations.lightning import GateCallback
    from tests.integrations.lightning_modules import fit, make_trainer

    pytest.importorskip("tensorboard", reason="needs tensorboard")
    from lightning.pytorch.loggers import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoardLogger(tmp_path / "logs", name="", version="")
    gate = TrainingGate(make_gate(), every=3)
    trainer = make_trainer(tmp_path, GateCallback(gate), logger=logger)

    with pytest.raises(TrainingStoppedError, match="step-6: regressed"):
        fit(trainer)

    assert trainer.global_step == 6
    assert {verdict.step: str(verdict.outcome) for verdict in gate.verdicts} == {
        3: "accepted", 6: "regressed",
    }  # fmt: skip
    events = EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    outcomes = [(event.step, event.value) for event in events.Scalars("cepbench/outcome")]
    assert outcomes == [(3, 1.0), (6, -1.0)]
    texts = events.Tensors("cepbench/verdict/text_summary")
    assert [text.tensor_proto.string_val for text in texts] == [[b"accepted"], [b"regressed"]]


@pytest.mark.slow
def test_each_checkpoint_of_lightning_is_exported_and_gated(
    make_gate: MakeGate, tmp_path: Path
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
    gate = TrainingGate(make_gate(), when="beside", waiting="all")

    fit(make_trainer(tmp_path, checkpoints, GateCallback(gate, export), max_steps=18))

    assert exported == [9, 18]
    assert [(verdict.step, verdict.outcome) for verdict in gate.verdicts] == [
        (9, "accepted"), (18, "accepted"),
    ]  # fmt: skip
    assert {path.suffix for path in (tmp_path / "ckpt").iterdir()} == {".ckpt"}


@pytest.mark.slow
def test_module_that_cannot_be_exported_is_an_error(make_gate: MakeGate, tmp_path: Path) -> None:
    """Before the first step, in one line that says what to give."""
    from pytest_cepbench.integrations.lightning import GateCallback
    from tests.integrations.lightning_modules import Bare, fit, make_trainer

    trainer = make_trainer(tmp_path, GateCallback(make_gate()))

    with pytest.raises(TrainingGateError, match=r"Bare has no `model` with save_pretrained"):
        fit(trainer, Bare())
    assert trainer.global_step == 0
