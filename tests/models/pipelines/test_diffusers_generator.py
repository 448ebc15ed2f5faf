"""Generators: tiny pipelines saved by diffusers, bound and loaded as a user's would be."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.pipelines.roles import DiffusersGenerator
from pytest_cepbench.models.protocols import Generator
from tests.models.pipelines.conftest import (
    BUILDERS,
    FOLDERS,
    SEEDS,
    TEXTS,
    apart,
    bind_generator,
    levels,
    load,
)
from tests.optional import needs
from tests.tiny import generators as tiny
from tests.tiny import loras
from tests.tiny.common import edit_json, edit_tensors, skip_before

pytestmark = pytest.mark.models
needs("peft", reason="diffusers loads LoRA weights with it")


@pytest.fixture(scope="session")
def with_checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Stable Diffusion with a safety checker that lets everything pass."""
    folder = tmp_path_factory.mktemp("checked") / "stable-diffusion"
    return tiny.build_stable_diffusion(folder, safety_checker=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("stable-diffusion", ""),
        # An ancestral scheduler adds noise at every step: it too must follow the image's seed.
        ("stable-diffusion", "&scheduler=EulerAncestralDiscreteScheduler"),
        ("sdxl", ""),
        ("pixart", ""),
        ("flux", ""),
    ],
)
def test_an_image_depends_on_its_text_and_seed_and_not_on_its_batch(name: str, query: str) -> None:
    """Same text and seed: the same image alone, in a batch and in another order, within a level."""
    model = load(f"{FOLDERS[name]}?{tiny.DRAW[name]}{query}")
    batch = [levels(image) for image in model.generate(TEXTS, SEEDS)]
    reverse = [levels(image) for image in model.generate(TEXTS[::-1], SEEDS[::-1])][::-1]
    for index in range(3):
        (alone,) = model.generate([TEXTS[index]], [SEEDS[index]])
        assert batch[index].shape == (64, 64, 3)
        assert apart(levels(alone), batch[index]) <= 1
        assert apart(reverse[index], batch[index]) <= 1
    (again,) = model.generate([TEXTS[0]], [SEEDS[0]])
    (repeated,) = model.generate([TEXTS[0]], [SEEDS[0]])
    (other_seed,) = model.generate([TEXTS[0]], [SEEDS[0] + 1])
    (other_text,) = model.generate([TEXTS[1]], [SEEDS[0]])
    assert np.array_equal(levels(again), levels(repeated))
    assert apart(levels(again), levels(other_seed)) > 20
    assert apart(levels(again), levels(other_text)) > 1
    if query:
        (plain,) = load(f"{FOLDERS[name]}?{tiny.DRAW[name]}").generate(TEXTS[:1], SEEDS[:1])
        assert apart(levels(again), levels(plain)) > 1


@pytest.mark.parametrize("build", [tiny.build_qwen_image, tiny.build_flux2])
def test_newer_pipelines_draw(build: Callable[[Path], Path], tmp_path: Path) -> None:
    """Their autoencoders and tokenizers are of other kinds; an image depends on its own text. Files
    of their text encoders hold other names than the loaded models, which hide no further layer.
    """
    folder = build(tmp_path)
    model = load(f"{folder}?num_inference_steps=1&height=16&width=16")
    texts = ["two red circles", "one"]
    first, second = map(levels, model.generate(texts, SEEDS[:2]))
    assert apart(levels(model.generate(texts[1:], SEEDS[1:2])[0]), second) <= 1
    assert apart(first, second) > 1
    assert isinstance(model, DiffusersGenerator)
    assert model.text_lengths(texts) == ([3, 1], 512)

    def deepen(tensors: dict[str, Any]) -> None:
        further = {n.replace("layers.1.", "layers.31."): t.clone() for n, t in tensors.items()}
        tensors.update(further)

    edit_tensors(folder / "text_encoder" / "model.safetensors", deepen)
    with pytest.raises(CheckpointError, match=r"not know tensors .* text_encoder\..*layers\.31\."):
        load(str(folder))


@pytest.mark.slow
def test_a_flagged_image_is_a_failure_and_the_checker_can_be_taken_out(
    with_checker: Path, tmp_path: Path
) -> None:
    """The black square of a safety checker is no drawing; `safety_checker=false` draws the same as
    a checker that flags nothing.
    """
    draw = tiny.DRAW["stable-diffusion"]
    passed = load(f"{with_checker}?{draw}").generate(TEXTS[:2], SEEDS[:2])
    folder = Path(shutil.copytree(with_checker, tmp_path / "strict"))
    tiny.flag_everything(folder)
    flagged = load(f"{folder}?{draw}").generate(TEXTS[:2], SEEDS[:2])
    assert [getattr(image, "kind", None) for image in flagged] == ["blank-image"] * 2
    assert "safety checker" in str(flagged[0])
    bound = bind_generator(f"{folder}?{draw}&safety_checker=false")
    assert bound.params["safety_checker"] is False
    model = bound.load()
    assert isinstance(model, Generator)
    for image, reference in zip(model.generate(TEXTS[:2], SEEDS[:2]), passed, strict=True):
        assert np.array_equal(levels(image), levels(reference))


