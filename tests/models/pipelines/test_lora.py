"""LoRA weights on tiny pipelines, saved by diffusers and peft, loaded as a user's would be."""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from packaging.version import Version

from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.torch_runtime import quiet
from tests.models.pipelines.conftest import bind_generator, draw
from tests.optional import needs
from tests.tiny import generators as tiny
from tests.tiny import loras
from tests.tiny.common import edit_tensors

needs("peft", reason="diffusers loads LoRA weights with it")

pytestmark = pytest.mark.models

DRAW = tiny.DRAW["stable-diffusion"]


def _text_encoders_take_loras() -> bool:
    """Whether transformers, which adds them to its models, finds the peft that it asks for."""
    pytest.importorskip("transformers", reason="generators need the [models] extra")
    from transformers.integrations.peft import MIN_PEFT_VERSION

    return Version(version("peft")) >= Version(MIN_PEFT_VERSION)


text_encoders = pytest.mark.skipif(
    not _text_encoders_take_loras(),
    reason="this transformers adds LoRA to text encoders with a newer peft only",
)

Pixels = npt.NDArray[np.float32]


def apart(first: Pixels, second: Pixels) -> float:
    """The largest difference of a pixel, of a range of 1."""
    return float(np.abs(first - second).max())


@pytest.fixture(scope="session")
def base(folders: dict[str, Path]) -> Path:
    """A tiny Stable Diffusion."""
    return folders["stable-diffusion"]


