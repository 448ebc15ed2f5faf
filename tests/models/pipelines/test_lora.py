"""LoRA weights on tiny pipelines, saved by diffusers and peft, loaded as a user's would be.

Then components from other folders, and components and whole pipelines as single files.
"""

from __future__ import annotations

import shutil
from collections import ChainMap
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from packaging.version import Version

from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.torch_runtime import quiet
from tests.models.binding import bind_text
from tests.models.pipelines.conftest import FOLDERS, apart, bind_generator, draw
from tests.optional import needs
from tests.tiny import generators as tiny
from tests.tiny import loras, single_files
from tests.tiny.common import edit_json, edit_tensors

needs("peft", reason="diffusers loads LoRA weights with it")

pytestmark = pytest.mark.models

DRAW = tiny.DRAW["stable-diffusion"]


@pytest.fixture(scope="session")
def base() -> Path:
    """A tiny Stable Diffusion."""
    return FOLDERS["stable-diffusion"]


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sdxl", "flux"])
def test_transformers_and_text_encoders_take_loras_too(tmp_path: Path, name: str) -> None:
    """A LoRA for denoiser and text encoder draws as the pipeline that was trained with it does."""
    import torch
    from diffusers import DiffusionPipeline
    from transformers.integrations.peft import MIN_PEFT_VERSION

    if Version(version("peft")) < Version(MIN_PEFT_VERSION):
        pytest.skip("this transformers adds LoRA to text encoders with a newer peft only")
    lora = loras.build_lora(FOLDERS[name], tmp_path / "lora", text_encoder=True)
    drawn = draw(f"{FOLDERS[name]}?lora={lora}&{tiny.DRAW[name]}")
    with quiet():  # by the calls of diffusers' own documentation
        pipeline = DiffusionPipeline.from_pretrained(FOLDERS[name])
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
    assert apart(drawn, image) < 1e-4
    assert apart(drawn, draw(f"{FOLDERS[name]}?{tiny.DRAW[name]}")) > 1e-3


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


def test_a_lora_of_another_base_is_refused_by_tensor(lora: Path, tmp_path: Path) -> None:
    """Its layers are there and have other sizes: SDXL's LoRA on Stable Diffusion 1.5, and one for
    twice the channels, to which diffusers would bring a FLUX.
    """
    import torch
    from safetensors.torch import save_file

    with pytest.raises(CheckpointError, match=r"to_k\.lora_A\..*another base"):
        bind_generator(f"{FOLDERS['sdxl']}?lora={lora}").load()
    with pytest.raises(CheckpointError, match="is for a 'unet', and a FluxPipeline"):
        bind_generator(f"{FOLDERS['flux']}?lora={lora}").load()
    shapes = {"A": (4, 8), "B": (32, 4)}
    wide = {f"transformer.x_embedder.lora_{n}.weight": torch.ones(s) for n, s in shapes.items()}
    save_file(wide, tmp_path / "wide.safetensors")
    with pytest.raises(CheckpointError, match="widened layers of the transformer"):
        bind_generator(f"{FOLDERS['flux']}?lora={tmp_path / 'wide.safetensors'}").load()


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


def test_a_pipeline_that_takes_no_lora_says_so(lora: Path) -> None:
    """PixArt has no loader of LoRA weights in diffusers."""
    with pytest.raises((CheckpointError, RoleError), match="PixArtSigmaPipeline takes no LoRA"):
        bind_generator(f"{FOLDERS['pixart']}?lora={lora}").load()


# -- components and whole pipelines as single files ------------------------------------------------


@pytest.fixture(scope="module")
def drawn(base: Path) -> npt.NDArray[np.float32]:
    """What it draws."""
    return draw(f"{base}?{DRAW}")


