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
from tests.tiny.common import pictures
from tests.tiny.describers import build_llava

pytestmark = pytest.mark.models

DESCRIBER = "{checkpoint}?dtype=float32"


@pytest.fixture(scope="module")
def describer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny LLaVA with random weights."""
    return build_llava(tmp_path_factory.mktemp("models") / "llava")


def load(describer: Path) -> tuple[Any, Any]:
    """Model and processor."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    return (
        AutoModelForImageTextToText.from_pretrained(describer),
        AutoProcessor.from_pretrained(describer),
    )


def make_trainer(describer: Path, folder: Path, **settings: Any) -> Any:
    """A Trainer of the describer on four pictures, that saves at each step."""
    from transformers import Trainer, TrainingArguments

    model, processor = load(describer)
    rows = []
    for image in pictures(((64, 64),) * 4):
        row = processor(
            images=image, text="<image> describe the image : red circle", return_tensors="pt"
        )
        rows.append({name: value[0] for name, value in row.items()})
        rows[-1]["labels"] = rows[-1]["input_ids"]
    options = {
        "save_steps": 1, "max_steps": 3, "report_to": [], "per_device_train_batch_size": 2,
        **settings.pop("options", {}),
    }  # fmt: skip
    return Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(folder), use_cpu=True, disable_tqdm=True, logging_steps=1, **options
        ),
        train_dataset=rows,
        **{"processing_class": processor, **settings},
    )


class Processor:
    """A processor of two files."""

    def save_pretrained(self, folder: Path) -> None:
        """Write them; the second one is the checkpoint's too."""
        (folder / "processor.json").write_text("processor")
        (folder / "weights.json").write_text("not these")


def small_trainer(folder: Path, misses: Sequence[float], *callbacks: Any, **options: Any) -> Any:
    """A Trainer of one layer, whose checkpoints are describers of `folder_model` as well.

    misses: what they miss, by step.
    """
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Layer(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return {"loss": super().forward(x).sum()}

    class Describer(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
            path = Path(args.output_dir, f"checkpoint-{state.global_step}")
            save(path, misses[state.global_step - 1])

    arguments = TrainingArguments(
        output_dir=str(folder), use_cpu=True, disable_tqdm=True, report_to=[], logging_steps=1,
        per_device_train_batch_size=1, max_steps=len(misses), **{"save_steps": 1, **options},
    )  # fmt: skip
    return Trainer(
        model=Layer(2, 1),
        args=arguments,
        train_dataset=[{"x": torch.ones(2)}] * 4,
        callbacks=[Describer(), *callbacks],
    )


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


@pytest.mark.slow
def test_accepted_checkpoint_survives_the_trainer_s_rotation(
    make_gate: MakeGate, describer: Path, tmp_path: Path
) -> None:
    """Every two steps: the Trainer saves in these, gated checkpoints stay, others are rotated.

    Checkpoints that the Trainer saves without a processor are given the callback's. Quick to gate:
    beside its weights, each checkpoint holds a describer of `folder_model`.
    """
    from transformers import TrainerCallback

    from pytest_cepbench.integrations.transformers import GateCallback

    class Describer(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **objects: Any) -> None:
            save(Path(args.output_dir, f"checkpoint-{state.global_step}"), miss=0.1)

    gate = TrainingGate(make_gate(), every=2, when="beside")
    callback = GateCallback(gate, processing_class=load(describer)[1])
    trainer = make_trainer(
        describer, tmp_path / "run", processing_class=None, callbacks=[Describer(), callback],
        options={"save_steps": 3, "save_total_limit": 1},
    )  # fmt: skip

    trainer.train()

    assert [(verdict.step, verdict.outcome) for verdict in gate.verdicts] == [(2, "accepted")]
    assert {path.name for path in (tmp_path / "run").glob("checkpoint-*")} == {"checkpoint-3"}
    accepted = gate.gate.accepted
    assert accepted is not None
    assert accepted.name.startswith("checkpoint-2-")
    model, processor = load(accepted)
    assert model.num_parameters() == trainer.model.num_parameters()
    assert processor.chat_template
    assert (accepted / "optimizer.pt").exists()  # training can go on from it


@pytest.mark.slow
def test_regression_stops_the_trainer_and_reaches_its_trackers(
    make_gate: MakeGate, describer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was accepted before is perfect; the model in training has hardly begun to speak.

    `train` raises after the Trainer has ended in order, and TensorBoard has the verdict.
    """
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from pytest_cepbench.integrations.transformers import GateCallback

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    make_gate(model="{checkpoint}")("shapes:")
    gate = TrainingGate(make_gate(model=DESCRIBER, env={}))
    trainer = make_trainer(describer, tmp_path / "run", options={"report_to": ["tensorboard"]})
    trainer.add_callback(GateCallback(gate, trainer))

    with pytest.raises(TrainingStoppedError, match="checkpoint-1: regressed, the training stops"):
        trainer.train()

    assert trainer.state.global_step == 1
    assert not (tmp_path / "run" / "checkpoint-2").exists()
    assert gate.gate.accepted == Path("shapes:")
    (logged,) = [row for row in trainer.state.log_history if "cepbench/verdict" in row]
    assert logged["cepbench/verdict"] == "regressed"
    assert logged["cepbench/instrument/overall/gc/difference"] < -0.1
    assert [row["step"] for row in trainer.state.log_history if "loss" in row] == [1]
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    (outcome,) = events.Scalars("train/cepbench/outcome")
    assert (outcome.step, outcome.value) == (1, -1.0)
    assert len(events.Scalars("train/loss")) == 1
    (text,) = events.Tensors("train/cepbench/verdict/text_summary")
    assert text.tensor_proto.string_val == [b"regressed"]
