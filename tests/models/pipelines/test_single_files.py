"""Components from other folders, and components and whole pipelines as single files."""

from __future__ import annotations

import json
import shutil
from collections import ChainMap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pytest_cepbench.errors import CheckpointError
from tests.models.binding import bind_text
from tests.models.pipelines.conftest import bind_generator, draw
from tests.tiny import generators as tiny
from tests.tiny import loras, single_files
from tests.tiny.common import edit_tensors

pytestmark = pytest.mark.models

DRAW = tiny.DRAW["stable-diffusion"]


@pytest.fixture(scope="module")
def base(folders: dict[str, Path]) -> Path:
    """A tiny Stable Diffusion as diffusers saves it."""
    return folders["stable-diffusion"]


@pytest.fixture(scope="module")
def drawn(base: Path) -> npt.NDArray[np.float32]:
    """What it draws."""
    return draw(f"{base}?{DRAW}")


@pytest.fixture(scope="module")
def files(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in one file, and its UNet alone, in their authors' layout."""
    folder = tmp_path_factory.mktemp("files")
    single_files.write_stable_diffusion(base, folder / "pipeline.safetensors")
    single_files.write_unet(base, folder / "unet.safetensors")
    return folder


@pytest.mark.slow
def test_a_single_file_draws_what_the_folder_draws(
    base: Path, files: Path, drawn: Any, tmp_path: Path
) -> None:
    """Pixel for pixel, with the configuration alone beside it, as it is fetched; fingerprints
    follow both.
    """
    config = Path(
        shutil.copytree(base, tmp_path / "config", ignore=shutil.ignore_patterns("*.safetensors"))
    )
    file = files / "pipeline.safetensors"
    assert np.array_equal(draw(f"{file}?config={config}&{DRAW}"), drawn)
    fingerprint = bind_generator(f"{file}?config={config}").fingerprint
    assert bind_generator(f"{file}?config={base}").fingerprint == fingerprint
    assert bind_generator(str(base)).fingerprint != fingerprint
    settings = config / "scheduler" / "scheduler_config.json"
    settings.write_text(settings.read_text(encoding="utf-8") + " ", encoding="utf-8")
    assert bind_generator(f"{file}?config={config}").fingerprint != fingerprint


@pytest.mark.slow
def test_the_file_of_one_component_takes_its_place(base: Path, files: Path, drawn: Any) -> None:
    """In the layout of the authors or of diffusers; the base's own weights do not count then."""
    own = base / "unet" / "diffusion_pytorch_model.safetensors"
    for file in (files / "unet.safetensors", own):
        assert np.array_equal(draw(f"{base}?unet={file}&{DRAW}"), drawn)
    prints = {bind_generator(f"{base}?unet={file}").fingerprint for file in files.iterdir()}
    assert len(prints) == 2


@pytest.mark.slow
def test_a_single_file_takes_a_lora_and_can_be_an_editor(
    base: Path, files: Path, tmp_path: Path
) -> None:
    """What a pipeline can do does not depend on how it is stored."""
    pytest.importorskip("peft", reason="diffusers loads LoRA weights with it")
    lora = loras.build_lora(base, tmp_path / "lora")
    file = files / "pipeline.safetensors"
    assert np.array_equal(
        draw(f"{file}?config={base}&lora={lora}&{DRAW}"), draw(f"{base}?lora={lora}&{DRAW}")
    )
    bound = bind_text(f"{file}?config={base}&num_inference_steps=4&strength=0.5", "editor")
    assert type(bound.load()).__name__ == "DiffusersEditor"


@pytest.mark.slow
def test_pickled_files_are_read_only_where_that_is_allowed(
    base: Path, files: Path, drawn: Any, tmp_path: Path
) -> None:
    """A .ckpt draws the same as the safetensors that it was made of, after allow_pickle."""
    import torch
    from safetensors.torch import load_file

    file = tmp_path / "pipeline.ckpt"
    torch.save({"state_dict": load_file(files / "pipeline.safetensors")}, file)
    with pytest.raises(CheckpointError, match=r"pickled ones \?config=PIPELINE&allow_pickle"):
        bind_generator(str(file))
    with pytest.raises(CheckpointError, match="unpickling can run code"):
        bind_generator(f"{file}?config={base}")
    assert np.array_equal(draw(f"{file}?config={base}&allow_pickle=true&{DRAW}"), drawn)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{files}/pipeline.safetensors", r"whole pipeline add \?config=PIPELINE"),
        ("{files}/unet.safetensors", r'of a component write "PIPELINE\?COMPONENT='),
        ("{files}/pipeline.safetensors?config={flux}", "not the weights that the configuration"),
        ("{files}/pipeline.safetensors?config={sdxl}", r"not the weights.*label_emb\.0\.0\.weight"),
        ("{sdxl}?unet={files}/unet.safetensors", r"not the weights.*label_emb\.0\.0\.weight"),
        ("{pixart}?transformer={files}/unet.safetensors", "reads no PixArtTransformer2DModel"),
    ],
)
def test_a_file_without_its_configuration_is_explained(
    folders: dict[str, Path], files: Path, text: str, words: str
) -> None:
    """One line says which configuration is needed, or that it is of another family."""
    with pytest.raises(CheckpointError, match=words) as caught:
        bind_generator(text.format_map(ChainMap({"files": files}, folders))).load()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("drop", "meta tensor|are missing from it"),
        ("add", r"attentions\.0\.lora\.weight"),
        ("shallow", r"would leave out: .*layers\.1\."),
    ],
)
def test_a_tensor_too_few_or_too_many_is_an_error(
    base: Path, files: Path, tmp_path: Path, change: str, words: str
) -> None:
    """Diffusers leaves what is missing without values, and logs what it does not know. Of a text
    encoder it takes the layers that the configuration has, without a word.
    """
    import torch

    file = Path(shutil.copy(files / "pipeline.safetensors", tmp_path))
    name = "model.diffusion_model.output_blocks.0.1.norm.weight"
    config = Path(shutil.copytree(base, tmp_path / "config"))
    settings = config / "text_encoder" / "config.json"
    if change == "drop":
        edit_tensors(file, lambda tensors: tensors.pop(name))
    elif change == "add":
        lora = {name.replace("norm", "lora"): torch.ones(2)}
        edit_tensors(file, lambda tensors: tensors.update(lora))
    else:
        shallow = {**json.loads(settings.read_text(encoding="utf-8")), "num_hidden_layers": 1}
        settings.write_text(json.dumps(shallow), encoding="utf-8")
    with pytest.raises(CheckpointError, match=words):
        bind_generator(f"{file}?config={config}").load()


