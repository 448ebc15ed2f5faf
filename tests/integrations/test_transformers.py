"""The callback in real Trainers: what they save is gated, kept, logged, and stops them."""

from __future__ import annotations

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

pytestmark = [pytest.mark.models, pytest.mark.slow]

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
    assert accepted == tmp_path / "gate/checkpoints/checkpoint-2"
    model, processor = load(accepted)
    assert model.num_parameters() == trainer.model.num_parameters()
    assert processor.chat_template
    assert (accepted / "optimizer.pt").exists()  # training can go on from it


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


@pytest.mark.filterwarnings("default")  # of trl, about what it sets itself
def test_trainer_of_trl_is_gated(make_gate: MakeGate, describer: Path, tmp_path: Path) -> None:
    """Trainers of trl take the same callback; their own metrics are not disturbed."""
    pytest.importorskip("trl", reason="needs trl, which is no dependency of the tests")
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from pytest_cepbench.integrations.transformers import GateCallback

    make_gate(model="{checkpoint}")("shapes:")
    gate = TrainingGate(make_gate(model=DESCRIBER, env={}))
    model, processor = load(describer)
    rows = [
        {
            "images": [image],
            "prompt": [{"role": "user", "content": "describe the image"}],
            "completion": [{"role": "assistant", "content": "red circle"}],
        }
        for image in pictures(((64, 64),) * 4)
    ]
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=str(tmp_path / "run"), max_steps=2, save_steps=1, use_cpu=True, bf16=False,
            report_to=[], disable_tqdm=True, logging_steps=1, per_device_train_batch_size=2,
            max_length=None,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=processor,
    )  # fmt: skip
    trainer.add_callback(GateCallback(gate, trainer))

    with pytest.raises(TrainingStoppedError, match="checkpoint-1: regressed"):
        trainer.train()

    (loss,) = [row for row in trainer.state.log_history if "loss" in row]
    assert "mean_token_accuracy" in loss
