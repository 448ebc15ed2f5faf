"""The training scripts, a few small steps of each: what they write loads as shipped models do."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.datasets.shapes import load_shapes
from pytest_cepbench.models.protocols import Describer, Encoder, Generator
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


@pytest.mark.slow
def test_training_again_goes_the_way_of_the_shipped_one(tmp_path: Path) -> None:
    """The first losses of the recipe are those in the log beside the shipped checkpoints.

    Scenes, pictures, weights, loss and schedule all have a part in them. Other processors round
    bfloat16 sums differently, so a little is allowed.
    """
    log = (REFERENCE / "checkpoints/describer.jsonl").read_text()
    shipped = json.loads(log.partition("\n")[0])
    script = [sys.executable, str(REFERENCE / "train_describer.py"), f"--out={tmp_path}"]

    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout is not None
        event = json.loads(training.stdout.readline())
        training.send_signal(signal.SIGTERM)

    assert (event["event"], event["step"]) == (shipped["event"], shipped["step"]) == ("loss", 25)
    assert event["caption"] == pytest.approx(shipped["caption"], abs=0.02)
    assert event["patches"] == pytest.approx(shipped["patches"], abs=0.02)
