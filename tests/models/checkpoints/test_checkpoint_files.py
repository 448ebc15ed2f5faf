"""Which files of a checkpoint are read, and which faults of weights are found before loading."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.checkpoint_files import readable_files
from pytest_cepbench.models.checkpoints.format_detection import read_json
from pytest_cepbench.models.checkpoints.parameters import SourceOptions
from tests.models.binding import bind_text
from tests.models.files import (
    LLAVA,
    STABLE_DIFFUSION,
    inspect,
    safetensors_bytes,
    write_checkpoint,
    write_pipeline,
    write_tensors,
)
from tests.special_files import DEPTH, DIGITS, a_pointer


def test_pickled_weights_are_refused_and_allowed_by_name(tmp_path: Path) -> None:
    """Unpickling can run code: refused with the remedy, and accepted once the user says so."""
    folder = write_checkpoint(tmp_path / "m", LLAVA, "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="allow_pickle=true"):
        inspect(folder)
    assert inspect(folder, "?allow_pickle=true").roles == ("describer", "writer")
    shards = ["pytorch_model-00001-of-00001.bin", "pytorch_model.bin.index.json"]
    pickled = SourceOptions(allow_pickle=True)
    assert readable_files([*shards, "optimizer.bin"], "transformers", {}, pickled) == shards


def test_another_variant_is_named(tmp_path: Path) -> None:
    """Weights in fp16 files only: the message must say which parameter brings them."""
    folder = write_checkpoint(tmp_path / "m", LLAVA, None)
    with pytest.raises(CheckpointError, match="no weights"):
        inspect(folder)
    write_checkpoint(folder, LLAVA, "model.fp16.safetensors")
    with pytest.raises(CheckpointError, match="variant=fp16"):
        inspect(folder)
    assert inspect(folder, "?variant=fp16").roles == ("describer", "writer")


@pytest.mark.parametrize("length", [0, 4, 8, 30, -1])
def test_half_written_safetensors_are_found_without_loading(tmp_path: Path, length: int) -> None:
    """A file cut anywhere, its last byte included, must be refused as damaged."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    (folder / "model.safetensors").write_bytes(safetensors_bytes()[:length])
    with pytest.raises(CheckpointError, match=r"model\.safetensors.*write or fetch it again"):
        inspect(folder)


@pytest.mark.parametrize("part", ["unet", "text_encoder"])
def test_weights_that_were_not_gathered_are_named(tmp_path: Path, part: str) -> None:
    """ZeRO-3 leaves (0,) in the place of what other processes held; quantized layers may be so."""
    folder = write_pipeline(tmp_path / "p")
    (file,) = (folder / part).glob("*.safetensors")
    write_tensors(file, {"norm.weight": (4,), "q.weight": (0,)})
    words = r"no values of q\.weight.* stage3_gather_16bit_weights_on_model_save"
    with pytest.raises(CheckpointError, match=words):
        inspect(folder)
    write_tensors(file, {"g_idx": (0,)}, g_idx="I32")
    inspect(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "generation_config.json"])
def test_a_pointer_of_git_lfs_is_called_one(tmp_path: Path, name: str) -> None:
    """A checkout without `git lfs pull` has such files in the place of the large ones."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    a_pointer(folder / name)
    with pytest.raises(CheckpointError, match=rf"{name}.*a pointer of Git LFS.*git lfs pull"):
        bind_text(str(folder), "describer")


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (
            {
                "weight_map": {
                    "w1": "model-00001-of-00002.safetensors",
                    "w2": "model-00002-of-00002.safetensors",
                }
            },
            r"of the 2 .*model-00002-of-00002.* do not lie",
        ),
        (
            {
                "weight_map": {
                    "w1": "model-00001-of-00002.safetensors",
                    "w2": "../other/model.safetensors",
                }
            },
            r"names \.\./other/model\.safetensors do not lie",
        ),
        ({"weight_map": {"w": "inner/model.safetensors"}}, r"names inner/model\.safetensors"),
        ({"weight_map": {}}, "no weight_map"),
        ({"weight_map": ["model-00001-of-00002.safetensors"]}, "no weight_map"),
    ],
    ids=["missing", "beside", "below", "empty", "list"],
)
def test_shards_that_are_not_all_beside_their_index(
    tmp_path: Path, index: dict[str, Any], words: str
) -> None:
    """What is missing is named; libraries would follow other places, which no digest covers."""
    folder = write_checkpoint(tmp_path / "m", LLAVA, "model-00001-of-00002.safetensors")
    for other in (folder / "inner", tmp_path / "other"):
        write_checkpoint(other, {})
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(CheckpointError, match=words):
        inspect(folder)


@pytest.mark.parametrize(
    ("shards", "words"),
    [
        (["model-00001-of-00001.safetensors"], "names 1 shards, and model.safetensors beside it"),
        (["model.safetensors", "model-00001-of-00001.safetensors"], "several of its shards hold"),
    ],
)
def test_weights_of_two_times_in_one_folder(tmp_path: Path, shards: list[str], words: str) -> None:
    """One library would read the older, another the newer."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    name = "model-00001-of-00001.safetensors"
    shutil.copy(folder / "model.safetensors", folder / name)
    index = {"weight_map": {f"w{i}": shard for i, shard in enumerate(shards)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(CheckpointError, match=words):
        inspect(folder)


def test_faults_of_a_pipelines_components_are_found(tmp_path: Path) -> None:
    """Each component that is a model must have its weights; a component may not be absent."""
    folder = write_pipeline(tmp_path / "p")
    assert inspect(folder).roles == ("generator", "editor")
    (folder / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="unet: no weights"):
        inspect(folder)
    for path in (folder / "unet").iterdir():
        path.unlink()
    (folder / "unet").rmdir()
    with pytest.raises(CheckpointError, match="names a component 'unet'"):
        inspect(folder)


def test_only_what_loading_reads_is_chosen_of_a_pipeline() -> None:
    """Of a published repository, single-file weights, other variants, pickles and pictures stay."""
    names = [
        ".gitattributes",
        "README.md",
        "model_index.json",
        "sd_xl_base_1.0.safetensors",
        "01.png",
        "unet/config.json",
        "unet/diffusion_pytorch_model.safetensors",
        "unet/diffusion_pytorch_model.fp16.safetensors",
        "unet/diffusion_pytorch_model.bin",
        "unet/model.onnx",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "tokenizer/vocab.json",
        "tokenizer/merges.txt",
        "scheduler/scheduler_config.json",
        "vae_decoder/model.safetensors",
    ]
    common = {"model_index.json", "unet/config.json", "text_encoder/config.json"} | {
        "text_encoder/model.safetensors",
        "tokenizer/vocab.json",
        "tokenizer/merges.txt",
        "scheduler/scheduler_config.json",
    }
    plain = readable_files(names, "diffusers", STABLE_DIFFUSION)
    half = readable_files(names, "diffusers", STABLE_DIFFUSION, SourceOptions(variant="fp16"))
    assert set(plain) == common | {"unet/diffusion_pytorch_model.safetensors"}
    assert set(half) == common | {"unet/diffusion_pytorch_model.fp16.safetensors"}


@pytest.mark.parametrize(
    ("text", "message"),
    [("[" * DEPTH, "nested too deeply"), ("9" * DIGITS, "thousands of digits"), ("{", "")],
    ids=["deep", "digits", "cut off"],
)
def test_a_configuration_that_no_parser_takes(tmp_path: Path, text: str, message: str) -> None:
    """One line with its name, and no traceback."""
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=rf"config\.json: not readable as JSON .*{message}"):
        read_json(path)
