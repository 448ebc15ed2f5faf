"""Tiny pipelines as single files in the layout of their authors' code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}

_UNET = {
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "conv_in": "input_blocks.0.0",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
}

LAYERS = 1  # resnets in each block of the tiny UNet


def write_stable_diffusion(pipeline_folder: Path, file: Path) -> Path:
    """A tiny Stable Diffusion as one file: `model.diffusion_model.`, `first_stage_model.`, CLIP."""
    from diffusers import StableDiffusionPipeline
    from safetensors.torch import save_file

    pipeline = StableDiffusionPipeline.from_pretrained(pipeline_folder)
    tensors = _unet_tensors(pipeline.unet) | dict(_vae_tensors(pipeline.vae))
    prefix = "cond_stage_model.transformer.text_model."
    texts = pipeline.text_encoder.state_dict().items()
    tensors |= {f"{prefix}{n.removeprefix('text_model.')}": t for n, t in texts}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)
    return file


def write_unet(pipeline_folder: Path, file: Path) -> Path:
    """The UNet alone in the same layout."""
    from diffusers import UNet2DConditionModel
    from safetensors.torch import save_file

    unet = UNet2DConditionModel.from_pretrained(pipeline_folder / "unet")
    save_file(_unet_tensors(unet), file)
    return file


def _unet_tensors(unet: Any) -> dict[str, Any]:
    tensors = unet.state_dict().items()
    return {f"model.diffusion_model.{_unet_name(name)}": tensor for name, tensor in tensors}


def _unet_name(name: str) -> str:
    for own, original in _UNET.items():
        if name.startswith(f"{own}."):
            return original + name.removeprefix(own)
    match = re.fullmatch(r"(down|mid|up)_blocks?\.(?:(\d)\.)?(\w+)\.(\d)\.(.*)", name)
    assert match, name
    side, block, kind, number, rest = match.groups()
    position = int(number) + int(block or 0) * (LAYERS + 1)
    if side == "mid":
        place = "middle_block.1" if kind == "attentions" else f"middle_block.{2 * int(number)}"
    elif side == "down":
        place = f"input_blocks.{position + 1}.{int(kind == 'attentions')}"
    else:
        place = f"output_blocks.{position}.{int(kind == 'attentions')}"
    if kind == "downsamplers":
        inner = rest.removeprefix("conv.")
        return f"input_blocks.{int(block) * (LAYERS + 1) + LAYERS + 1}.0.op.{inner}"
    if kind == "upsamplers":
        # Behind the attention of its block, where that has one; the first block of the way up has.
        return f"output_blocks.{int(block) * (LAYERS + 1) + LAYERS}.2.{rest}"
    if kind == "resnets":
        layer, _, parameter = rest.rpartition(".")
        return f"{place}.{_RESNET[layer]}.{parameter}"
    return f"{place}.{rest}"


def _vae_tensors(vae: Any) -> Iterator[tuple[str, Any]]:
    last = len(vae.config.up_block_types) - 1
    renamed: tuple[tuple[str, Any], ...] = (
        ("conv_norm_out", "norm_out"),
        ("conv_shortcut", "nin_shortcut"),
        (r"down_blocks\.(\d)\.resnets\.", r"down.\1.block."),
        (r"down_blocks\.(\d)\.downsamplers\.0", r"down.\1.downsample"),
        (r"up_blocks\.(\d)\.resnets\.", lambda m: f"up.{last - int(m[1])}.block."),
        (r"up_blocks\.(\d)\.upsamplers\.0", lambda m: f"up.{last - int(m[1])}.upsample"),
        (r"mid_block\.resnets\.(\d)", lambda m: f"mid.block_{int(m[1]) + 1}"),
        (r"mid_block\.attentions\.0\.group_norm\.", "mid.attn_1.norm."),
        (r"mid_block\.attentions\.0\.to_out\.0\.", "mid.attn_1.proj_out."),
        (r"mid_block\.attentions\.0\.to_(q|k|v)\.", r"mid.attn_1.\1."),
    )
    for name, tensor in vae.state_dict().items():
        changed = name
        for own, original in renamed:
            changed = re.sub(own, original, changed)
        # Attention is made of convolutions of one pixel there.
        flat = "attn_1" in changed and tensor.ndim == 2
        yield f"first_stage_model.{changed}", tensor[:, :, None, None] if flat else tensor
