"""The training scripts, a few small steps of each: what they write loads as shipped models do."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.datasets.shapes.arena import load_shapes_arena
from pytest_cepbench.models.protocols import (
    Battle,
    Describer,
    Encoder,
    Generator,
    Judge,
    Reply,
    Writer,
)
from tests.models.binding import bind_text
from tests.reference.conftest import REFERENCE

pytest.importorskip("torch", reason="the training needs the [models] extra")
pytest.importorskip("diffusers", reason="the training needs the [models] extra")

pytestmark = [pytest.mark.models, pytest.mark.slow]

Train = Callable[..., None]

SMALL = {
    "train_describer": {"_HELD_OUT": 4},
    "train_autoencoder": {"_HELD_OUT": 4},
    "train_generator": {"_HELD_OUT": 2, "_TEXT_STEPS": 2},
    "train_clip": {"_HELD_OUT": 8, "_CHANGED": 4},
    "train_planner": {"_UNSEEN": 1},
    "train_judge": {"_HELD_OUT": 4},
}
"""What command lines do not name: what is looked at in the end, lessons before the first step."""


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> Iterator[Train]:
    """Runs a script's `main` in this process, which is left as it was."""
    import torch

    threads = torch.get_num_threads()

    def run(script: str, *options: str) -> None:
        module = importlib.import_module(script)
        for name, value in SMALL[script].items():
            monkeypatch.setattr(module, name, value)
        monkeypatch.setattr(sys, "argv", [f"{script}.py", *options])
        module.main()

    yield run
    torch.set_num_threads(threads)


def pictures(number: int) -> list[Image.Image]:
    """Of the suite's scenes."""
    return [
        sample.image.load().to_pil() for sample in load_shapes(1, seed=0).samples if sample.image
    ][:number]


def events(log: Path) -> list[tuple[str, int]]:
    """What a training wrote down, in order."""
    lines = log.read_text().splitlines()
    return [(line["event"], line["step"]) for line in map(json.loads, lines)]


def test_describer_speaks_after_any_step_and_the_same_seed_gives_the_same_weights(
    train: Train, tmp_path: Path
) -> None:
    """Each saved step is a checkpoint that describes; a second training gives the same bits."""
    options = ("--steps=3", "--batch=4", "--save=1")

    train("train_describer", *options, f"--out={tmp_path / 'one'}")
    train("train_describer", *options, f"--out={tmp_path / 'two'}")

    saved = [tmp_path / "one" / f"describer-step{step}" for step in (1, 3)]
    assert events(tmp_path / "one" / "describer.jsonl") == [("quality", 1), ("quality", 3)]
    weights = [(folder / "model.safetensors").read_bytes() for folder in saved]
    assert weights[0] != weights[1]
    for folder, first in zip(saved, weights, strict=True):
        again = tmp_path / "two" / folder.name / "model.safetensors"
        assert again.read_bytes() == first, folder.name
        model = bind_text(str(folder), "describer").load()
        assert isinstance(model, Describer)
        assert len(model.describe(pictures(2), "describe the image", [0, 0])) == 2


def test_generator_draws_in_the_latents_of_its_autoencoder(train: Train, tmp_path: Path) -> None:
    """The autoencoder is trained first, the generator builds upon it and draws."""
    train("train_autoencoder", "--steps=2", "--batch=2", f"--out={tmp_path}")
    train(
        "train_generator", "--steps=2", "--batch=4", "--scenes=8", "--save=1", f"--out={tmp_path}"
    )

    names = [name for name, _ in events(tmp_path / "generator.jsonl")]
    assert names == ["reading", "prepared", "quality", "quality"]
    assert events(tmp_path / "autoencoder.jsonl") == [("quality", 2)]
    folder = tmp_path / "generator-step2"
    spec = f"{folder}?num_inference_steps=2&guidance_scale=1"
    model = bind_text(spec, "generator").load()
    assert isinstance(model, Generator)
    (drawn,) = model.generate(["one shape : small red circle top left"], [0])
    assert np.asarray(drawn).shape == (64, 64, 3)


def test_encoder_puts_pictures_and_texts_into_one_space(train: Train, tmp_path: Path) -> None:
    """The CLIP that comes out encodes both."""
    train("train_clip", "--steps=2", "--batch=4", f"--out={tmp_path}")

    assert events(tmp_path / "clip.jsonl") == [("quality", 2)]
    model = bind_text(str(tmp_path / "clip"), "encoder").load()
    assert isinstance(model, Encoder)
    seen: Any = model.encode_images(pictures(2))
    texts: Any = model.encode_texts(["no shape", "one shape : small red circle top left"])
    assert np.shape(seen) == np.shape(texts) == (2, 128)


