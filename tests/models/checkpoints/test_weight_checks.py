"""The values of loaded weights: what is refused, what is warned of, and what is ignored."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.checkpoints.loaded_checks import check_values
from pytest_cepbench.models.protocols import RoleName
from tests.models.binding import bind_text
from tests.tiny import describers, detectors, encoders, generators, text_encoders

torch = pytest.importorskip("torch", reason="loaded weights need the [models] extra")

pytestmark = pytest.mark.models

CHECKPOINT = Checkpoint(Path("step-8"), "transformers", "LlavaModel", (), {})


def module(**parameters: Any) -> Any:
    """A module that holds these tensors as parameters, and one healthy layer."""
    made = torch.nn.Module()
    made.layer = torch.nn.Linear(2, 2)
    for name, tensor in parameters.items():
        made.register_parameter(name, torch.nn.Parameter(tensor))
    return made


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_one_number_that_is_none_is_refused_by_name(value: float, dtype: Any) -> None:
    """One NaN of millions spoils every answer that it reaches."""
    broken = torch.ones(3, 3, dtype=dtype)
    broken[1, 2] = value
    with pytest.raises(CheckpointError, match=r"LlavaModel holds NaN .* unet\.weight \(\w*float"):
        check_values(CHECKPOINT, {"vae": module(), "unet": module(weight=broken)})


def test_tied_weights_are_named_once() -> None:
    """They are one tensor under two names."""
    tied = module(weight=torch.full((2, 2), torch.nan))
    tied.other = torch.nn.Linear(2, 2)
    tied.other.weight = tied.weight
    with pytest.raises(CheckpointError) as caught:
        check_values(CHECKPOINT, {"": tied})
    assert str(caught.value).count("weight (float32)") == 1


def test_masks_may_hold_infinity_and_no_nan() -> None:
    """A mask's minus infinity is meant; NaN never is."""
    masked = module()
    masked.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    check_values(CHECKPOINT, {"": masked})
    masked.register_buffer("mean", torch.tensor([torch.nan]))
    with pytest.raises(CheckpointError, match=r"in mean \(float32\)"):
        check_values(CHECKPOINT, {"": masked})


def test_a_matrix_of_zeros_is_told_and_loads() -> None:
    """Some layers begin with zeros, so it is no error; a reader has to know of it."""
    with pytest.warns(UserWarning, match=r"^step-8: zero throughout: weight\. A layer may"):
        check_values(CHECKPOINT, {"": module(weight=torch.zeros(4, 4))})


def test_zeros_that_are_no_matrix_are_not_told() -> None:
    """Biases and tokens often are zero, as whole numbers are; parts without weights have none."""
    ordinary = module(
        bias=torch.zeros(4), cls_token=torch.zeros(4, 4), norm_weight=torch.zeros(1, 4)
    )
    ordinary.register_buffer("counted_weight", torch.zeros(4, 4, dtype=torch.int64))
    ordinary.register_buffer("empty_weight", torch.zeros(0, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_values(CHECKPOINT, {"unet": ordinary, "scheduler": object(), "image_encoder": None})


ADAPTERS: dict[str, tuple[RoleName, Callable[[Path], Path], str]] = {
    "describer": ("describer", describers.build_llava, "multi_modal_projector.linear_1.weight"),
    "generator": ("generator", generators.build_stable_diffusion, "unet.conv_in.weight"),
    "transformers": ("encoder", encoders.build_clip, "visual_projection.weight"),
    "open_clip": ("encoder", encoders.build_open_clip, "visual.ln_post.weight"),
    "timm": ("encoder", encoders.build_timm_vit, "blocks.0.attn.qkv.weight"),
    "sentences": ("encoder", text_encoders.build_sentence_transformer, "attention.attn.q.weight"),
    "detector": ("detector", detectors.build_yolos, "layernorm.weight"),
    "owl": ("detector", partial(detectors.build_owl, version=2), "box_head.dense0.weight"),
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_adapter_refuses_nan(name: str, tmp_path: Path) -> None:
    """Whatever library loads the weights, and in whichever part of a model they are."""
    import transformers  # noqa: F401 - quiet() reaches the libraries that are imported
    from safetensors.torch import load_file, save_file

    from pytest_cepbench.models.torch_runtime import quiet

    role, build, tensor = ADAPTERS[name]
    with quiet():
        folder = build(tmp_path / name)
    part, _, inner = tensor.partition(".") if role == "generator" else (".", "", tensor)
    (file,) = (folder / part).glob("*.safetensors")
    weights = load_file(file)
    spoilt = next(key for key in sorted(weights) if key.endswith(inner))
    weights[spoilt].view(-1)[-1] = torch.nan
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=inner.rpartition(".")[0]):
        bind_text(str(folder), role).load()
