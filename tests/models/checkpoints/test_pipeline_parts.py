"""Pipelines put together from several places, and files of LoRA weights: named and checked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CepError, CheckpointError
from pytest_cepbench.models.checkpoints.pipeline_parts import find_lora_file, is_lora
from tests.models.files import (
    LLAVA,
    STABLE_DIFFUSION,
    fingerprint_of,
    inspect,
    safetensors_bytes,
    write_checkpoint,
    write_pipeline,
    write_tensors,
)

UNET: dict[str, Any] = {"_class_name": "UNet2DConditionModel", "cross_attention_dim": 32}

WEIGHTS = "diffusion_pytorch_model.safetensors"


def write_unet(folder: Path, value: bytes = b"\0\0\0@", **settings: Any) -> Path:
    """A UNet's folder; value: its one weight."""
    write_checkpoint(folder, {**UNET, **settings}, None)
    (folder / WEIGHTS).write_bytes(safetensors_bytes(value))
    return folder


def write_base(folder: Path) -> Path:
    """A pipeline whose UNet has a configuration of the kind that diffusers writes."""
    write_pipeline(folder)
    write_unet(folder / "unet", b"\0\0\x80?")
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A whole pipeline."""
    return write_base(tmp_path / "base")


@pytest.fixture
def lora(tmp_path: Path) -> Path:
    """A folder of LoRA weights with the trainer's own files beside them."""
    folder = tmp_path / "run" / "checkpoint-8"
    write_tensors(folder / "pytorch_lora_weights.safetensors", FORMS["diffusers"])
    for name in ("optimizer.bin", "scheduler.bin", "random_states_0.pkl"):
        (folder / name).write_bytes(b"state")
    return folder


def test_a_replaced_component_is_fingerprinted_as_a_copied_one(base: Path, tmp_path: Path) -> None:
    """BASE?unet=FOLDER is the pipeline that holds that UNet: one model, one fingerprint."""
    unet = write_unet(tmp_path / "run" / "unet")
    copy = Path(shutil.copytree(base, tmp_path / "copy"))
    shutil.rmtree(copy / "unet")
    shutil.copytree(unet, copy / "unet")
    whole = fingerprint_of(f"{base}?unet={unet}")
    assert whole == fingerprint_of(str(copy)) != fingerprint_of(str(base))
    # The folder of its training is as good, and the other way around with base.
    by_unet = (f"{base}?unet={place}" for place in (unet, unet.parent))
    for spec in (*by_unet, f"{unet.parent}?base={base}"):
        assert fingerprint_of(spec) == whole
        assert inspect(spec).roles == ("generator", "editor")
    (base / "unet" / WEIGHTS).write_bytes(safetensors_bytes(b"\0\0\0\0"))
    assert fingerprint_of(f"{base}?unet={unet}") == whole
    shutil.rmtree(base / "unet")  # who trains a UNet need not keep the old one
    assert fingerprint_of(f"{base}?unet={unet}") == whole
    with pytest.raises(CheckpointError, match="'unet', and no such folder"):
        inspect(str(base))
    (unet / "config.json").write_text(json.dumps({**UNET, "layers": 2}), encoding="utf-8")
    other = fingerprint_of(f"{base}?unet={unet}")
    (unet / WEIGHTS).write_bytes(safetensors_bytes(b"\0\0\0\0"))
    assert len({whole, other, fingerprint_of(f"{base}?unet={unet}")}) == 3
    (unet / WEIGHTS).write_bytes(safetensors_bytes()[:-2])
    with pytest.raises(CheckpointError, match="copied only in part"):
        inspect(f"{base}?unet={unet}")


