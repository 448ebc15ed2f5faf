"""A generator's parameters: what decides an image is in the key, mistakes are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.errors import SpecError
from tests.models.pipelines.conftest import bind_generator

pytest.importorskip("torch", reason="generators need the [models] extra")
pytest.importorskip("diffusers", reason="generators need the [models] extra")

pytestmark = pytest.mark.models


def test_parameters_enter_the_identity_as_given(folders: dict[str, Path]) -> None:
    """What changes an image is in `params`; where it runs is provenance; defaults add nothing."""
    folder = folders["stable-diffusion"]
    bare = bind_generator(str(folder))
    assert bare.params == {"dtype": "float32"}
    assert bare.seeded
    assert bare.batch_size == 4
    changed = bind_generator(
        f"{folder}?guidance_scale=3&negative_prompt=red&scheduler=PNDMScheduler"
        "&device=cpu&batch_size=2&dtype=bfloat16"
    )
    assert changed.params == {
        "dtype": "bfloat16",
        "guidance_scale": 3.0,
        "negative_prompt": "red",
        "scheduler": "PNDMScheduler",
    }
    assert changed.batch_size == 2
    assert changed.provenance["device"] == "cpu"
    assert changed.fingerprint == bare.fingerprint


def test_the_precision_of_an_accelerator_is_the_components_own(copy: Path) -> None:
    """A pipeline's index states no precision: it is read from a component's configuration."""
    config = copy / "text_encoder" / "config.json"
    text = config.read_text(encoding="utf-8")
    assert '"float32"' in text
    config.write_text(text.replace('"float32"', '"bfloat16"'), encoding="utf-8")
    assert bind_generator(f"{copy}?device=cuda").params["dtype"] == "bfloat16"
    assert bind_generator(f"{copy}?device=cpu").params["dtype"] == "float32"


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        ("steps=3", "unknown parameter for the generator StableDiffusionPipeline 'steps'"),
        ("num_inference_step=3", "Did you mean 'num_inference_steps'"),
        ("height=tall", "'height' must be int, got 'tall'"),
        ("height=0", "height must be at least 1, got 0"),
        ("guidance_scale=nan", "guidance_scale must be a finite number"),
        ("batch_size=0", "batch_size must be at least 1"),
        ("dtype=int8", "dtype must be auto, float32"),
        ("device=tpu", "device must be auto, cpu"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name_at_binding(
    folders: dict[str, Path], parameter: str, expected: str
) -> None:
    """A typing mistake must cost no loading, and the message must say what would be right."""
    with pytest.raises(SpecError, match=expected):
        bind_generator(f"{folders['stable-diffusion']}?{parameter}")


@pytest.mark.parametrize(
    ("name", "parameter", "expected"),
    [
        (
            "stable-diffusion",
            "max_sequence_length=8",
            "StableDiffusionPipeline 'max_sequence_length'",
        ),
        ("sdxl", "clean_caption=false", "StableDiffusionXLPipeline 'clean_caption'"),
        ("flux", "use_resolution_binning=false", "FluxPipeline 'use_resolution_binning'"),
        ("pixart", "true_cfg_scale=2", "Known: clean_caption, guidance_scale, height"),
        ("stable-diffusion", "scheduler=DDIM", "Known: DDIMScheduler, DDPMScheduler"),
        ("stable-diffusion", "scheduler=DPMSolverSDEScheduler", "draws noise from a generator"),
        ("flux", "scheduler=DDIMScheduler", "Known: FlowMatchEulerDiscreteScheduler"),
    ],
)
def test_what_a_pipeline_does_not_take_is_refused_by_name_at_load(
    folders: dict[str, Path], name: str, parameter: str, expected: str
) -> None:
    """A parameter of another pipeline must not be dropped in silence."""
    bound = bind_generator(f"{folders[name]}?{parameter}")
    with pytest.raises(SpecError, match=expected):
        bound.load()


def test_taking_out_a_checker_that_a_pipeline_cannot_have_is_refused(
    folders: dict[str, Path],
) -> None:
    """A parameter without effect would be a lie in the identity of the results."""
    with pytest.raises(SpecError, match="no safety_checker"):
        bind_generator(f"{folders['flux']}?safety_checker=false")