@pytest.fixture(scope="module")
def files(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in one file, and its UNet alone, in their authors' layout."""
    folder = tmp_path_factory.mktemp("files")
    single_files.write_stable_diffusion(base, folder / "pipeline.safetensors")
    single_files.write_unet(base, folder / "unet.safetensors")
    return folder


@pytest.mark.slow
def test_a_single_file_draws_what_the_folder_draws(
    base: Path, files: Path, drawn: Any, tmp_path: Path
) -> None:
    """Pixel for pixel, with the configuration alone beside it, as it is fetched; fingerprints
    follow both.
    """
    config = Path(
        shutil.copytree(base, tmp_path / "config", ignore=shutil.ignore_patterns("*.safetensors"))
    )
    file = files / "pipeline.safetensors"
    assert np.array_equal(draw(f"{file}?config={config}&{DRAW}"), drawn)
    fingerprint = bind_generator(f"{file}?config={config}").fingerprint
    assert bind_generator(f"{file}?config={base}").fingerprint == fingerprint
    assert bind_generator(str(base)).fingerprint != fingerprint
    settings = config / "scheduler" / "scheduler_config.json"
    settings.write_text(settings.read_text(encoding="utf-8") + " ", encoding="utf-8")
    assert bind_generator(f"{file}?config={config}").fingerprint != fingerprint


@pytest.mark.slow
def test_the_file_of_one_component_takes_its_place(base: Path, files: Path, drawn: Any) -> None:
    """In the layout of the authors or of diffusers; the base's own weights do not count then."""
    own = base / "unet" / "diffusion_pytorch_model.safetensors"
    for file in (files / "unet.safetensors", own):
        assert np.array_equal(draw(f"{base}?unet={file}&{DRAW}"), drawn)
    prints = {bind_generator(f"{base}?unet={file}").fingerprint for file in files.iterdir()}
    assert len(prints) == 2


@pytest.mark.slow
def test_a_single_file_takes_a_lora_and_can_be_an_editor(
    base: Path, files: Path, tmp_path: Path
) -> None:
    """What a pipeline can do does not depend on how it is stored."""
    lora = loras.build_lora(base, tmp_path / "lora")
    file = files / "pipeline.safetensors"
    assert np.array_equal(
        draw(f"{file}?config={base}&lora={lora}&{DRAW}"), draw(f"{base}?lora={lora}&{DRAW}")
    )
    bound = bind_text(f"{file}?config={base}&num_inference_steps=4&strength=0.5", "editor")
    assert type(bound.load()).__name__ == "DiffusersEditor"


@pytest.mark.slow
def test_pickled_files_are_read_only_where_that_is_allowed(
    base: Path, files: Path, drawn: Any, tmp_path: Path
) -> None:
    """A .ckpt draws the same as the safetensors that it was made of, after allow_pickle."""
    import torch
    from safetensors.torch import load_file

    file = tmp_path / "pipeline.ckpt"
    torch.save({"state_dict": load_file(files / "pipeline.safetensors")}, file)
    with pytest.raises(CheckpointError, match=r"pickled ones \?config=PIPELINE&allow_pickle"):
        bind_generator(str(file))
    with pytest.raises(CheckpointError, match="unpickling can run code"):
        bind_generator(f"{file}?config={base}")
    assert np.array_equal(draw(f"{file}?config={base}&allow_pickle=true&{DRAW}"), drawn)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{files}/pipeline.safetensors", r"whole pipeline add \?config=PIPELINE"),
        ("{files}/unet.safetensors", r'of a component write "PIPELINE\?COMPONENT='),
        ("{files}/pipeline.safetensors?config={flux}", "not the weights that the configuration"),
        ("{files}/pipeline.safetensors?config={sdxl}", r"not the weights.*label_emb\.0\.0\.weight"),
        ("{sdxl}?unet={files}/unet.safetensors", r"not the weights.*label_emb\.0\.0\.weight"),
        ("{pixart}?transformer={files}/unet.safetensors", "reads no PixArtTransformer2DModel"),
    ],
)
def test_a_file_without_its_configuration_is_explained(files: Path, text: str, words: str) -> None:
    """One line says which configuration is needed, or that it is of another family."""
    with pytest.raises(CheckpointError, match=words) as caught:
        bind_generator(text.format_map(ChainMap({"files": files}, FOLDERS))).load()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("drop", "meta tensor|are missing from it"),
        ("add", r"attentions\.0\.lora\.weight"),
        ("shallow", r"would leave out: .*layers\.1\."),
    ],
)
def test_a_tensor_too_few_or_too_many_is_an_error(
    base: Path, files: Path, tmp_path: Path, change: str, words: str
) -> None:
    """Diffusers leaves what is missing without values, and logs what it does not know. Of a text
    encoder it takes the layers that the configuration has, without a word.
    """
    import torch

    file = Path(shutil.copy(files / "pipeline.safetensors", tmp_path))
    name = "model.diffusion_model.output_blocks.0.1.norm.weight"
    config = Path(shutil.copytree(base, tmp_path / "config"))
    if change == "drop":
        edit_tensors(file, lambda tensors: tensors.pop(name))
    elif change == "add":
        lora = {name.replace("norm", "lora"): torch.ones(2)}
        edit_tensors(file, lambda tensors: tensors.update(lora))
    else:
        edit_json(config / "text_encoder" / "config.json", num_hidden_layers=1)
    with pytest.raises(CheckpointError, match=words):
        bind_generator(f"{file}?config={config}").load()


