"""Describer checkpoints with faults: each is refused in words, and none is measured."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.chains.batching import CallCounts
from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Describer
from pytest_cepbench.models.torch_runtime import has
from tests.models.text_model.conftest import Build, describe
from tests.tiny.common import pictures, skip_before

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
    shapes = r" is \(64, 32\), expected \(96, 32\)" if has("transformers", "5.0") else ""
    with pytest.raises(CheckpointError, match=rf"not of one model: .*gate_proj.weight{shapes}"):
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
    with pytest.raises(CheckpointError, match=r"the token 'describe' at .* not the one of these"):
        describer(folder)


def add_tensors(file: Path, *names: str) -> None:
    """Write small tensors beside the weights."""
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(file) | {name: torch.ones(2) for name in names}
    save_file(weights, file, metadata={"format": "pt"})


def test_a_tensor_that_is_not_used_is_refused(
    copied: Build, bound: Callable[..., BoundRole]
) -> None:
    """An unmerged adapter is left out silently; a constant of old libraries is no adapter."""
    folder = copied("llava")
    name = "language_model.model.layers.0.self_attn.q_proj.lora_A.weight"
    add_tensors(folder / "model.safetensors", "language_model.model.masked_bias")
    bound(folder).load()
    add_tensors(folder / "model.safetensors", name)
    with pytest.raises(CheckpointError, match=r"lora_A\.weight\. An adapter .* allow_unused=true"):
        bound(folder).load()
    allowed = bound(folder, "allow_unused=true")
    assert allowed.params == bound(folder).params
    allowed.load()


def test_a_folder_without_processor_is_explained(
    copied: Build, describer: Callable[..., Describer]
) -> None:
    """Trainers often save the model alone; the message must say what else to save."""
    skip_before("an error that names the processor", "transformers", "5.0")
    folder = copied("llava")
    for name in ("processor_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(CheckpointError, match=r"processor|tokenizer"):
        describer(folder)


@pytest.mark.parametrize(
    ("setting", "value"), [("patch_size", "8"), ("vision_feature_select_strategy", '"default"')]
)
def test_a_processor_that_counts_no_tokens_is_explained(
    setting: str, value: str, copied: Build, bound: Callable[..., BoundRole]
) -> None:
    """As those of before transformers 4.46: the key, the file, and what the model says of it."""
    folder = copied("llava")
    file = folder / "processor_config.json"
    stored = json.loads(file.read_text())
    del stored[setting]
    file.write_text(json.dumps(stored))
    words = f'{file}: no {setting}, .*LlavaProcessor.*{{"{setting}": {value}}}'
    with pytest.raises(CheckpointError, match=words):
        bound(folder).load()


def test_a_chat_template_that_cannot_ask_is_told(
    copied: Build, describer: Callable[..., Describer]
) -> None:
    """Several templates without a default are refused; one that drops the prompt is warned of."""
    folder = copied("llava")
    template = folder / "chat_template.jinja"
    text = template.read_text(encoding="utf-8")
    template.write_text(text.replace("{{ part['text'] }}", ""), encoding="utf-8")
    told = pytest.warns(UserWarning, match="does not read what it is asked")
    with told, warnings.catch_warnings(action="error"), CallCounts().timed():  # `-W error`, a run
        describer(folder)
    template.write_text("{{ raise_exception('roles must alternate') }}", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"could not be loaded: .*roles must alternate"):
        describer(folder)
    template.unlink()
    file = folder / "tokenizer_config.json"
    named = {"chat_template": [{"name": "tool_use", "template": text}]}
    file.write_text(json.dumps(json.loads(file.read_text()) | named), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"\(tool_use\) none is called default"):
        describer(folder)


def test_code_of_its_own_is_asked_for_by_name(
    copied: Build, describer: Callable[..., Describer]
) -> None:
    """What transformers says of it speaks of the hub."""
    folder = copied("llava")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    (folder / "config.json").write_text(json.dumps(config | own), encoding="utf-8")
    (folder / "own.py").write_text("raise SystemError", encoding="utf-8")
    with pytest.raises(CheckpointError, match="add trust_remote_code=true to the model's spec"):
        describer(folder)


WITHOUT_TORCHVISION = """
import sys
sys.modules["torchvision"] = None
from pytest_cepbench.datasets.sample import load_seed_image
from pytest_cepbench.datasets.shapes.samples import load_shapes
from pytest_cepbench.errors import MissingDependencyError
from pytest_cepbench.models.binding import BindContext
from pytest_cepbench.models.binding import bind
from pytest_cepbench.models.spec import parse_spec
for folder in sys.argv[1:]:
    bound = bind(parse_spec(folder), "describer", BindContext(lambda path: path.name, threads=1))
    try:
        bound.load()
        print("loaded")
    except MissingDependencyError as error:
        print(error)
"""


@pytest.mark.slow
def test_an_absent_torchvision_is_explained(tiny_describer: Build) -> None:
    """Most processors work without torchvision; where one does not, the message must name it."""
    folders = [str(tiny_describer(name)) for name in ("llava", "qwen2-vl")]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCHVISION, *folders],
        capture_output=True,
        text=True,
        check=True,
    )
    without, needing = done.stdout.splitlines()
    assert without == "loaded"
    assert "torchvision, which several need" in needing
