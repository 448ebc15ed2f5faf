"""The fingerprint follows everything that can change an answer, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints import stored_precision
from tests.models.files import (
    LLAVA,
    fingerprint_of,
    inspect,
    safetensors_bytes,
    write_checkpoint,
    write_pipeline,
)

READ = (
    "config.json", "generation_config.json", "tokenizer.json", "merges.txt", "bpe.codes",
    "tokenizer.model", "processor_config.json", "chat_template.jinja",
    "qformer_tokenizer/tokenizer.json",
)  # fmt: skip
PASSED_OVER = (
    "README.md", "trainer_state.json", "optimizer.pt", "training_args.bin", "sample.png",
    ".gitattributes", "pytorch_model.bin", "modeling_custom.py",
)  # fmt: skip


@pytest.fixture
def llava(tmp_path: Path) -> Path:
    """A describer's folder with all that such a folder holds."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    for name in (*READ[1:], *PASSED_OVER):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}", encoding="utf-8")
    return folder


def test_what_loading_reads_counts_and_nothing_else(llava: Path) -> None:
    """A byte more in a configuration, tokenizer or chat template is another model; notes, training
    state, pickled twins and unused code are not.
    """
    seen = [fingerprint_of(llava)]
    for name in READ:
        path = llava / name
        path.write_text(path.read_text(encoding="utf-8") + " ", encoding="utf-8")
        seen.append(fingerprint_of(llava))
    (llava / "model.safetensors").write_bytes(safetensors_bytes(b"\1\0\x80?"))  # one value
    seen.append(fingerprint_of(llava))
    assert len(set(seen)) == len(READ) + 2
    for name in PASSED_OVER:
        (llava / name).write_text("something else", encoding="utf-8")
        assert fingerprint_of(llava) == seen[-1]
        (llava / name).unlink()
        assert fingerprint_of(llava) == seen[-1]


@pytest.mark.parametrize(
    "name",
    [
        "modeling_custom.py", "table.npy", "extra/table.json",
        "extra/labels.index.json", "vision/clip.v2.pt", "vision/model.bin",
    ],
)  # fmt: skip
def test_code_counts_where_it_runs(llava: Path, name: str) -> None:
    """With remote code on, a line of Python is part of the model, and so is what it may read."""
    code = "?trust_remote_code=true"
    before, without = fingerprint_of(llava, code), fingerprint_of(llava)
    (llava / name).parent.mkdir(exist_ok=True)
    (llava / name).write_text("x = 1", encoding="utf-8")
    assert fingerprint_of(llava, code) != before
    assert fingerprint_of(llava) == without


def test_weights_that_code_reads_in_a_folder_count(llava: Path) -> None:
    """A training's states and other checkpoints in the folder stay out of it."""
    code = "?trust_remote_code=true"
    before, without = fingerprint_of(llava, code), fingerprint_of(llava)
    for name in ("checkpoint-5/a.bin", "global_step5/mp_rank_00.pt", "optimizer_0/a.bin"):
        (llava / name).parent.mkdir()
        (llava / name).write_bytes(b"state")
    (llava / "optimizer.pt").write_bytes(b"state")
    assert fingerprint_of(llava, code) == before
    (llava / "vision").mkdir()
    shutil.copy(llava / "model.safetensors", llava / "vision/tower.safetensors")
    assert fingerprint_of(llava, code) != before
    assert fingerprint_of(llava) == without


def test_pickled_weights_count_where_they_are_loaded(tmp_path: Path) -> None:
    """Where pickled weights are all there is and they are allowed, they are the model."""
    folder = write_checkpoint(tmp_path / "m", LLAVA, "pytorch_model.bin")
    before = fingerprint_of(folder, "?allow_pickle=true"), fingerprint_of(folder)
    (folder / "pytorch_model.bin").write_bytes(b"other")
    assert fingerprint_of(folder, "?allow_pickle=true") != before[0]
    assert fingerprint_of(folder) == before[1]


def test_code_from_another_repository_is_refused(tmp_path: Path) -> None:
    """Code that would be fetched from elsewhere cannot be vouched for."""
    config = LLAVA | {"auto_map": {"AutoModel": "org/code--modeling.Model"}}
    folder = write_checkpoint(tmp_path / "m", config)
    with pytest.raises(
        CheckpointError, match=r"org/code.*shorten the entry .* \"modeling\.Model\""
    ):
        fingerprint_of(folder, "?trust_remote_code=true")


