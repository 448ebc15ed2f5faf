"""Plans: a spec's parameters settled at binding, and what the weights will take in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_cepbench.models.binding import BindContext, BoundRole, weights_bytes
from pytest_cepbench.models.checkpoints import inspect_checkpoint
from pytest_cepbench.models.checkpoints.binding import adapter
from pytest_cepbench.models.checkpoints.parameters import Placement
from pytest_cepbench.models.encoders.transformers_encoder import TransformersEncoderParams
from pytest_cepbench.models.encoders.vectors import EncoderParams
from pytest_cepbench.models.protocols import Model, RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.models.text_model.parameters import GenerationParams
from tests.models.files import LLAVA, VIT, write_checkpoint


def bound(
    folder: Path,
    query: str,
    context: BindContext,
    kind: type[Placement] = TransformersEncoderParams,
) -> BoundRole:
    """A folder bound as encoder, or as describer where its parameters are such."""

    def load(_: object) -> Model:
        pytest.fail("binding loads nothing")

    spec = parse_spec(f"{folder}{query}")
    role: RoleName = "describer" if kind is GenerationParams else "encoder"
    return adapter("test/1", (), kind, load)(role, spec, inspect_checkpoint(spec), context)


def test_a_plan_settles_device_and_precision(tmp_path: Path, context: BindContext) -> None:
    """What "auto" comes to is decided once, at binding, from the device and the checkpoint."""
    folder = write_checkpoint(tmp_path / "m", {**VIT, "dtype": "bfloat16"})
    role = bound(folder, "?device=cuda:1", context, EncoderParams)
    assert (role.device, role.params) == ("cuda:1", {"dtype": "bfloat16"})


@pytest.mark.parametrize(
    ("query", "batch_size"),
    [
        ("?device=cpu", 32),
        ("?device=cpu&batch_size=4", 4),
        ("?device=cpu&batch_size=1", 1),
        ("?device=cuda", 8),
    ],
)
def test_small_models_on_the_cpu_take_larger_batches(
    tmp_path: Path, context: BindContext, query: str, batch_size: int
) -> None:
    """Unless the user says how many; what is large, or on an accelerator, keeps its size."""
    folder = write_checkpoint(tmp_path / "m", VIT)
    role = bound(folder, query, context, GenerationParams)
    assert role.resources.batch_size == batch_size


def _weights(file: Path, **tensors: tuple[str, list[int], int]) -> None:
    """A safetensors file of such tensors: type, shape, bytes."""
    header, end = {}, 0
    for name, (kind, shape, size) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))


@pytest.mark.parametrize(
    ("query", "device", "expected"),
    [
        ("", "cpu", 4 * 60 + 7),
        ("", "cuda", 2 * 60 + 7),
        ("?dtype=float32", "cuda", 4 * 60 + 7),
        ("?device=cpu", None, 4 * 60 + 7),
    ],
)
def test_numbers_count_in_the_precision_they_are_loaded_in(
    tmp_path: Path, query: str, device: str | None, expected: int
) -> None:
    """A checkpoint in half precision takes twice its files on the CPU; codes stay as they are."""
    folder = write_checkpoint(tmp_path / "m", {**LLAVA, "dtype": "bfloat16"}, None)
    _weights(
        folder / "model.safetensors",
        w=("BF16", [5, 10], 100),
        b=("F32", [10], 40),
        q=("I8", [7], 7),
    )
    assert weights_bytes(parse_spec(f"{folder}{query}"), device) == expected
