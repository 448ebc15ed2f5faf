"""Parameters of memory and attention, and quantized components: what they change and need."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.errors import CheckpointError, MissingDependencyError, SpecError
from pytest_cepbench.models.torch_runtime import quiet
from tests.models.pipelines.conftest import bind_generator, draw, load
from tests.tiny import generators as tiny
from tests.tiny import loras
from tests.tiny.common import skip_before

pytestmark = pytest.mark.models

SMALL = "num_inference_steps=1&height=32&width=32"


def test_what_can_change_an_image_enters_the_key(folders: dict[str, Path]) -> None:
    """Tiles are blended where they meet, and attention rounds otherwise. How many images the VAE
    decodes at a time, and where parts lie, is as little of the key as the size of a batch.
    """
    folder = folders["flux"]
    plain = bind_generator(f"{folder}?{SMALL}").params
    slices = bind_generator(f"{folder}?{SMALL}&vae_slicing=true&vae_tiling=false").params
    tiles = bind_generator(f"{folder}?{SMALL}&vae_tiling=true&attention_backend=native").params
    placed = bind_generator(f"{folder}?{SMALL}&offload=model&device=cuda&dtype=float32")
    assert slices == plain
    assert tiles == {**plain, "vae_tiling": True, "attention_backend": "native"}
    assert placed.params == plain
    assert placed.resources.dispatched


def test_slices_and_tiles_are_switched_on(folders: dict[str, Path]) -> None:
    """As the VAE itself tells."""
    text = f"{folders['stable-diffusion']}?{SMALL}"
    pipelines = [
        load(f"{text}{query}")._pipeline  # type: ignore[attr-defined]
        for query in ("", "&vae_slicing=true", "&vae_tiling=true")
    ]
    assert [pipeline.vae.use_slicing for pipeline in pipelines] == [False, True, False]
    assert [pipeline.vae.use_tiling for pipeline in pipelines] == [False, False, True]


def test_an_attention_is_chosen_for_one_pipeline_alone(folders: dict[str, Path]) -> None:
    """The library makes a choice for one model that of all others, too: they would be run with an
    attention that their keys do not name.
    """
    skip_before("attention_backend", "diffusers", "0.35")
    from diffusers.models.attention_dispatch import _AttentionBackendRegistry

    before = _AttentionBackendRegistry.get_active_backend()
    plain = load(f"{folders['flux']}?{SMALL}")
    chosen = load(f"{folders['flux']}?{SMALL}&attention_backend=_native_math")
    assert _AttentionBackendRegistry.get_active_backend() == before
    backends = [_backends(model) for model in (plain, chosen)]
    assert backends == [{None}, {"_native_math"}]
    drawn = [np.asarray(model.generate(["a red circle"], [0])[0]) for model in (chosen, plain)]
    np.testing.assert_allclose(drawn[0], drawn[1], atol=1e-4)


def _backends(model: object) -> set[str | None]:
    transformer = model._pipeline.transformer  # type: ignore[attr-defined]
    processors: list[Any] = [getattr(module, "processor", None) for module in transformer.modules()]
    backends = [p._attention_backend for p in processors if hasattr(p, "_attention_backend")]
    return {None if backend is None else backend.value for backend in backends}


@pytest.mark.parametrize(
    ("name", "query", "expected"),
    [
        ("stable-diffusion", "attention_backend=native", "has no backends to choose from"),
        ("flux", "attention_backend=sdpa", "unknown attention_backend 'sdpa'. Known: "),
        ("flux", "attention_backend=flash_hub", "unknown attention_backend 'flash_hub'"),
    ],
)
def test_an_attention_that_cannot_be_had_is_refused(
    folders: dict[str, Path], name: str, query: str, expected: str
) -> None:
    """Never left as it was in silence; and those of the hub would be downloaded code."""
    skip_before("attention_backend", "diffusers", "0.35")
    with pytest.raises(SpecError, match=re.escape(expected)):
        load(f"{folders[name]}?{query}")


def test_an_attention_whose_package_is_missing_is_named(folders: dict[str, Path]) -> None:
    """The library says which package it is, and which version."""
    skip_before("attention_backend", "diffusers", "0.35")
    from importlib import util

    if util.find_spec("flash_attn") is not None:
        pytest.skip("flash-attn is installed")
    expected = "attention_backend=flash cannot be used here: .*flash-attn"
    with pytest.raises(MissingDependencyError, match=expected):
        load(f"{folders['flux']}?attention_backend=flash")


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
