"""Parameters of memory and attention, and quantized components: what they change and need."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.torch_runtime import quiet
from tests.models.pipelines.conftest import bind_generator, draw, load
from tests.tiny import generators as tiny
from tests.tiny import loras

pytestmark = pytest.mark.models

SMALL = "num_inference_steps=1&height=32&width=32"


def test_what_can_change_an_image_enters_the_key(folders: dict[str, Path]) -> None:
    """Tiles are blended where they meet. Where parts lie is as little of the key as the size of a
    batch.
    """
    folder = folders["flux"]
    plain = bind_generator(f"{folder}?{SMALL}").params
    tiles = bind_generator(f"{folder}?{SMALL}&vae_tiling=true").params
    placed = bind_generator(f"{folder}?{SMALL}&offload=model&device=cuda&dtype=float32")
    assert tiles == {**plain, "vae_tiling": True}
    assert placed.params == plain
    assert placed.resources.dispatched


def test_tiles_are_switched_on(folders: dict[str, Path]) -> None:
    """As the VAE itself tells."""
    text = f"{folders['stable-diffusion']}?{SMALL}"
    pipelines = [
        load(f"{text}{query}")._pipeline  # type: ignore[attr-defined]
        for query in ("", "&vae_tiling=true")
    ]
    assert [pipeline.vae.use_tiling for pipeline in pipelines] == [False, True]


DRAW = tiny.DRAW["flux"]


@pytest.fixture
def quantized(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A FLUX whose transformer's weights are whole numbers of eight bits, saved by torchao."""
    pytest.importorskip("torchao", reason="it quantizes")
    import torch
    from diffusers import FluxTransformer2DModel, TorchAoConfig
    from torchao.quantization import Int8WeightOnlyConfig

    folder = Path(shutil.copytree(folders["flux"], tmp_path / "quantized"))
    with quiet():
        transformer = FluxTransformer2DModel.from_pretrained(
            folder / "transformer",
            quantization_config=TorchAoConfig(Int8WeightOnlyConfig()),
            torch_dtype=torch.float32,
        )
    shutil.rmtree(folder / "transformer")
    transformer.save_pretrained(folder / "transformer")
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torchao's own, of its way to be loaded
def test_a_quantized_component_draws_nearly_what_the_whole_one_draws(
    folders: dict[str, Path], quantized: Path, tmp_path: Path
) -> None:
    """In the pipeline or in the place of its own; a LoRA works beside it, and is not merged."""
    expected = draw(f"{folders['flux']}?{DRAW}")
    image = draw(f"{quantized}?{DRAW}")
    assert 0 < np.abs(image - expected).max() < 0.05
    spec = f"{folders['flux']}?transformer={quantized / 'transformer'}&{DRAW}"
    assert np.array_equal(draw(spec), image)
    lora = loras.build_lora(folders["flux"], tmp_path / "lora")
    with pytest.raises(CheckpointError, match=r"quantized.*add fuse=false"):
        bind_generator(f"{quantized}?lora={lora}").load()
    assert np.abs(draw(f"{quantized}?lora={lora}&fuse=false&{DRAW}") - image).max() > 1e-3


@pytest.mark.filterwarnings("ignore")  # torchao's own, of its way to be loaded
def test_a_scale_that_is_no_number_is_refused_by_name(quantized: Path) -> None:
    """Whole numbers hold no NaN, and the scales beside them can."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    file = quantized / "transformer" / "diffusion_pytorch_model.safetensors"
    with safe_open(file, "pt") as stored:
        metadata = stored.metadata()
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("scale"))
    tensors[name] = torch.full_like(tensors[name], torch.nan)
    save_file(tensors, file, metadata=metadata)
    with pytest.raises(CheckpointError, match=r"NaN or infinite values in transformer\..*scale"):
        bind_generator(str(quantized)).load()