@pytest.mark.slow
def test_a_text_encoder_that_the_file_lacks_is_that_of_the_configuration(
    base: Path, files: Path, drawn: Any, tmp_path: Path
) -> None:
    """Files of large pipelines come without T5: it is read, and fingerprinted, beside them."""
    file = Path(shutil.copy(files / "pipeline.safetensors", tmp_path))
    edit_tensors(
        file, lambda t: [t.pop(name) for name in list(t) if name.startswith("cond_stage_model.")]
    )
    assert np.array_equal(draw(f"{file}?config={base}&{DRAW}"), drawn)
    other = Path(shutil.copytree(base, tmp_path / "other"))
    encoder = other / "text_encoder" / "model.safetensors"
    edit_tensors(encoder, lambda tensors: tensors.pop("final_layer_norm.weight"))
    prints = [bind_generator(f"{file}?config={place}").fingerprint for place in (base, other)]
    assert prints[0] != prints[1]


@pytest.mark.slow
def test_a_component_draws_what_the_pipeline_with_it_draws(
    base: Path, drawn: Any, tmp_path: Path
) -> None:
    """Pixel for pixel: BASE?unet=FOLDER, FOLDER?base=BASE, and the pipeline that was put together.

    The averaged weights, whose configuration holds the average's own settings, draw others.
    """
    import torch
    from diffusers import UNet2DConditionModel
    from diffusers.training_utils import EMAModel

    run = tmp_path / "checkpoint-8"  # as a training leaves it
    unet = UNet2DConditionModel.from_pretrained(base / "unet")
    average = EMAModel(
        unet.parameters(), decay=0.5, model_cls=UNet2DConditionModel, model_config=unet.config
    )
    torch.manual_seed(5)
    for _ in range(3):
        for weight in unet.parameters():
            weight.data += 0.02 * torch.randn_like(weight)
        average.step(unet.parameters())
    unet.save_pretrained(run / "unet")
    average.save_pretrained(run / "unet_ema")
    (run / "optimizer.bin").write_bytes(b"state")
    whole = Path(shutil.copytree(base, tmp_path / "whole"))
    shutil.rmtree(whole / "unet")
    shutil.copytree(run / "unet", whole / "unet")
    expected = draw(f"{whole}?{DRAW}")
    assert np.array_equal(draw(f"{base}?unet={run / 'unet'}&{DRAW}"), expected)
    assert np.array_equal(draw(f"{run}?base={base}&{DRAW}"), expected)
    averaged = draw(f"{base}?unet={run / 'unet_ema'}&{DRAW}")
    assert apart(averaged, expected) > 1e-3
    assert apart(averaged, drawn) > 1e-3


def test_text_encoder_and_autoencoder_can_be_replaced(base: Path, tmp_path: Path) -> None:
    """Components of transformers too, and several at once."""
    other = tiny.build_stable_diffusion(tmp_path / "other", seed=77)
    query = f"unet={other / 'unet'}&vae={other / 'vae'}&text_encoder={other / 'text_encoder'}"
    assert np.array_equal(draw(f"{base}?{query}&{DRAW}"), draw(f"{other}?{DRAW}"))
