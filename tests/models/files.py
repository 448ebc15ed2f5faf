"""Checkpoint folders written by hand: what inspection reads, without any model library."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint, fingerprint
from pytest_cepbench.models.checkpoints.inspection import complete_checkpoint, inspect_checkpoint
from pytest_cepbench.models.protocols import RoleName
from pytest_cepbench.models.spec import parse_spec
from tests.tiny import (
    describers,
    detectors,
    encoders,
    generators,
    sounds,
    unified,
)
from tests.tiny.weights_files import build_unicom

LLAVA = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "vision_config": {"model_type": "clip_vision_model"},
    "text_config": {"model_type": "llama"},
}
VIT = {"architectures": ["ViTModel"], "model_type": "vit", "image_size": 32, "num_channels": 3}
STABLE_DIFFUSION = {
    "_class_name": "StableDiffusionPipeline",
    "_diffusers_version": "0.42.1",
    "requires_safety_checker": False,
    "safety_checker": [None, None],
    "scheduler": ["diffusers", "DDIMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
}

LOADED: dict[str, tuple[RoleName, Callable[[Path], Path], str]] = {
    "describer": ("describer", describers.build_llava, "multi_modal_projector.linear_1.weight"),
    "encoder-decoder": ("describer", describers.build_vit_gpt2, ""),
    "generator": ("generator", generators.build_stable_diffusion, "unet.conv_in.weight"),
    "unified": ("generator", unified.build_janus, ""),
    "transformers": ("encoder", encoders.build_clip, "visual_projection.weight"),
    "open_clip": ("encoder", encoders.build_open_clip, "visual.ln_post.weight"),
    "timm": ("encoder", encoders.build_timm_vit, "blocks.0.attn.qkv.weight"),
    "sentences": ("encoder", encoders.build_sentence_transformer, "attention.attn.q.weight"),
    "unicom": ("encoder", build_unicom, ""),
    "detector": ("detector", detectors.build_yolos, "layernorm.weight"),
    "owl": ("detector", partial(detectors.build_owl, version=2), "box_head.dense0.weight"),
    "masks": ("detector", detectors.build_mask2former, "class_predictor.weight"),
    "hearing": ("encoder", sounds.build_wav2vec2, "encoder.layer_norm.weight"),
    "speech": ("generator", sounds.build_vits, "text_encoder.project.weight"),
}
"""Role, builder of a tiny one and the end of a tensor's name, of each way to load a checkpoint."""


def safetensors_bytes(values: bytes = b"\0\0\x80?") -> bytes:
    """A safetensors file with one float32 tensor of the given bytes, by the format's definition."""
    header = {"w": {"dtype": "F32", "shape": [len(values) // 4], "data_offsets": [0, len(values)]}}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + values


def write_tensors(path: Path, shapes: Mapping[str, tuple[int, ...]], **kinds: str) -> Path:
    """A safetensors file with zeros of these names and shapes; kinds: of those not float32."""
    header, end = {}, 0
    for name, shape in shapes.items():
        kind = kinds.get(name, "F32")
        size = prod(shape) * {"F32": 4, "I32": 4, "BF16": 2, "I8": 1}[kind]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))
    return path


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    weights: str | None = "model.safetensors",
    *,
    index: str = "config.json",
) -> Path:
    """A folder with a configuration and one weights file; `weights` None leaves that out."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / index).write_text(json.dumps(config), encoding="utf-8")
    if weights is not None:
        (folder / weights).write_bytes(safetensors_bytes())
    return folder


def write_adapter(folder: Path, base: str | None, **config: Any) -> Path:
    """A LoRA's folder, as far as inspection looks at it."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"peft_type": "LORA", "base_model_name_or_path": base, **config}
    (folder / "adapter_config.json").write_text(json.dumps(values), encoding="utf-8")
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes())
    return folder


def write_pipeline(folder: Path, index: Mapping[str, Any] = STABLE_DIFFUSION) -> Path:
    """A pipeline's folder with the components of STABLE_DIFFUSION."""
    write_checkpoint(folder, index, None, index="model_index.json")
    write_checkpoint(folder / "unet", {}, "diffusion_pytorch_model.safetensors")
    write_checkpoint(folder / "text_encoder", {})
    write_checkpoint(folder / "scheduler", {}, None, index="scheduler_config.json")
    write_checkpoint(folder / "tokenizer", {}, None, index="tokenizer_config.json")
    return folder


def fingerprint_of(target: Path | str, query: str = "") -> str:
    """The fingerprint of what a spec names, whether or not it is whole."""
    checkpoint = inspect_checkpoint(parse_spec(f"{target}{query}"))
    return fingerprint(checkpoint, lambda path: sha256(path.read_bytes()).hexdigest())


def inspect(target: Path | str, query: str = "") -> Checkpoint:
    """Inspect and complete, as binding does."""
    spec = parse_spec(f"{target}{query}")
    checkpoint = inspect_checkpoint(spec)
    complete_checkpoint(checkpoint)
    return checkpoint