def test_planner_answers_after_any_step_and_sees_as_the_describer_does(
    train: Train, tmp_path: Path
) -> None:
    """Each saved step is a checkpoint that writes; the tower is the describer's to the last bit."""
    from safetensors.torch import load_file

    train("train_planner", "--steps=3", "--batch=8", "--save=1", f"--out={tmp_path}")

    assert events(tmp_path / "planner.jsonl") == [("quality", 1), ("quality", 3)]
    begun = load_file(REFERENCE / "checkpoints/describer-step2000/model.safetensors")
    changed = []
    for name in ("planner-step1", "planner-final"):
        weights = load_file(tmp_path / name / "model.safetensors")
        assert weights.keys() == begun.keys()
        changed.append({k for k in begun if k != EMBEDDINGS and not weights[k].equal(begun[k])})
        model = bind_text(str(tmp_path / name), "writer").load()
        assert isinstance(model, Writer)
        texts = model.write(questions(), "", [0] * len(questions()))
        assert all(isinstance(text, str) for text in texts)
    assert changed[0]
    assert changed[0] <= changed[1]
    assert not [name for name in changed[1] if "vision_tower" in name]


def test_judge_sees_marks_and_judges_and_goes_on_where_it_was_stopped(
    train: Train, tmp_path: Path
) -> None:
    """What comes out is a plain Qwen2-VL whose verdicts are likelihoods; heads stay behind."""
    from safetensors.torch import load_file

    small = ("--sight-steps=2", "--sight-batch=4", "--mark-steps=2", "--mark-batch=4", "--batch=2")
    out = f"--out={tmp_path}"
    losses = ("--contrast=0.1", "--features=0.1")

    train("train_judge", *small, *losses, "--steps=2", out)
    first = load_file(tmp_path / "judge" / "model.safetensors")
    train("train_judge", *small, *losses, "--steps=4", "--resume", out)

    names = [(name, step) for name, step in events(tmp_path / "judge.jsonl") if step]
    assert names == [("seen", 2), ("unseen", 2), ("seen", 4), ("unseen", 4)]
    weights = load_file(tmp_path / "judge" / "model.safetensors")
    assert weights.keys() == first.keys()
    assert [name for name in weights if not weights[name].equal(first[name])]
    assert not [name for name in weights if not name.startswith(("model.", "visual.", "lm_head."))]
    model = bind_text(str(tmp_path / "judge"), "judge").load()
    assert isinstance(model, Judge)
    (question, *_) = questions()
    battle = Battle(question, ["no shapes"], ["one shape : small red circle top left"])
    (reply,) = model.judge([battle], [0])
    assert isinstance(reply, Reply)
    assert reply.value in WINNERS


EMBEDDINGS = "language_model.model.embed_tokens.weight"


def test_planner_begins_with_the_words_of_the_describer() -> None:
    """Each that both know has its embedding, whatever its number is; nothing else is changed."""
    import torch
    from train_planner import DESCRIBER, Trainer
    from transformers import LlavaForConditionalGeneration, LlavaProcessor

    trainer = Trainer("cpu")
    trainer.start_from(DESCRIBER)

    there = LlavaForConditionalGeneration.from_pretrained(DESCRIBER, dtype=torch.float32)
    tokenizers = [LlavaProcessor.from_pretrained(DESCRIBER).tokenizer, trainer.processor.tokenizer]
    tables = [model.get_input_embeddings().weight for model in (there, trainer.model)]
    for word in ("<bos>", "<eos>", "<image>", ":", "assistant", "shapes", "four", "large", "cross"):
        theirs, ours = (
            table[tokenizer.convert_tokens_to_ids(word)]
            for table, tokenizer in zip(tables, tokenizers, strict=True)
        )
        assert theirs.equal(ours), word
    assert {*tokenizers[1].get_vocab()} - {*tokenizers[0].get_vocab()} >= {"swap", "<IMG>", "then"}
    ours = trainer.model.state_dict()
    for name, tensor in there.state_dict().items():
        if tensor.shape == ours[name].shape:
            assert tensor.equal(ours[name]), name


def questions() -> list[list[Any]]:
    """One of each category of the arena, with no, one and two images."""
    return [
        [piece if isinstance(piece, str) else piece.load().to_pil() for piece in sample.question]
        for sample in load_shapes_arena(1, seed=0).samples
    ]


class LoggedError(Exception):
    """A training has written its first line."""


@pytest.mark.parametrize(
    ("name", "losses"), [("describer", ("caption", "patches")), ("planner", ("answer",))]
)
def test_training_again_goes_the_way_of_the_shipped_one(
    name: str,
    losses: tuple[str, ...],
    train: Train,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first losses of the recipe are those in the log beside the shipped checkpoints.

    Scenes, pictures, weights, loss and schedule all have a part in them. It goes in float32, ten
    times as fast where a processor has no bfloat16; how sums are rounded makes a little difference.
    """
    script = importlib.import_module(f"train_{name}")

    class FirstLine(script.Log):  # type: ignore[misc, name-defined] # a module by its name
        def __call__(self, *event: Any, **values: Any) -> None:
            super().__call__(*event, **values)
            raise LoggedError

    monkeypatch.setattr(script, "Log", FirstLine)
    monkeypatch.setattr(script, "half_precision", lambda device: nullcontext())
    with pytest.raises(LoggedError):
        train(f"train_{name}", f"--out={tmp_path}")

    event, shipped = (
        json.loads((folder / f"{name}.jsonl").read_text().partition("\n")[0])
        for folder in (tmp_path, REFERENCE / "checkpoints")
    )
    assert (event["event"], event["step"]) == (shipped["event"], shipped["step"]) == ("loss", 25)
    for loss in losses:
        assert event[loss] == pytest.approx(shipped[loss], abs=0.02)
