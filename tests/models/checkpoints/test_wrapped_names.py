"""Weights that were saved through a wrapper: the model is the one inside, in every room."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="models need the [models] extra")

from pytest_cepbench.errors import CheckpointError  # noqa: E402
from pytest_cepbench.models.checkpoints.checkpoint_files import own_names  # noqa: E402
from tests.models.binding import bind_text, plain  # noqa: E402
from tests.tiny import encoders, generators, text_encoders  # noqa: E402
from tests.tiny.adapters import build_lora, edit_tensors  # noqa: E402
from tests.tiny.common import pictures, skip_before  # noqa: E402
from tests.tiny.describers import build_llava  # noqa: E402
from tests.tiny.loras import LORA_FILE  # noqa: E402
from tests.tiny.loras import build_lora as build_pipeline_lora  # noqa: E402

pytestmark = pytest.mark.models

WRAPPERS = ("_orig_mod.", "module.", "_fsdp_wrapped_module.", "base_model.model.")


def wrap(folder: Path, prefix: str) -> Path:
    """Put a wrapper's name before that of every tensor below a folder."""
    for file in folder.rglob("*.safetensors"):
        edit_tensors(file, lambda t: [t.update({prefix + name: t.pop(name)}) for name in list(t)])
    return folder


def describe(text: str) -> Any:
    """The texts of a describer."""
    model: Any = bind_text(f"{text}max_new_tokens=6", "describer").load()
    return plain(model.describe(pictures(), "describe the image", [0, 1, 2]))


def encode(text: str) -> Any:
    """The vectors of an encoder of images."""
    model: Any = bind_text(text, "encoder").load()
    return model.encode_images(pictures())


def encode_texts(text: str) -> Any:
    """The vectors of an encoder of texts."""
    model: Any = bind_text(text, "encoder").load()
    return model.encode_texts(["a red circle", "a small square"])


def draw(text: str) -> Any:
    """The pixels of a generator."""
    model: Any = bind_text(f"{text}num_inference_steps=1", "generator").load()
    return np.stack([np.asarray(image) for image in model.generate(["a red circle"], [0])])


ROOMS: dict[str, tuple[Callable[[Path], Path], Callable[[str], Any]]] = {
    "describer": (build_llava, describe),
    "generator": (generators.build_stable_diffusion, draw),
    "transformers encoder": (encoders.build_dinov2, encode),
    "timm encoder": (encoders.build_timm_vit, encode),
    "open_clip encoder": (encoders.build_open_clip, encode),
    "sentence encoder": (text_encoders.build_sentence_transformer, encode_texts),
}


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize(
    "wrapper",
    [WRAPPERS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in WRAPPERS[1:])],
)
def test_a_wrapped_model_answers_as_the_one_inside(room: str, wrapper: str, tmp_path: Path) -> None:
    """The files stay as they are, and nothing is left of the copies."""
    build, ask = ROOMS[room]
    folder = build(tmp_path / "whole")
    expected = ask(f"{folder}?")
    wrapped = wrap(Path(shutil.copytree(folder, tmp_path / "wrapped")), wrapper)
    before = {path: path.read_bytes() for path in wrapped.rglob("*.safetensors")}
    np.testing.assert_array_equal(ask(f"{wrapped}?"), expected)
    assert {path: path.read_bytes() for path in before} == before


def test_shards_and_their_index_are_read(tmp_path: Path) -> None:
    """Two files, the names of whose tensors are in a third one."""
    folder = build_llava(tmp_path / "whole")
    expected = describe(f"{folder}?")
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="50KB")
    wrap(folder, "module.")
    index = folder / "model.safetensors.index.json"
    stored = json.loads(index.read_text())
    stored["weight_map"] = {f"module.{name}": file for name, file in stored["weight_map"].items()}
    index.write_text(json.dumps(stored))
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert describe(f"{folder}?") == expected


@pytest.mark.slow
def test_parts_may_be_wrapped(tmp_path: Path) -> None:
    """A component in a folder or a file, an adapter and LoRA weights: each as it is inside."""
    skip_before("a component's file as diffusers writes it", "diffusers", "0.35")
    pipeline = generators.build_stable_diffusion(tmp_path / "pipeline")
    other = generators.build_stable_diffusion(tmp_path / "other", seed=5)
    expected = draw(f"{pipeline}?unet={other / 'unet'}&")
    unet = wrap(Path(shutil.copytree(other / "unet", tmp_path / "unet")), "_orig_mod.")
    np.testing.assert_array_equal(draw(f"{pipeline}?unet={unet}&"), expected)
    name = "diffusion_pytorch_model.safetensors"
    expected = draw(f"{pipeline}?unet={other / 'unet' / name}&")
    np.testing.assert_array_equal(draw(f"{pipeline}?unet={unet / name}&"), expected)

    lora = build_pipeline_lora(pipeline, tmp_path / "lora")
    expected = draw(f"{pipeline}?lora={lora}&")
    _wrap_inside(lora / LORA_FILE, "unet.")
    np.testing.assert_array_equal(draw(f"{pipeline}?lora={lora}&"), expected)

    adapter = build_lora(tmp_path / "adapter", build_llava(tmp_path / "base"))
    texts = describe(f"{adapter}?")
    _wrap_inside(adapter / "adapter_model.safetensors", "base_model.model.")
    assert describe(f"{adapter}?") == texts


def _wrap_inside(file: Path, before: str) -> None:
    """Put torch.compile's name behind the first ones of every tensor of a file.

    What stands beside the tensors stays: the alpha of LoRA weights, for one.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    with safe_open(file, "pt") as stored:
        metadata = stored.metadata()
    tensors = {
        name.replace(before, f"{before}_orig_mod.", 1): tensor
        for name, tensor in load_file(file).items()
    }
    save_file(tensors, file, metadata=metadata)


def test_wrappers_in_one_another_and_between_modules(tmp_path: Path) -> None:
    """DDP around torch.compile, and FSDP around each layer; a module may be called `module`."""
    names = [
        "module._orig_mod.layers._fsdp_wrapped_module.0._checkpoint_wrapped_module.weight",
        "module._orig_mod.module.weight",
    ]
    assert list(own_names(names, tmp_path).values()) == ["layers.0.weight", "module.weight"]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["module.a", "module.b", "head.c"], r"2 tensors .* module\., and head\.c not"),
        (["_orig_mod.a", "a"], "two tensors would be a"),
    ],
)
def test_names_that_do_not_come_apart_are_refused(
    names: list[str], words: str, tmp_path: Path
) -> None:
    """Half a model is wrapped, or two were saved in one."""
    folder = build_llava(tmp_path / "m")
    from safetensors.torch import save_file

    save_file({name: torch.ones(2) for name in names}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=words):
        describe(f"{folder}?")