def test_lora_weights_are_part_of_the_fingerprint(base: Path, lora: Path, tmp_path: Path) -> None:
    """Their bytes and their order count, where they lie and the trainer's states do not."""
    plain = fingerprint_of(f"{base}?lora={lora}")
    assert plain == fingerprint_of(f"{lora}?base={base}")
    checkpoint = inspect(f"{lora}?base={base}")
    assert checkpoint.what == "StableDiffusionPipeline"
    assert str(lora) in checkpoint.remarks[0]
    assert plain == fingerprint_of(f"{base}?lora={lora / 'pytorch_lora_weights.safetensors'}")
    renamed = write_tensors(tmp_path / "kept" / "step-8.safetensors", FORMS["diffusers"])
    assert plain == fingerprint_of(f"{base}?lora={renamed}")
    other = write_tensors(tmp_path / "other.safetensors", FORMS["kohya"])
    both = fingerprint_of(f"{base}?lora={lora},{other}")
    assert len({plain, both, fingerprint_of(f"{base}?lora={other},{lora}")}) == 3
    assert plain != fingerprint_of(str(base))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{lora}", r'LoRA weights.*"{lora}\?base=PIPELINE"'),
        ("{lora}/pytorch_lora_weights.safetensors", r"safetensors\?base=PIPELINE"),
        ("{base}/unet", r'single component.*"PIPELINE\?unet={base}/unet"'),
        ("{run}", r'unet without the rest of a pipeline.*"{run}\?base=PIPELINE"'),
        ("{base}?base={base}", "whole pipeline, which needs no base"),
        ("{base}?config={base}", "config goes with a file of weights"),
        ("{lora}?base={base}&config={base}", "base is for LoRA weights"),
        ("{base}?unet={base}/nothing", "nothing: not the unet .* no such folder or file"),
        ("{base}?unet={base}/scheduler", "scheduler: not the unet .* no config.json"),
        ("{base}?vae={run}/unet", "unknown component of StableDiffusionPipeline 'vae'"),
        ("{base}?text_encoder={run}/unet", "a UNet2DConditionModel, and the text_encoder .* CLIP"),
        ("{base}?unet={wide}", "cross_attention_dim is 64, the pipeline's 32"),
        ("{base}?unet={empty}", "no weights. Expected safetensors"),
        ("{base}?lora={base}", "no LoRA weights"),
        ("{base}?lora={base}/nothing", "no LoRA weights: there is no such folder or file"),
        ("{base}?lora={base}/lora.bin", "read from safetensors"),
        ("{vae}?base={base}", r'single component.*"PIPELINE\?vae={vae}"'),
        ("{other}?base={own}", "image_encoder of a pipeline, which no parameter replaces"),
        ("{lora}?base={llava}", r"belongs to a pipeline .* is a LlavaForConditionalGeneration"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_what_to_type(
    base: Path, lora: Path, tmp_path: Path, text: str, words: str
) -> None:
    """Each is a mistake that the libraries would pass over, or explain by a traceback."""
    places = {
        "base": base,
        "lora": lora,
        "run": write_unet(tmp_path / "training" / "unet").parent,
        "wide": write_unet(tmp_path / "wide", cross_attention_dim=64),
        "empty": write_checkpoint(tmp_path / "empty", UNET, None),
        "llava": write_checkpoint(tmp_path / "llava", LLAVA),
        "vae": write_checkpoint(tmp_path / "vae", {"_class_name": "AutoencoderKL"}),
        "other": write_unet(tmp_path / "other" / "unet").parent,
        "own": write_pipeline(
            tmp_path / "own",
            STABLE_DIFFUSION | {"image_encoder": ["transformers", "CLIPVisionModel"]},
        ),
    }
    write_checkpoint(tmp_path / "other" / "image_encoder", {})
    (base / "lora.bin").write_bytes(b"pickle")
    with pytest.raises(CepError, match=words.format(**places)) as caught:
        inspect(text.format(**places))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("average", ["unet_ema", "ema_unet"])
def test_the_average_of_the_weights_is_never_left_out_in_silence(
    base: Path, lora: Path, tmp_path: Path, average: str
) -> None:
    """Beside the weights a remark names it; alone, the base's would be gated in its place."""
    ema = write_unet(lora / average)
    with pytest.raises(CheckpointError, match=f"gate it with unet={ema}"):
        inspect(f"{lora}?base={base}")
    checkpoint = inspect(f"{lora}?base={base}&unet={ema}")
    assert ema in [part.path for part in checkpoint.parts]
    write_unet(lora / "unet")
    checkpoint = inspect(f"{lora}?base={base}")
    assert [line for line in checkpoint.remarks if f"gate it with unet={ema}" in line]


LAYER = "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"

KOHYA = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q"

FORMS: dict[str, dict[str, tuple[int, ...]]] = {
    "diffusers": {f"{LAYER}.lora.down.weight": (4, 8), f"{LAYER}.lora.up.weight": (8, 4)},
    "diffusers, older": {
        "unet.attn1.processor.to_q_lora.down.weight": (4, 8),
        "unet.attn1.processor.to_q_lora.up.weight": (8, 4),
    },
    "text encoder": {
        "text_encoder.layers.0.q_proj.lora_linear_layer.down.weight": (4, 8),
        "text_encoder.layers.0.q_proj.lora_linear_layer.up.weight": (8, 4),
    },
    "peft": {
        "transformer.proj_in.lora_A.weight": (4, 8, 3, 3),
        "transformer.proj_in.lora_B.weight": (8, 4, 1, 1),
        "transformer.proj_in.lora_B.bias": (8,),
    },
    "peft, adapter named": {
        "transformer.proj_in.lora_A.default.weight": (4, 8),
        "transformer.proj_in.lora_B.default.weight": (8, 4),
    },
    "kohya": {
        f"{KOHYA}.lora_down.weight": (4, 8),
        f"{KOHYA}.lora_up.weight": (8, 4),
        f"{KOHYA}.alpha": (),
    },
}


def test_a_lora_that_is_not_whole_is_refused(base: Path, tmp_path: Path) -> None:
    """Without tensors or cut off it would change nothing, and the base would pass for the LoRA.
    What diffusers leaves out of one is refused too, since the rest alone would be gated, as a LoRA
    that nobody trained; what it reads is taken.
    """
    path = write_tensors(tmp_path / "lora.safetensors", {})
    with pytest.raises(CheckpointError, match="no tensors"):
        inspect(f"{base}?lora={path}")
    write_tensors(path, FORMS["kohya"])
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match="copied only in part"):
        inspect(f"{base}?lora={path}")

    for form in FORMS.values():
        write_tensors(path, form)
        inspect(f"{base}?lora={path}")
    kinds = (
        "dora_scale",
        "hada_w1_a",
        "lokr_w1",
        "lora_mid.weight",
        "oft_blocks",
        "diff",
        "diff_b",
    )
    for other in kinds:
        write_tensors(path, {**FORMS["kohya"], f"{KOHYA}.{other}": (8, 1)})
        with pytest.raises(CheckpointError, match=f"{other} is no part of a LoRA"):
            inspect(f"{base}?lora={path}")


def test_which_of_several_files_is_the_users_choice(tmp_path: Path) -> None:
    """Two files of LoRA weights beside each other, none of diffusers' name: one must be named."""
    for name in ("a.safetensors", "b.safetensors"):
        write_tensors(tmp_path / name, FORMS["kohya"])
    with pytest.raises(CheckpointError, match=r"a\.safetensors, b\.safetensors"):
        find_lora_file(tmp_path)
    named = write_tensors(tmp_path / "pytorch_lora_weights.safetensors", FORMS["diffusers"])
    assert find_lora_file(tmp_path) == named
    assert all(map(is_lora, FORMS.values()))
    assert not is_lora([])
    assert not is_lora(["unet.conv_in.weight", *FORMS["kohya"]])
