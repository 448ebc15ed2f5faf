"""LoRA weights for the tiny pipelines, trained by nothing, saved by the real libraries."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.tiny.common import edit_tensors, skip_before

RANK = 4
ALPHA = 8

LORA_FILE = "pytorch_lora_weights.safetensors"


def build_lora(
    pipeline_folder: Path,
    folder: Path,
    *,
    text_encoder: bool = False,
    dora: bool = False,
    seed: int = 31,
) -> Path:
    """A folder of LoRA weights for a pipeline's denoiser, as diffusers' training scripts write it.

    text_encoder: whether there are some for the text encoder too. dora: with magnitudes.
    """
    import torch

    skip_before("LoRA with metadata", "diffusers", "0.35")
    from diffusers import DiffusionPipeline
    from diffusers.training_utils import _collate_lora_metadata
    from diffusers.utils import convert_state_dict_to_diffusers
    from peft import LoraConfig, get_peft_model_state_dict

    pipeline = DiffusionPipeline.from_pretrained(pipeline_folder)
    denoiser = "unet" if hasattr(pipeline, "unet") else "transformer"
    trained: dict[str, Any] = {denoiser: getattr(pipeline, denoiser)}
    targets = {denoiser: ["to_q", "to_k", "to_v", "to_out.0"]}
    if text_encoder:
        trained["text_encoder"] = pipeline.text_encoder
        targets["text_encoder"] = ["q_proj", "v_proj"]
    torch.manual_seed(seed)
    layers = {}
    for name, module in trained.items():
        config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets[name], use_dora=dora)
        module.add_adapter(config)
        for key, tensor in module.named_parameters():
            if ".lora_B." in key:  # zero when a training begins
                torch.nn.init.normal_(tensor.data, std=0.1)
        state = get_peft_model_state_dict(module)
        layers[f"{name}_lora_layers"] = (
            state if name == "transformer" else convert_state_dict_to_diffusers(state)
        )
    metadata = _collate_lora_metadata(trained)
    type(pipeline).save_lora_weights(folder, **layers, **metadata)
    return folder


def to_kohya(lora: Path, file: Path) -> Path:
    """The same weights of a UNet under the names of kohya's scripts, each layer with its alpha."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = {}
    for name, tensor in load_file(lora / LORA_FILE).items():
        layer, _, side = name.removeprefix("unet.").partition(".lora.")
        flat = f"lora_unet_{layer.replace('.', '_')}"
        tensors[f"{flat}.lora_{side}"] = tensor
        tensors[f"{flat}.alpha"] = torch.tensor(float(ALPHA))
    save_file(tensors, file, metadata={"format": "pt"})
    return file


def to_peft(lora: Path, file: Path) -> Path:
    """The same weights under peft's names: LAYER.lora_A.weight and LAYER.lora_B.weight.

    Their alpha goes with them, since without it the rank is taken.
    """

    def rename(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            own = name.replace(".lora.down.", ".lora_A.").replace(".lora.up.", ".lora_B.")
            tensors[own] = tensors.pop(name)

    shutil.copy(lora / LORA_FILE, file)
    edit_tensors(file, rename)
    return file


def merge_by_hand(pipeline_folder: Path, lora: Path, folder: Path, scale: float = 1.0) -> Path:
    """A copy of a pipeline whose UNet has the LoRA added in: W + scale * alpha / rank * B A."""
    from safetensors.torch import load_file

    shutil.copytree(pipeline_folder, folder)
    tensors = load_file(lora / LORA_FILE)

    def add(weights: dict[str, Any]) -> None:
        for name, down in tensors.items():
            layer, _, side = name.removeprefix("unet.").partition(".lora.")
            if side == "down.weight":
                up = tensors[name.replace(".down.", ".up.")]
                weights[f"{layer}.weight"] += scale * ALPHA / RANK * (up @ down)

    edit_tensors(folder / "unet" / "diffusion_pytorch_model.safetensors", add)
    return folder
