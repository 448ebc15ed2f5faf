"""Components of other folders in tiny pipelines, saved by diffusers, loaded as a user would."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pytest_cepbench.errors import CheckpointError
from tests.models.pipelines.conftest import bind_generator, draw
from tests.tiny import generators as tiny

pytest.importorskip("torch", reason="generators need the [models] extra")
pytest.importorskip("diffusers", reason="generators need the [models] extra")

pytestmark = pytest.mark.models

DRAW = tiny.DRAW["stable-diffusion"]


@pytest.fixture(scope="module")
def run(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training's folder: its UNet, and the average of its weights as EMAModel saves it."""
    import torch
    from diffusers import UNet2DConditionModel
    from diffusers.training_utils import EMAModel

    run = tmp_path_factory.mktemp("run") / "checkpoint-8"
    unet = UNet2DConditionModel.from_pretrained(folders["stable-diffusion"] / "unet")
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
    return run


@pytest.mark.slow
def test_a_component_draws_what_the_pipeline_with_it_draws(
    folders: dict[str, Path], run: Path, tmp_path: Path
) -> None:
    """Pixel for pixel: BASE?unet=FOLDER, FOLDER?base=BASE, and the pipeline that was put together.

    The averaged weights, whose configuration holds the average's own settings, draw others.
    """
    base = folders["stable-diffusion"]
    whole = Path(shutil.copytree(base, tmp_path / "whole"))
    shutil.rmtree(whole / "unet")
    shutil.copytree(run / "unet", whole / "unet")
    expected = draw(f"{whole}?{DRAW}")
    assert np.array_equal(draw(f"{base}?unet={run / 'unet'}&{DRAW}"), expected)
    assert np.array_equal(draw(f"{run}?base={base}&{DRAW}"), expected)
    averaged = draw(f"{base}?unet={run / 'unet_ema'}&{DRAW}")
    plain = draw(f"{base}?{DRAW}")
    assert np.abs(averaged - expected).max() > 1e-3
    assert np.abs(averaged - plain).max() > 1e-3


def test_text_encoder_and_autoencoder_can_be_replaced(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """Components of transformers too, and several at once."""
    base = folders["stable-diffusion"]
    other = tiny.build_stable_diffusion(tmp_path / "other", seed=77)
    query = f"unet={other}&vae={other / 'vae'}&text_encoder={other / 'text_encoder'}"
    assert np.array_equal(draw(f"{base}?{query}&{DRAW}"), draw(f"{other}?{DRAW}"))


def test_a_component_with_a_tensor_too_few_is_refused_by_name(
    folders: dict[str, Path], run: Path, tmp_path: Path
) -> None:
    """The library would fill it with random numbers."""
    unet = Path(shutil.copytree(run / "unet", tmp_path / "unet"))
    tiny.drop_tensor(unet / "diffusion_pytorch_model.safetensors", "conv_out.weight")
    with pytest.raises(CheckpointError, match=r"random numbers.*conv_out\.weight"):
        bind_generator(f"{folders['stable-diffusion']}?unet={unet}").load()


def test_a_component_that_is_written_again_is_noticed(
    folders: dict[str, Path], run: Path, tmp_path: Path
) -> None:
    """What is loaded is what was fingerprinted, in whatever folder it lies."""
    from pytest_cepbench.errors import IdentityError

    unet = Path(shutil.copytree(run / "unet", tmp_path / "unet"))
    bound = bind_generator(f"{folders['stable-diffusion']}?unet={unet}")
    shutil.copytree(run / "unet_ema", unet, dirs_exist_ok=True)
    with pytest.raises(IdentityError, match="changed after it was fingerprinted"):
        bound.load()
