"""Describer checkpoints with faults: each is refused in words, and none is measured."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CheckpointError, ModelError
from pytest_cepbench.models.roles import BoundRole, Describer
from tests.models.describers.conftest import Build, describe
from tests.tiny.common import pictures

pytest.importorskip("torch", reason="describers need the [models] extra")
pytest.importorskip("transformers", reason="describers need the [models] extra")

pytestmark = pytest.mark.models


def test_pickled_weights_load_when_allowed(copied: Build, bound: Callable[..., BoundRole]) -> None:
    """allow_pickle=true must load what it allows, and describe as the safetensors did."""
    import torch
    from safetensors.torch import load_file

    folder = copied("llava")
    before = describe_all(bound(folder, "max_new_tokens=8"))
    weights = folder / "model.safetensors"
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(CheckpointError, match="allow_pickle=true"):
        bound(folder)
    assert describe_all(bound(folder, "max_new_tokens=8&allow_pickle=true")) == before


def test_pickled_code_is_not_run(
    copied: Build, bound: Callable[..., BoundRole], tmp_path: Path
) -> None:
    """Allowing pickled weights allows tensors, not programs."""
    import pickle

    class Program:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    folder = copied("llava")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"w": Program()}))
    with pytest.raises(CheckpointError, match="could not be loaded"):
        bound(folder, "allow_pickle=true").load()
    assert not (tmp_path / "ran").exists()


def describe_all(role: BoundRole) -> list[Any]:
    """Load a role and describe the pictures."""
    model = role.load()
    assert isinstance(model, Describer)
    return describe(model, pictures())


def test_a_missing_tensor_is_refused(copied: Build, bound: Callable[..., BoundRole]) -> None:
    """The library would fill it with random numbers and measure those."""
    from safetensors.torch import load_file, save_file

    folder = copied("llava")
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in sorted(weights) if "multi_modal_projector" in name)
    save_file(
        {key: value for key, value in weights.items() if key != name},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(CheckpointError, match="multi_modal_projector"):
        bound(folder).load()


def test_weights_of_another_shape_are_refused(
    copied: Build, bound: Callable[..., BoundRole]
) -> None:
    """A config that does not belong to the weights must be an error that names the folder."""
    folder = copied("llava")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["text_config"]["intermediate_size"] = 96
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(CheckpointError, match="could not be loaded"):
        bound(folder).load()


def test_a_tokenizer_of_another_model_is_explained(
    copied: Build, describer: Callable[..., Describer]
) -> None:
    """Token ids beyond the weights crash a lookup; the reason must be in words."""
    folder = copied("llava")
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["describe"] = len(vocabulary) + 500
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(ModelError, match="the tokenizer is not the one of these weights"):
        describe(describer(folder), pictures())


def test_a_folder_without_processor_is_explained(
    copied: Build, describer: Callable[..., Describer]
) -> None:
    """Trainers often save the model alone; the message must say what else to save."""
    folder = copied("llava")
    for name in ("processor_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(CheckpointError, match=r"processor|tokenizer"):
        describer(folder)


def test_other_weights_have_another_fingerprint(
    tmp_path: Path, tiny_describer: Build, bound: Callable[..., BoundRole]
) -> None:
    """Two checkpoints of one architecture differ in nothing but numbers, and must differ here."""
    from tests.tiny.describers import build_llava

    other = build_llava(tmp_path / "other", seed=1)
    copy = shutil.copytree(tiny_describer("llava"), tmp_path / "copy")
    own = bound(tiny_describer("llava"))
    assert bound(other).fingerprint != own.fingerprint
    assert bound(copy).fingerprint == own.fingerprint
    assert bound(other).params == own.params


WITHOUT_TORCHVISION = """
import sys
sys.modules["torchvision"] = None
from pytest_cepbench.datasets.sample import load_seed_image
from pytest_cepbench.datasets.shapes.samples import load_shapes
from pytest_cepbench.errors import MissingDependencyError
from pytest_cepbench.models import BindContext, bind, parse_spec
bound = bind(parse_spec(sys.argv[1]), "describer", BindContext(lambda path: path.name, threads=1))
try:
    bound.load()
    print("loaded")
except MissingDependencyError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("name", "said"), [("llava", "loaded"), ("qwen2-vl", "torchvision, which several need")]
)
def test_an_absent_torchvision_is_explained(tiny_describer: Build, name: str, said: str) -> None:
    """Most processors work without torchvision; where one does not, the message must name it."""
    folder = tiny_describer(name)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCHVISION, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said in done.stdout
