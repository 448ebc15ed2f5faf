"""Files of LoRA weights: whole layers of one method, told from whole models, by their headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.pipeline_parts import check_lora, find_lora_file, is_lora
from tests.models.files import write_tensors

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


@pytest.mark.parametrize("form", FORMS)
def test_every_convention_is_known(tmp_path: Path, form: str) -> None:
    """Trainers name tensors in their own way; all of these are whole LoRA layers."""
    path = write_tensors(tmp_path / "lora.safetensors", FORMS[form])
    check_lora(path)
    assert is_lora(FORMS[form])
    assert find_lora_file(tmp_path) == path


@pytest.mark.parametrize("form", FORMS)
def test_half_a_layer_is_refused_by_name(tmp_path: Path, form: str) -> None:
    """A file that was written in part has matrices without their partners."""
    (first, shape), *_ = FORMS[form].items()
    path = write_tensors(tmp_path / "lora.safetensors", {first: shape})
    with pytest.raises(CheckpointError, match="half a LoRA layer") as caught:
        check_lora(path)
    assert first in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
def test_two_ranks_in_a_layer_are_refused_by_name(tmp_path: Path, form: str) -> None:
    """The two matrices of a layer meet in the rank."""
    (first, shape), *rest = FORMS[form].items()
    path = write_tensors(tmp_path / "lora.safetensors", {first: (5, *shape[1:]), **dict(rest)})
    with pytest.raises(CheckpointError, match="two ranks in one layer") as caught:
        check_lora(path)
    assert first in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{KOHYA}.dora_scale", "DoRA of kohya's scripts"),
        (f"{KOHYA}.hada_w1_a", "LoHa"),
        (f"{KOHYA}.lokr_w1", "LoKr"),
        ("unet.conv_in.weight", "no part of a LoRA"),
    ],
)
def test_tensors_that_would_be_left_out_are_refused_by_name(
    tmp_path: Path, name: str, words: str
) -> None:
    """Diffusers drops what it does not know with a line in its log."""
    path = write_tensors(tmp_path / "lora.safetensors", {**FORMS["kohya"], name: (4, 8)})
    with pytest.raises(CheckpointError, match=words) as caught:
        check_lora(path)
    assert name in str(caught.value)


def test_a_file_without_tensors_is_refused(tmp_path: Path) -> None:
    """It would change nothing, and the base would pass for the LoRA."""
    with pytest.raises(CheckpointError, match="no tensors"):
        check_lora(write_tensors(tmp_path / "lora.safetensors", {}))


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    """A copy that was interrupted ends before its last tensor."""
    path = write_tensors(tmp_path / "lora.safetensors", FORMS["kohya"])
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match="copied only in part"):
        check_lora(path)


def test_which_of_several_files_is_the_users_choice(tmp_path: Path) -> None:
    """Two files of LoRA weights beside each other, none of diffusers' name: one must be named."""
    for name in ("a.safetensors", "b.safetensors"):
        write_tensors(tmp_path / name, FORMS["kohya"])
    with pytest.raises(CheckpointError, match=r"a\.safetensors, b\.safetensors"):
        find_lora_file(tmp_path)
    named = write_tensors(tmp_path / "pytorch_lora_weights.safetensors", FORMS["diffusers"])
    assert find_lora_file(tmp_path) == named


def test_a_model_is_no_lora(tmp_path: Path) -> None:
    """A file with other tensors beside, or with none, is not taken for LoRA weights."""
    assert not is_lora([])
    assert not is_lora(["unet.conv_in.weight", *FORMS["kohya"]])
    write_tensors(tmp_path / "model.safetensors", {"conv_in.weight": (4, 4)})
    assert find_lora_file(tmp_path) is None
