"""Plans: a spec's parameters settled at binding, and the role that is bound from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.binding import BindContext, BoundRole
from pytest_cepbench.models.checkpoints import inspect_checkpoint
from pytest_cepbench.models.checkpoints.binding import CheckpointParams, adapter
from pytest_cepbench.models.encoders.transformers_encoder import TransformersEncoderParams
from pytest_cepbench.models.encoders.vectors import EncoderParams
from pytest_cepbench.models.protocols import Model, RoleName
from pytest_cepbench.models.spec import parse_spec
from pytest_cepbench.models.text_model.parameters import GenerationParams
from tests.models.files import VIT, write_checkpoint


def bound(
    folder: Path,
    query: str,
    context: BindContext,
    kind: type[CheckpointParams] = TransformersEncoderParams,
) -> BoundRole:
    """A folder bound as encoder, or as describer where its parameters are such."""

    def load(_: object) -> Model:
        pytest.fail("binding loads nothing")

    spec = parse_spec(f"{folder}{query}")
    role: RoleName = "describer" if kind is GenerationParams else "encoder"
    return adapter("test/1", (), kind, load)(role, spec, inspect_checkpoint(spec), context)


@pytest.mark.parametrize(
    ("query", "device", "dtype"),
    [
        ("?device=cuda:1", "cuda:1", "bfloat16"),
        ("?device=cpu", "cpu", "float32"),
        ("?device=cpu&dtype=float16", "cpu", "float16"),
    ],
)
def test_a_plan_settles_device_and_precision(
    tmp_path: Path, context: BindContext, query: str, device: str, dtype: str
) -> None:
    """What "auto" comes to is decided once, at binding, from the device and the checkpoint."""
    folder = write_checkpoint(tmp_path / "m", {**VIT, "dtype": "bfloat16"})
    role = bound(folder, query, context, EncoderParams)
    assert (role.device, role.params) == (device, {"dtype": dtype})


def test_a_parameter_of_another_adapter_is_refused(tmp_path: Path, context: BindContext) -> None:
    """The message must name the parameter, the role and the model that does not know it."""
    folder = write_checkpoint(tmp_path / "m", VIT)
    with pytest.raises(SpecError, match="for the encoder ViTModel 'pooling'"):
        bound(folder, "?pooling=cls", context, EncoderParams)


def test_the_fingerprint_is_that_of_the_files_the_spec_lets_loading_read(
    tmp_path: Path, context: BindContext
) -> None:
    """Code and pickles count where the spec lets them be run and read, and only there."""
    folder = write_checkpoint(tmp_path / "m", VIT, "pytorch_model.bin")
    (folder / "modeling.py").write_text("x = 1", encoding="utf-8")

    def fingerprints(*queries: str) -> list[str]:
        return [bound(folder, query, context).fingerprint for query in queries]

    queries = ("", "?allow_pickle=true", "?trust_remote_code=true")
    before = fingerprints(*queries)
    assert len(set(before)) == 3
    (folder / "modeling.py").write_text("x = 2", encoding="utf-8")
    (folder / "pytorch_model.bin").write_bytes(b"other")
    after = fingerprints(*queries)
    assert after[0] == before[0]
    assert after[1] != before[1]
    assert after[2] != before[2]


@pytest.mark.parametrize(
    ("query", "batch_size", "small"),
    [
        ("?device=cpu", 32, True),
        ("?device=cpu&batch_size=4", 4, True),
        ("?device=cpu&batch_size=1", 1, True),
        ("?device=cuda", 8, False),
    ],
)
def test_small_models_on_the_cpu_take_larger_batches(
    tmp_path: Path, context: BindContext, query: str, batch_size: int, small: bool
) -> None:
    """Unless the user says how many; what is large, or on an accelerator, keeps its size."""
    folder = write_checkpoint(tmp_path / "m", VIT)
    role = bound(folder, query, context, GenerationParams)
    assert (role.batch_size, role.small) == (batch_size, small)


def test_large_models_on_the_cpu_keep_their_batches(tmp_path: Path, context: BindContext) -> None:
    """Theirs are bound by arithmetic or memory, not by what a call costs."""
    folder = write_checkpoint(tmp_path / "m", VIT)
    with (folder / "model.safetensors").open("r+b") as weights:
        weights.truncate(100 << 20)
    role = bound(folder, "?device=cpu", context, GenerationParams)
    assert (role.batch_size, role.small) == (8, False)
