"""Quantized checkpoints: loaded by their libraries, and explained where that cannot be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CheckpointError
from tests.models.binding import bind_text
from tests.models.files import LLAVA, inspect, write_checkpoint, write_tensors
from tests.tiny.common import edit_tensors, pictures


def quantized(folder: Path, **config: Any) -> Path:
    """A describer's folder whose configuration says that it is quantized."""
    return write_checkpoint(folder, {**LLAVA, "quantization_config": config})


def test_a_quantization_without_method_is_refused(tmp_path: Path) -> None:
    """Only the first versions of bitsandbytes' support wrote none."""
    with pytest.raises(CheckpointError, match="quantization_config without quant_method"):
        inspect(quantized(tmp_path / "m", bits=4))
    old = quantized(tmp_path / "old", quant_method=None, load_in_8bit=True)
    assert inspect(old).quantization == "bitsandbytes"


def test_whole_numbers_without_a_quantization_are_refused(tmp_path: Path) -> None:
    """Read as weights they are hundreds of times too large."""
    folder = write_checkpoint(tmp_path / "m", LLAVA)
    name = "lm_head.weight"
    write_tensors(folder / "model.safetensors", {name: (4,)}, **{name: "I8"})
    with pytest.raises(CheckpointError, match=r"whole numbers in lm_head\.weight"):
        inspect(folder)


METHODS = ("bitsandbytes 8 bit", "bitsandbytes 4 bit", "torchao")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny LLaVA whose layers are wide enough for blocks of 64 numbers."""
    pytest.importorskip("torch", reason="quantized models need the [models] extra")
    pytest.importorskip("transformers", reason="quantized models need the [models] extra")
    from tests.tiny.describers import build_llava

    return build_llava(tmp_path_factory.mktemp("whole") / "llava", width=64)


def save_quantized(folder: Path, whole: Path, method: str) -> Path:
    """A copy of a checkpoint whose weights a library has quantized and saved."""
    import warnings

    import transformers

    from pytest_cepbench.models.torch_runtime import quiet

    if method == "torchao":
        quantization = pytest.importorskip("torchao.quantization")
        config = transformers.TorchAoConfig(quantization.Int8WeightOnlyConfig())
    else:
        pytest.importorskip("bitsandbytes")
        config = transformers.BitsAndBytesConfig(
            load_in_8bit="8 bit" in method, load_in_4bit="4 bit" in method
        )
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForImageTextToText.from_pretrained(
            whole, quantization_config=config, device_map={"": "cpu"}
        )
        shutil.copytree(whole, folder)
        (folder / "model.safetensors").unlink()
        model.save_pretrained(folder)
    return folder


def describe(folder: Path) -> tuple[Any, list[Any]]:
    """A loaded describer and what it says of three pictures."""
    loaded: Any = bind_text(f"{folder}?max_new_tokens=6", "describer").load()
    return loaded, list(loaded.describe(pictures(), "describe the image", [0, 1, 2]))


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_quantized_weights_stay_packed(method: str, whole: Path, tmp_path: Path) -> None:
    """They are loaded as they are stored, their files may be overwritten, and they describe."""
    import torch

    from pytest_cepbench.models.binding import weights_bytes
    from pytest_cepbench.models.spec import parse_spec

    folder = save_quantized(tmp_path / "quantized", whole, method)
    estimate = weights_bytes(parse_spec(str(folder)), "cpu")
    assert estimate is not None
    assert estimate < (whole / "model.safetensors").stat().st_size / 2

    loaded, texts = describe(folder)
    (folder / "model.safetensors").write_bytes(bytes((folder / "model.safetensors").stat().st_size))
    assert list(loaded.describe(pictures(), "describe the image", [0, 1, 2])) == texts
    assert any(texts)
    weight = loaded.loaded.model.model.language_model.layers[0].self_attn.q_proj.weight
    packed = getattr(weight, "qdata", weight)
    assert packed.dtype in (torch.int8, torch.uint8)


@pytest.mark.models
@pytest.mark.slow
def test_broken_scales_are_found(whole: Path, tmp_path: Path) -> None:
    """NaN among the scales of quantized weights is NaN among the weights."""

    def spoil(tensors: dict[str, Any]) -> None:
        tensors[min(n for n in tensors if "q_proj" in n and "scale" in n)].fill_(float("nan"))

    folder = save_quantized(tmp_path / "quantized", whole, "torchao")
    edit_tensors(folder / "model.safetensors", spoil)
    with pytest.raises(CheckpointError, match=r"NaN or infinite values in .*q_proj"):
        describe(folder)


@pytest.mark.models
@pytest.mark.slow
def test_an_adapter_works_beside_a_quantized_base(whole: Path, tmp_path: Path) -> None:
    """As it was trained (QLoRA): the weights of the base stay packed and unchanged."""
    pytest.importorskip("peft", reason="adapters need the [models] extra")
    from tests.tiny.adapters import build_lora

    base = save_quantized(tmp_path / "quantized", whole, "bitsandbytes 8 bit")
    adapter = build_lora(tmp_path / "adapter", whole)
    path = adapter / "adapter_config.json"
    config = json.loads(path.read_text("utf-8")) | {"base_model_name_or_path": str(base)}
    path.write_text(json.dumps(config), encoding="utf-8")

    bound = bind_text(str(adapter), "describer")
    assert any("which is quantized" in remark for remark in bound.remarks)
    loaded, texts = describe(adapter)
    assert texts != describe(base)[1]
    layer = loaded.loaded.model.model.language_model.layers[0].self_attn.q_proj
    assert layer.base_layer.weight.dtype.itemsize == 1
    assert not layer.merged