@pytest.mark.parametrize(
    ("name", "key"),
    [("processor_config.json", "audio_tokenizer"), ("audio_tokenizer_config.json", None)],
)
def test_an_audio_tokenizer_from_elsewhere_is_refused(
    tmp_path: Path, name: str, key: str | None
) -> None:
    """Transformers loads it by its name, whatever lies there by then."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    named = {"audio_tokenizer_class": "DacModel", "audio_tokenizer_name_or_path": "org/dac"}
    (folder / name).write_text(json.dumps({key: named} if key else named), encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"{name}: its audio tokenizer .*'org/dac'"):
        fingerprint_of(folder)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_a_kernel_of_the_hub_is_refused(tmp_path: Path, key: str) -> None:
    """It is code, which transformers would fetch because a configuration says so."""
    folder = write_checkpoint(tmp_path / "m", LLAVA | {key: "org/kernel"})
    with pytest.raises(CheckpointError, match=f"{key} is 'org/kernel', a kernel of the hub"):
        fingerprint_of(folder)
    pipeline = write_pipeline(tmp_path / "p")
    (pipeline / "text_encoder" / "config.json").write_text(json.dumps({key: "org/kernel"}))
    with pytest.raises(CheckpointError, match=r"text_encoder/config\.json: .*a kernel of the hub"):
        fingerprint_of(pipeline)
    assert fingerprint_of(write_checkpoint(tmp_path / "own", LLAVA | {key: "sdpa"}))


def test_an_image_tower_from_elsewhere_is_refused(tmp_path: Path) -> None:
    """Timm would build it by a configuration of the hub."""
    config = {"model_cfg": {"vision_cfg": {"timm_model_name": "hf-hub:org/vit"}}}
    name = "open_clip_model.safetensors"
    folder = write_checkpoint(tmp_path / "m", config, name, index="open_clip_config.json")
    with pytest.raises(CheckpointError, match=r"built by the configuration of 'hf-hub:org/vit'"):
        fingerprint_of(folder)


def test_every_component_of_a_pipeline_counts(tmp_path: Path) -> None:
    """Scheduler and text encoder decide the picture as much as the unet does."""
    folder = write_pipeline(tmp_path / "p")
    seen = {fingerprint_of(folder)}
    for name in (
        "model_index.json",
        "scheduler/scheduler_config.json",
        "text_encoder/model.safetensors",
        "unet/diffusion_pytorch_model.safetensors",
    ):
        path = folder / name
        path.write_bytes(path.read_bytes() + b" ")
        seen.add(fingerprint_of(folder))
    assert len(seen) == 5
    (folder / "single_file.safetensors").write_bytes(safetensors_bytes())
    assert fingerprint_of(folder) in seen


def test_a_component_that_is_linked_in_counts(tmp_path: Path) -> None:
    """Loaders follow links, so a tokenizer shared by several checkpoints is part of each."""
    folder = write_pipeline(tmp_path / "p")
    before = fingerprint_of(folder)
    (folder / "tokenizer").rename(tmp_path / "shared")
    (folder / "tokenizer").symlink_to(tmp_path / "shared")
    (tmp_path / "shared" / "loop").symlink_to(folder)
    assert fingerprint_of(folder) == before
    (tmp_path / "shared" / "tokenizer_config.json").write_text("{} ", encoding="utf-8")
    assert fingerprint_of(folder) != before


def test_a_pipelines_precision_is_its_first_components(tmp_path: Path) -> None:
    """A pipeline's index states none; a component's does, and any other checkpoint's own."""
    folder = write_pipeline(tmp_path / "p")
    assert stored_precision(inspect(folder)) == {}
    write_checkpoint(folder / "unet", {"torch_dtype": "float16"}, None)
    assert stored_precision(inspect(folder)) == {"torch_dtype": "float16"}
    write_checkpoint(folder / "text_encoder", {"dtype": "bfloat16"}, None)
    assert stored_precision(inspect(folder)) == {"dtype": "bfloat16"}
    single = inspect(write_checkpoint(tmp_path / "m", {**LLAVA, "dtype": "float16"}))
    assert stored_precision(single)["dtype"] == "float16"
