"""Fingerprints and keys of checkpoints: the shipped ones, and every kind that tests build tiny.

Bytes of tiny checkpoints depend on the libraries that save them, so here their files are written by
hand: what a fingerprint is made of, and which role, adapter and parameters a kind of checkpoint
has, follows from names and configurations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.chains.steps import key_of
from pytest_cepbench.errors import RoleError, SpecError
from pytest_cepbench.models.protocols import ROLE_NAMES, RoleName
from tests.golden.frozen import assert_frozen
from tests.models.binding import bind_text
from tests.models.checkpoints.test_pipeline_parts import FORMS, write_base, write_unet
from tests.models.files import (
    LLAVA,
    STABLE_DIFFUSION,
    write_adapter,
    write_checkpoint,
    write_pipeline,
    write_tensors,
)

SHIPPED = Path(__file__).parents[2] / "reference" / "checkpoints"

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(find_spec("torch") is None, reason="checkpoints need the [models] extra"),
]


def test_shipped_checkpoints_in_every_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """Baselines of shipped suites and stores of CI name them by these digits."""
    monkeypatch.chdir(SHIPPED)
    names = sorted(path.name for path in SHIPPED.iterdir() if path.is_dir())
    assert_frozen(
        "checkpoints_shipped.json", {name: _roles(f"{name}?device=cpu") for name in names}
    )


def _roles(spec: str) -> dict[str, Any]:
    """Identity and key in every role that the checkpoint plays."""
    own = {role: _identity(spec, role) for role in ROLE_NAMES}
    return {role: identity for role, identity in own.items() if identity is not None}


def _identity(spec: str, role: RoleName) -> dict[str, Any] | None:
    try:
        bound = bind_text(spec, role)
    except (RoleError, SpecError):
        return None
    key = key_of(bound, "prompt", 7, [["image", "1" * 64]])
    return {**bound.identity, "what": bound.what, "seeded": bound.seeded, "key": key}


TRANSFORMERS: Mapping[str, Mapping[str, Any]] = {
    "blip": {"architectures": ["BlipForConditionalGeneration"], "model_type": "blip"},
    "convnext": {"architectures": ["ConvNextModel"], "model_type": "convnext"},
    "dinov2": {"architectures": ["Dinov2Model"], "model_type": "dinov2"},
    "clip": {"architectures": ["CLIPModel"], "model_type": "clip", "vision_config": {}},
    "siglip": {"architectures": ["SiglipModel"], "model_type": "siglip", "vision_config": {}},
    "vit-mae": {"architectures": ["ViTMAEForPreTraining"], "model_type": "vit_mae"},
    "idefics3": {
        "architectures": ["Idefics3ForConditionalGeneration"],
        "model_type": "idefics3",
        "vision_config": {},
        "image_token_id": 7,
    },
    "qwen2-vl": {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "vision_config": {},
        "image_token_id": 7,
    },
    "vit-gpt2": {
        "architectures": ["VisionEncoderDecoderModel"],
        "model_type": "vision-encoder-decoder",
    },
    "owlvit": {
        "architectures": ["OwlViTForObjectDetection"],
        "model_type": "owlvit",
        "text_config": {},
        "vision_config": {},
    },
    "yolos": {"architectures": ["YolosForObjectDetection"], "model_type": "yolos"},
}
"""Configurations as far as rules look at them, of the kinds that `tests/tiny` builds."""

PIPELINES = (
    "StableDiffusionXLPipeline", "PixArtAlphaPipeline", "LatentConsistencyModelPipeline",
    "SanaSprintPipeline", "StableDiffusion3Pipeline", "FluxPipeline",
    "StableDiffusionInstructPix2PixPipeline", "FluxKontextPipeline",
)  # fmt: skip

STATE = (
    "optimizer.pt", "scheduler.pt", "trainer_state.json", "training_args.bin", "README.md",
    "pytorch_model.bin", "modeling_own.py",
)  # fmt: skip
"""Files beside a checkpoint that change no answer."""


def _llava(folder: Path) -> Path:
    """A describer with a chat template and all that trainers leave beside it."""
    write_checkpoint(folder, LLAVA)
    for name in ("tokenizer.json", "processor_config.json", "generation_config.json", *STATE):
        (folder / name).write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


def _sharded(folder: Path) -> None:
    names = [f"model-0000{k}-of-00002.safetensors" for k in (1, 2)]
    write_checkpoint(folder, LLAVA, names[0])
    write_tensors(folder / names[1], {"v": (1,)})
    index = {"metadata": {}, "weight_map": {"w": names[0], "v": names[1]}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _lora(folder: Path, form: str = "peft") -> None:
    write_tensors(folder / "pytorch_lora_weights.safetensors", FORMS[form])
    (folder / "optimizer.bin").write_bytes(b"state")


PARTS: Mapping[str, Callable[[Path], object]] = {
    "llava": _llava,
    "sharded": _sharded,
    "run": lambda folder: _llava(folder / "checkpoint-500"),
    "bare": lambda folder: write_checkpoint(folder, LLAVA),
    "adapter": lambda folder: write_adapter(folder, "llava"),
    "dora": lambda folder: write_adapter(folder, "/elsewhere/llava", use_dora=True),
    "pipeline": write_base,
    "lora": _lora,
    "kohya": lambda folder: _lora(folder, "kohya"),
    "unet": lambda folder: write_unet(folder / "unet"),
}

SPECS: tuple[tuple[RoleName, str], ...] = (
    ("describer", "llava"),
    ("judge", "llava"),
    ("vqa", "llava"),
    ("describer", "sharded"),
    ("describer", "run"),
    ("describer", "bare?processor=llava"),
    ("describer", "adapter"),
    ("writer", "adapter"),
    ("describer", "dora?base=llava"),
    ("describer", "llava?adapters=adapter&weights=0.5"),
    ("describer", "adapter?merge=false"),
    ("generator", "pipeline"),
    ("generator", "pipeline?lora=lora"),
    ("generator", "pipeline?lora=lora,kohya&lora_scale=1,0.5"),
    ("generator", "lora?base=pipeline"),
    ("editor", "pipeline?lora=lora&strength=0.5"),
    ("generator", "pipeline?unet=unet"),
    ("generator", "unet?base=pipeline"),
)


def test_every_kind_of_tiny_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Roles, adapter, parameters with defaults, fingerprint and key by the configuration."""
    monkeypatch.chdir(tmp_path)
    for name, config in TRANSFORMERS.items():
        write_checkpoint(Path(name), {**config, "image_size": 32, "num_channels": 3})
    for name in PIPELINES:
        write_pipeline(Path(name), {**STABLE_DIFFUSION, "_class_name": name})
    kinds = (*TRANSFORMERS, *PIPELINES)
    assert_frozen("checkpoints_kinds.json", {name: _roles(f"{name}?device=cpu") for name in kinds})


def test_checkpoints_of_several_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adapters and their base, shards, a run's folder, LoRA weights, a replaced component."""
    monkeypatch.chdir(tmp_path)
    for name, write in PARTS.items():
        write(Path(name))
    specs = {f"{role} {text}": (role, text) for role, text in SPECS}
    frozen = {
        name: _identity(f"{text}{'&' if '?' in text else '?'}device=cpu", role)
        for name, (role, text) in specs.items()
    }
    assert_frozen("checkpoints_of_parts.json", frozen)
