"""What a folder is taken for, and what is said where it is no checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.errors import CheckpointError, SpecError
from pytest_cepbench.models.checkpoints import stored_precision
from tests.models.files import LLAVA, inspect, write_checkpoint, write_pipeline


def test_a_folder_without_checkpoint_lists_what_is_there(tmp_path: Path) -> None:
    """The message must show what the folder holds, and point to a checkpoint one level down."""
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    write_checkpoint(tmp_path / "step-8", LLAVA)
    with pytest.raises(CheckpointError, match=r"notes\.txt.*step-8/.*Did you mean .*step-8"):
        inspect(tmp_path)


def test_a_component_of_a_pipeline_points_to_the_pipeline(tmp_path: Path) -> None:
    """A unet's folder has a config.json too; the message must say what to give instead."""
    folder = write_checkpoint(tmp_path / "unet", {"_class_name": "UNet2DConditionModel"})
    with pytest.raises(CheckpointError, match=r"PIPELINE\?unet="):
        inspect(folder)


@pytest.mark.parametrize("text", ["{", "[]", "", "\x00"])
def test_a_config_that_is_no_json_object_is_named(tmp_path: Path, text: str) -> None:
    """A config cut off in writing must be an error that names the file."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    (folder / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"config\.json: "):
        inspect(folder)


def test_a_revision_of_a_folder_is_refused(tmp_path: Path) -> None:
    """A folder has no revisions: ignoring the parameter would gate other weights than asked for."""
    with pytest.raises(SpecError, match="revision is for hub ids"):
        inspect(write_checkpoint(tmp_path / "m", LLAVA), "?revision=v2")


def test_a_file_is_no_checkpoint(tmp_path: Path) -> None:
    """Giving the weights file itself must say to give its folder."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    with pytest.raises(CheckpointError, match="is a file: give the folder"):
        inspect(folder / "model.safetensors")


def test_a_file_option_of_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    """Whether pickles may be read must not hang on a misspelt yes."""
    folder = write_checkpoint(tmp_path / "m", LLAVA, "pytorch_model.bin")
    with pytest.raises(SpecError, match="'allow_pickle' must be bool, got 'yess'"):
        inspect(folder, "?allow_pickle=yess")
    assert inspect(folder, "?allow_pickle=YES").roles == ("describer", "writer")


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
