"""Folders with modules.json: when they are sentence-transformers models, and which files count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints import stored_precision
from pytest_cepbench.models.checkpoints.checkpoint_files import readable_files
from pytest_cepbench.models.checkpoints.parameters import SourceOptions
from tests.models.files import LLAVA, inspect, write_checkpoint

MPNET = {"architectures": ["MPNetModel"], "model_type": "mpnet", "vocab_size": 9}
CLIP = {"architectures": ["CLIPModel"], "model_type": "clip", "vision_config": {}}

# The names of releases before 6.0, which most published models still state.
MODULES = [
    {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
    for i, (path, kind) in enumerate(
        (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    )
]


def write_modules(folder: Path, modules: Any = MODULES) -> Path:
    """A modules.json in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    return folder


def test_a_text_model_with_modules_is_a_text_encoder(tmp_path: Path) -> None:
    """Its config.json alone says that no role fits; modules.json says how its tokens are pooled."""
    folder = write_checkpoint(tmp_path / "m", {**MPNET, "dtype": "float16"})
    assert inspect(folder).roles == ()
    checkpoint = inspect(write_modules(folder))
    assert (checkpoint.kind, checkpoint.roles) == ("sentence_transformers", ("encoder",))
    assert stored_precision(checkpoint)["dtype"] == "float16"


def test_a_model_in_a_folder_of_its_own_is_found(tmp_path: Path) -> None:
    """Old releases put the transformer into 0_Transformer; then the root holds no config.json."""
    modules = [MODULES[0] | {"path": "0_Transformer"}, MODULES[1]]
    folder = write_modules(tmp_path / "m", modules)
    with pytest.raises(CheckpointError, match="names a component '0_Transformer'"):
        inspect(folder)
    write_checkpoint(folder / "0_Transformer", {**MPNET, "dtype": "float16"}, None)
    with pytest.raises(CheckpointError, match="0_Transformer: no weights"):
        inspect(folder)
    write_checkpoint(folder / "0_Transformer", {**MPNET, "dtype": "float16"})
    assert inspect(folder).roles == ("encoder",)
    assert stored_precision(inspect(folder))["dtype"] == "float16"
    write_checkpoint(folder / "0_Transformer", {}, None, index="adapter_config.json")
    with pytest.raises(CheckpointError, match="0_Transformer: a PEFT adapter"):
        inspect(folder)


@pytest.mark.parametrize(("config", "role"), [(CLIP, "encoder"), (LLAVA, "describer")])
def test_a_model_that_sees_keeps_its_role(
    tmp_path: Path, config: dict[str, Any], role: str
) -> None:
    """A dual encoder that also carries modules.json is read as one, images included."""
    checkpoint = inspect(write_modules(write_checkpoint(tmp_path / "m", config)))
    assert (checkpoint.kind, checkpoint.roles[:1]) == ("transformers", (role,))


@pytest.mark.parametrize(
    ("modules", "because"),
    [
        ([*MODULES, {"path": "3", "type": "sentence_transformers.models.Dense"}], "models.Dense"),
        ([{"path": "", "type": "jina.custom.Transformer"}], "has the module jina.custom"),
        (MODULES[:1], "has no module Pooling"),
        (MODULES[1:], "begins with the module sentence_transformers.models.Pooling"),
    ],
)
def test_other_modules_get_no_role_and_a_reason(
    tmp_path: Path, modules: list[dict[str, Any]], because: str
) -> None:
    """The first one that is not read must be named."""
    folder = write_modules(write_checkpoint(tmp_path / "m", MPNET), modules)
    (folder / "1_Pooling").mkdir()
    checkpoint = inspect(folder)
    assert checkpoint.roles == ()
    assert because in checkpoint.because


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ({}, "expected a JSON list"),
        ([], "expected a JSON list"),
        ([{"path": ""}], "each with a path and a type"),
        ([MODULES[0] | {"path": "../other"}], "leads out of the checkpoint"),
        ([MODULES[0] | {"path": "/etc"}], "leads out of the checkpoint"),
        ([MODULES[0] | {"path": "..\\other"}], "leads out of the checkpoint"),
    ],
)
def test_a_wrong_list_of_modules_is_named(tmp_path: Path, modules: Any, expected: str) -> None:
    """A list that is none, or that reaches for another folder's files."""
    with pytest.raises(CheckpointError, match=rf"modules\.json: .*{expected}"):
        inspect(write_modules(tmp_path / "m", modules))


def test_of_a_published_repository_only_the_modules_files_count() -> None:
    """The layout of all-mpnet-base-v2: exports for other runtimes and training scripts stay."""
    left = {
        ".gitattributes", "README.md", "pytorch_model.bin", "train_script.py", "onnx/model.onnx",
        "openvino/openvino_model.bin", "openvino/openvino_model.xml",
    }  # fmt: skip
    read = {
        "1_Pooling/config.json", "config.json", "config_sentence_transformers.json",
        "data_config.json", "model.safetensors", "modules.json", "sentence_bert_config.json",
        "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt",
    }  # fmt: skip
    config = {"modules": MODULES}
    assert set(readable_files(read | left, "sentence_transformers", config)) == read
    names = read | left
    names.remove("model.safetensors")
    pickled = readable_files(
        names, "sentence_transformers", config, SourceOptions(allow_pickle=True)
    )
    assert "pytorch_model.bin" in pickled
    assert "pytorch_model.bin" not in readable_files(names, "sentence_transformers", config)
