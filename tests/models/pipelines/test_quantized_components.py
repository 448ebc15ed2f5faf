"""Pipelines with quantized components: loaded where the library is there, explained where not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pytest_cepbench.errors import CheckpointError, MissingDependencyError
from pytest_cepbench.models.torch_runtime import quiet
from tests.models.pipelines.conftest import bind_generator, draw
from tests.tiny import generators as tiny
from tests.tiny import loras

pytest.importorskip("torch", reason="generators need the [models] extra")
pytest.importorskip("diffusers", reason="generators need the [models] extra")

pytestmark = pytest.mark.models

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


@pytest.mark.parametrize(
    ("method", "error", "words"),
    [
        ("modelopt", MissingDependencyError, "needs modelopt, not installed: pip install nvidia"),
        ("bitsandbytes", CheckpointError, "runs on an accelerator only"),
    ],
)
def test_what_cannot_be_read_here_is_said_at_binding(
    copy: Path, method: str, error: type[Exception], words: str
) -> None:
    """A package that is missing, or a method that has no code for a CPU."""
    if method == "bitsandbytes":
        pytest.importorskip("bitsandbytes", reason="otherwise it is what is missing")
    file = copy / "unet" / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    stated = {"quantization_config": {"quant_method": method, "load_in_4bit": True}}
    file.write_text(json.dumps(config | stated), encoding="utf-8")
    with pytest.raises(error, match=words):
        bind_generator(f"{copy}?device=cpu")