UNET = "unet/diffusion_pytorch_model.safetensors"


def drop(folder: Path) -> None:
    """Libraries fill in random numbers and log a line."""
    file = folder / "text_encoder" / "model.safetensors"
    edit_tensors(
        file, lambda t: [t.pop(n) for n in list(t) if n.endswith("final_layer_norm.weight")]
    )


def add_lora(folder: Path) -> None:
    """What was trained into it would be missing: the library leaves it out and logs a line."""
    import torch

    edit_tensors(folder / UNET, lambda t: t.update({"conv_in.lora_A.weight": torch.ones(2)}))


def widen(folder: Path) -> None:
    """A folder that was mixed from two models."""
    edit_json(folder / "unet" / "config.json", cross_attention_dim=48)


def drop_vocabulary(folder: Path) -> None:
    """The library would take a vocabulary of three tokens and draw the same for every text."""
    skip_before("a tokenizer that makes do without a vocabulary", "transformers", "5.0")
    (folder / "tokenizer" / "tokenizer.json").unlink()


def shorten(folder: Path) -> None:
    """Of a text encoder the library takes the layers that the configuration has, and logs nothing
    that could be told from a tower which it has no use for.
    """
    edit_json(folder / "text_encoder" / "config.json", num_hidden_layers=1)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (drop, r"random numbers: .*final_layer_norm\.weight"),
        (widen, r"stable-diffusion.*could not be loaded"),
        (drop_vocabulary, "tokenizer: no vocabulary"),
        (add_lora, r"lora_A.*allow_unused=true"),
        (shorten, r"text_encoder\..*layers\.1\..*allow_unused=true"),
    ],
    ids=["text encoder", "config", "tokenizer", "lora", "layers"],
)  # fmt: skip
def test_a_damaged_pipeline_is_refused(
    copy: Path, damage: Callable[[Path], None], words: str
) -> None:
    """In words that name what is wrong; what is not used may be allowed."""
    damage(copy)
    with pytest.raises(CheckpointError, match=words):
        bind_generator(str(copy)).load()
    if damage in (add_lora, shorten):
        load(f"{copy}?allow_unused=true")


SUITE = Path(__file__).parents[3] / "suites" / "folder" / "suite.toml"

PRESETS: dict[str, dict[str, Any]] = tomllib.loads(SUITE.read_text(encoding="utf-8"))["presets"]

CLASSES: dict[str, Callable[[Path], Path]] = {
    "sana-sprint": tiny.build_sana_sprint,
    "flux-1-schnell": BUILDERS["flux"],
    "sd-turbo": BUILDERS["stable-diffusion"],
    "sdxl-turbo": BUILDERS["sdxl"],
    "sdxl-lightning": BUILDERS["sdxl"],
    "lcm-dreamshaper": tiny.build_lcm,
    "pixart-lcm": tiny.build_pixart_lcm,
}


# What a pipeline of 64 pixels cannot do: sizes of a thousand, and half precision on a CPU.
SMALL: dict[str, Any] = {"height": 64, "width": 64, "dtype": "float32"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_a_pipeline_takes_the_settings_of_its_preset(name: str, tmp_path: Path) -> None:
    """Loaded by a pipeline of the same class and drawn with, all but the size as it is."""
    folder = CLASSES[name](tmp_path / name)
    parameters = {**PRESETS[name]["parameters"], **SMALL}
    if "lora" in parameters:
        parameters["lora"] = loras.build_lora(folder, tmp_path / "lora")
    if name in ("sana-sprint", "pixart-lcm"):
        parameters["use_resolution_binning"] = "false"  # it knows sizes around a thousand only
    model = load(f"{folder}?{urlencode(parameters)}")
    (image,) = model.generate(["two red circles"], [1])
    assert isinstance(image, np.ndarray)
    assert image.shape == (64, 64, 3)
    assert image.std() > 0


def test_every_preset_is_tried_and_draws_in_few_steps() -> None:
    """One that no test loads could name a wrong parameter; a gate with them is cheap."""
    assert set(PRESETS) == set(CLASSES)
    assert all(preset["parameters"]["num_inference_steps"] <= 8 for preset in PRESETS.values())