@pytest.mark.slow
def test_a_text_encoder_that_the_file_lacks_is_that_of_the_configuration(
    base: Path, files: Path, drawn: Any, tmp_path: Path
) -> None:
    """Files of large pipelines come without T5: it is read, and fingerprinted, beside them."""
    file = Path(shutil.copy(files / "pipeline.safetensors", tmp_path))
    edit_tensors(
        file, lambda t: [t.pop(name) for name in list(t) if name.startswith("cond_stage_model.")]
    )
    assert np.array_equal(draw(f"{file}?config={base}&{DRAW}"), drawn)
    other = Path(shutil.copytree(base, tmp_path / "other"))
    encoder = other / "text_encoder" / "model.safetensors"
    edit_tensors(encoder, lambda tensors: tensors.pop("final_layer_norm.weight"))
    prints = [bind_generator(f"{file}?config={place}").fingerprint for place in (base, other)]
    assert prints[0] != prints[1]


@pytest.mark.slow
def test_a_component_draws_what_the_pipeline_with_it_draws(
    base: Path, drawn: Any, tmp_path: Path
) -> None:
    """Pixel for pixel: BASE?unet=FOLDER, FOLDER?base=BASE, and the pipeline that was put together.

    The averaged weights, whose configuration holds the average's own settings, draw others.
    """
    import torch
    from diffusers import UNet2DConditionModel
    from diffusers.training_utils import EMAModel

    run = tmp_path / "checkpoint-8"  # as a training leaves it
    unet = UNet2DConditionModel.from_pretrained(base / "unet")
    average = EMAModel(
        unet.parameters(), decay=0.5, model_cls=UNet2DConditionModel, model_config=unet.config
    )
    torch.manual_seed(5)
    for _ in range(3):
        for weight in unet.parameters():
            weight.data += 0.02 * torch.randn_like(weight)
        average.step(unet.parameters())
    unet.save_pretrained(run / "unet")
    average.save_pretrained(run / "unet_ema")
    (run / "optimizer.bin").write_bytes(b"state")
    whole = Path(shutil.copytree(base, tmp_path / "whole"))
    shutil.rmtree(whole / "unet")
    shutil.copytree(run / "unet", whole / "unet")
    expected = draw(f"{whole}?{DRAW}")
    assert np.array_equal(draw(f"{base}?unet={run / 'unet'}&{DRAW}"), expected)
    assert np.array_equal(draw(f"{run}?base={base}&{DRAW}"), expected)
    averaged = draw(f"{base}?unet={run / 'unet_ema'}&{DRAW}")
    assert np.abs(averaged - expected).max() > 1e-3
    assert np.abs(averaged - drawn).max() > 1e-3


def test_text_encoder_and_autoencoder_can_be_replaced(base: Path, tmp_path: Path) -> None:
    """Components of transformers too, and several at once."""
    other = tiny.build_stable_diffusion(tmp_path / "other", seed=77)
    query = f"unet={other / 'unet'}&vae={other / 'vae'}&text_encoder={other / 'text_encoder'}"
    assert np.array_equal(draw(f"{base}?{query}&{DRAW}"), draw(f"{other}?{DRAW}"))