@pytest.fixture(scope="session")
def lora(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LoRA weights for its UNet."""
    return loras.build_lora(base, tmp_path_factory.mktemp("lora") / "checkpoint-8")


@pytest.fixture(scope="session")
def merged(base: Path, lora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pipeline with the LoRA added to its weights, by the definition of LoRA."""
    return loras.merge_by_hand(base, lora, tmp_path_factory.mktemp("merged") / "pipeline")


@pytest.mark.slow
def test_a_lora_draws_what_the_merged_pipeline_draws(
    base: Path, lora: Path, merged: Path, tmp_path: Path
) -> None:
    """Fused or beside the weights, named from the base or from the LoRA: the same image. Names and
    alphas of kohya's scripts and of peft arrive as those of diffusers do.
    """
    kohya = loras.to_kohya(lora, tmp_path / "kohya.safetensors")
    peft = loras.to_peft(lora, tmp_path / "peft.safetensors")
    expected = draw(f"{merged}?{DRAW}")
    assert apart(draw(f"{base}?{DRAW}"), expected) > 0.02
    for spec in (
        f"{base}?lora={lora}",
        f"{base}?lora={lora}&fuse=false",
        f"{lora}?base={base}",
        f"{base}?lora={kohya}",
        f"{base}?lora={peft}",
    ):
        assert apart(draw(f"{spec}&{DRAW}"), expected) < 1e-4, spec


@pytest.mark.slow
def test_several_loras_add_up(base: Path, lora: Path, merged: Path, tmp_path: Path) -> None:
    """Two at scales of their own, which are part of the key: the second is merged into what has the
    first.
    """
    second = loras.build_lora(base, tmp_path / "second", seed=32)
    both = loras.merge_by_hand(merged, second, tmp_path / "both", scale=-0.5)
    spec = f"{base}?lora={lora},{second}&lora_scale=1,-0.5&{DRAW}"
    expected = draw(f"{both}?{DRAW}")
    assert apart(draw(spec), expected) < 1e-4
    assert apart(draw(f"{spec}&fuse=false"), expected) < 1e-4
    assert bind_generator(spec).params["lora_scale"] == [1.0, -0.5]
    assert "lora_scale" not in bind_generator(f"{base}?lora={lora}").params
    assert bind_generator(f"{base}?lora={lora}&fuse=false").params["fuse"] is False


def draw_with_diffusers(folder: Path, lora: Path) -> Pixels:
    """The same image by the calls of diffusers' own documentation."""
    import torch
    from diffusers import DiffusionPipeline

    with quiet():
        pipeline = DiffusionPipeline.from_pretrained(folder)
        pipeline.load_lora_weights(lora)
        denoiser = "unet" if hasattr(pipeline, "unet") else "transformer"
        pipeline.fuse_lora(components=["text_encoder", denoiser])
        length = {"max_sequence_length": 16} if denoiser == "transformer" else {}
        (image,) = pipeline(
            ["two red circles"],
            generator=[torch.Generator().manual_seed(11)],
            num_inference_steps=2,
            height=64,
            width=64,
            output_type="np",
            **length,
        ).images
    assert isinstance(image, np.ndarray)
    return image


@text_encoders
@pytest.mark.slow
@pytest.mark.parametrize("name", ["sdxl", "flux"])
def test_transformers_and_text_encoders_take_loras_too(
    folders: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """A LoRA for denoiser and text encoder draws as the pipeline that was trained with it does."""
    lora = loras.build_lora(folders[name], tmp_path / "lora", text_encoder=True)
    drawn = draw(f"{folders[name]}?lora={lora}&{tiny.DRAW[name]}")
    image = draw_with_diffusers(folders[name], lora)
    assert apart(drawn, image) < 1e-4
    assert apart(drawn, draw(f"{folders[name]}?{tiny.DRAW[name]}")) > 1e-3


@pytest.mark.slow
def test_dora_is_loaded_whole(base: Path, lora: Path, tmp_path: Path) -> None:
    """Its magnitudes, a third tensor of each layer, get to their places too."""
    dora = loras.build_lora(base, tmp_path / "dora", dora=True)
    fused, beside = (draw(f"{base}?lora={dora}&fuse={fuse}&{DRAW}") for fuse in ("true", "false"))
    assert apart(fused, beside) < 1e-4
    assert apart(fused, draw(f"{base}?lora={lora}&{DRAW}")) > 1e-4


def rename(weights: Path, file: Path, before: str, after: str) -> Path:
    """The same weights with a piece of all their names replaced, in a file."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(weights / loras.LORA_FILE if weights.is_dir() else weights)
    save_file({name.replace(before, after): t for name, t in tensors.items()}, file)
    return file


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            "down_blocks.1.",
            "down_blocks.7.",
            r"left out tensors.*unet\.down_blocks\.7\.",
        ),
        ("unet.", "transformer.", "is for a 'transformer', and a StableDiffusionPipeline takes"),
        ("unet.down", "down", "is for a 'down_blocks'"),
    ],
)
def test_a_tensor_without_a_place_is_an_error_and_not_left_out(
    base: Path, lora: Path, tmp_path: Path, before: str, after: str, words: str
) -> None:
    """Diffusers would draw with the rest of the LoRA, or without it, and log a line."""
    file = rename(lora, tmp_path / "lora.safetensors", before, after)
    bound = bind_generator(f"{base}?lora={file}")
    with pytest.raises(CheckpointError, match=words) as caught:
        bound.load()
    assert "\n" not in str(caught.value)


def test_a_lora_of_another_base_is_refused_by_tensor(
    folders: dict[str, Path], lora: Path, tmp_path: Path
) -> None:
    """Its layers are there and have other sizes: SDXL's LoRA on Stable Diffusion 1.5, and one for
    twice the channels, to which diffusers would bring a FLUX.
    """
    import torch
    from safetensors.torch import save_file

    with pytest.raises(CheckpointError, match=r"to_k\.lora_A\..*another base"):
        bind_generator(f"{folders['sdxl']}?lora={lora}").load()
    with pytest.raises(CheckpointError, match="is for a 'unet', and a FluxPipeline"):
        bind_generator(f"{folders['flux']}?lora={lora}").load()
    shapes = {"A": (4, 8), "B": (32, 4)}
    wide = {f"transformer.x_embedder.lora_{n}.weight": torch.ones(s) for n, s in shapes.items()}
    save_file(wide, tmp_path / "wide.safetensors")
    with pytest.raises(CheckpointError, match="widened layers of the transformer"):
        bind_generator(f"{folders['flux']}?lora={tmp_path / 'wide.safetensors'}").load()


def test_names_of_two_conventions_in_one_file_are_refused(
    base: Path, lora: Path, tmp_path: Path
) -> None:
    """Diffusers looks at the first name and drops what is written otherwise."""
    file = rename(lora, tmp_path / "lora.safetensors", "attn1.to_k.lora.down", "attn1.to_k.lora_A")
    file = rename(file, file, "attn1.to_k.lora.up", "attn1.to_k.lora_B")
    with pytest.raises(CheckpointError, match=r"left out tensors of the LoRA.*several conventions"):
        bind_generator(f"{base}?lora={file}").load()


def test_a_rank_that_its_metadata_denies_is_refused_by_tensor(
    base: Path, lora: Path, tmp_path: Path
) -> None:
    """The configuration that the trainer saved says another rank than the tensors have."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    file = tmp_path / loras.LORA_FILE
    with safe_open(lora / loras.LORA_FILE, "pt") as stored:
        metadata = stored.metadata()
    key = "lora_adapter_metadata"
    metadata[key] = metadata[key].replace('"unet.r": 4', '"unet.r": 8')
    save_file(load_file(lora / loras.LORA_FILE), file, metadata=metadata)
    with pytest.raises(CheckpointError, match=r"size mismatch.*lora_A") as caught:
        bind_generator(f"{base}?lora={file}").load()
    assert str(file) in str(caught.value)


def test_a_lora_with_nan_is_refused_by_name(base: Path, lora: Path, tmp_path: Path) -> None:
    """Added to the weights, it spoils the layer that it is for."""
    file = Path(shutil.copy(lora / loras.LORA_FILE, tmp_path))
    edit_tensors(
        file, lambda t: next(t[n] for n in t if n.endswith("up.weight")).fill_(float("nan"))
    )
    for query in ("", "&fuse=false"):
        with pytest.raises(CheckpointError, match=r"NaN or infinite values in unet\."):
            bind_generator(f"{base}?lora={tmp_path}{query}").load()


def test_a_pipeline_that_takes_no_lora_says_so(folders: dict[str, Path], lora: Path) -> None:
    """PixArt has no loader of LoRA weights in diffusers."""
    with pytest.raises((CheckpointError, RoleError), match="PixArtSigmaPipeline takes no LoRA"):
        bind_generator(f"{folders['pixart']}?lora={lora}").load()
