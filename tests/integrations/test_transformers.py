"""The callback in real Trainers: what they save is gated, kept, logged, and stops them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the Trainer needs the [models] extra")
pytest.importorskip("accelerate", reason="the Trainer needs the [models] extra")

from pytest_cepbench.errors import TrainingStoppedError
from pytest_cepbench.integrations import TrainingGate
from tests.integrations.conftest import MakeGate
from tests.integrations.folder_model import save

pytestmark = pytest.mark.models


class Processor:
    """A processor of two files."""

    def save_pretrained(self, folder: Path) -> None:
        """Write them; the second one is the checkpoint's too."""
        (folder / "processor.json").write_text("processor")
        (folder / "weights.json").write_text("not these")


def small_trainer(folder: Path, misses: Sequence[float], *callbacks: Any, **options: Any) -> Any:
    """A Trainer of one layer, whose checkpoints are describers of `folder_model` as well.

    misses: what they miss, by step. Its `reported` are the values that its trackers were given.
    """
    reported: list[Any] = []
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Layer(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return {"loss": super().forward(x).sum()}

    class Describer(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
            reported.append(objects["logs"])

        def on_save(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
            path = Path(args.output_dir, f"checkpoint-{state.global_step}")
            save(path, misses[state.global_step - 1])

    arguments = TrainingArguments(
        output_dir=str(folder), use_cpu=True, disable_tqdm=True, report_to=[], logging_steps=1,
        per_device_train_batch_size=1, max_steps=len(misses), **{"save_steps": 1, **options},
    )  # fmt: skip
    trainer = Trainer(
        model=Layer(2, 1),
        args=arguments,
        train_dataset=[{"x": torch.ones(2)}] * 4,
        callbacks=[Describer(), *callbacks],
    )
    trainer.reported = reported
    return trainer


def test_trainer_stops_at_the_checkpoint_that_regressed(
    rule_gate: MakeGate, tmp_path: Path
) -> None:
    """`train` raises after the Trainer has ended in order; what it saved is gated once.

    With the trainer, its log has the verdicts; the processor is saved where it is missing.
    """
    from pytest_cepbench.integrations.transformers import GateCallback

    gate = TrainingGate(rule_gate())
    trainer = small_trainer(tmp_path / "run", [0.1, 0.9, 0.1])
    trainer.add_callback(GateCallback(gate, trainer, Processor()))
    assert gate.trackers is not None

    with pytest.raises(TrainingStoppedError, match="checkpoint-2: regressed, the training stops"):
        trainer.train()

    assert [str(verdict.outcome) for verdict in gate.verdicts] == ["accepted", "regressed"]
    assert trainer.state.global_step == 2
    accepted = gate.gate.accepted
    assert accepted is not None
    assert accepted.name.startswith("checkpoint-1-")
    assert (accepted / "processor.json").read_text() == "processor"
    assert "0.1" in (accepted / "weights.json").read_text()
    assert (accepted / "optimizer.pt").exists()
    logged = [row for row in trainer.state.log_history if "cepbench/verdict" in row]
    assert [row["cepbench/verdict"] for row in logged] == ["accepted", "regressed"]
    assert [row["step"] for row in logged] == [1, 2]
    assert [row["cepbench/outcome"] for row in trainer.reported if "cepbench/outcome" in row] == [
        1, -1,
    ]  # fmt: skip


def test_trainer_saves_in_the_steps_that_are_due(rule_gate: MakeGate, tmp_path: Path) -> None:
    """Every second one, and its own third is not gated; verdicts are waited for at the end.

    Without the trainer its log has none of them; checkpoints are as it saves them.
    """
    from pytest_cepbench.integrations.transformers import GateCallback

    gate = TrainingGate(rule_gate(), every=2, when="beside")
    callback = GateCallback(gate)
    assert gate.trackers is None
    trainer = small_trainer(tmp_path / "run", [0.1] * 5, callback, save_steps=3, save_total_limit=1)

    trainer.train()

    assert [(verdict.step, verdict.outcome) for verdict in gate.verdicts] == [
        (2, "accepted"), (4, "accepted"),
    ]  # fmt: skip
    assert {path.name for path in (tmp_path / "run").glob("checkpoint-*")} == {"checkpoint-5"}
    assert gate.gate.accepted is not None
    assert not [row for row in trainer.state.log_history if "cepbench/verdict" in row]
    assert not (gate.gate.accepted / "processor.json").exists()


def test_regression_beside_the_trainer_stops_it(rule_gate: MakeGate, tmp_path: Path) -> None:
    """The last checkpoint of an epoch and of a training is waited for, with the trackers open."""
    from pytest_cepbench.integrations.transformers import GateCallback

    gate = TrainingGate(rule_gate(), when="beside")
    trainer = small_trainer(tmp_path / "run", [0.1, 0.9], save_strategy="epoch")
    trainer.args.max_steps, trainer.args.num_train_epochs = 2, 1
    trainer.add_callback(GateCallback(gate, trainer))

    gate.gate(save(tmp_path / "start", 0.1))
    with pytest.raises(TrainingStoppedError, match="regressed"):
        trainer.train()

    assert trainer.state.log_history[-1].get("train_runtime") is not None
    assert "regressed" in {row.get("cepbench/verdict") for row in trainer.state.log_history}
