"""Plans: a spec's parameters settled at binding, and the role that is bound from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cepbench.errors import SpecError
from pytest_cepbench.models.checkpoints import inspect_checkpoint
from pytest_cepbench.models.describers.describer_params import DescriberParams
from pytest_cepbench.models.encoders.transformers_encoder import TransformersEncoderParams
from pytest_cepbench.models.encoders.vectors import EncoderParams
from pytest_cepbench.models.load_plan import CheckpointParams, LoadPlan, bind_plan, make_plan
from pytest_cepbench.models.model_spec import parse_spec
from pytest_cepbench.models.protocols import BindContext, BoundRole, Model
from tests.models.files import VIT, write_checkpoint


def plan_of(
    folder: Path,
    query: str,
    context: BindContext,
    kind: type[CheckpointParams] = TransformersEncoderParams,
) -> LoadPlan[CheckpointParams]:
    """The plan of a folder as an encoder, or a describer where its parameters are such."""
    spec = parse_spec(f"{folder}{query}")
    return make_plan(
        "describer" if kind is DescriberParams else "encoder",
        kind,
        spec,
        inspect_checkpoint(spec),
        context,
    )


def bound(plan: LoadPlan[CheckpointParams]) -> BoundRole:
    """The role of a plan whose model is never loaded."""

    def load() -> Model:
        pytest.fail("binding loads nothing")

    return bind_plan(plan, adapter="test/1", load=load, params={"dtype": plan.dtype})


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
    plan = plan_of(folder, query, context)
    assert (plan.device, plan.dtype) == (device, dtype)
    role = bound(plan)
    assert (role.provenance["device"], role.params) == (device, {"dtype": dtype})


def test_a_parameter_of_another_adapter_is_refused(tmp_path: Path, context: BindContext) -> None:
    """The message must name the parameter, the role and the model that does not know it."""
    folder = write_checkpoint(tmp_path / "m", VIT)
    with pytest.raises(SpecError, match="for the encoder ViTModel 'pooling'"):
        plan_of(folder, "?pooling=cls", context, EncoderParams)


def test_the_fingerprint_is_that_of_the_files_the_spec_lets_loading_read(
    tmp_path: Path, context: BindContext
) -> None:
    """Code and pickles count where the spec lets them be run and read, and only there."""
    folder = write_checkpoint(tmp_path / "m", VIT, "pytorch_model.bin")
    (folder / "modeling.py").write_text("x = 1", encoding="utf-8")

    def fingerprints(*queries: str) -> list[str]:
        return [bound(plan_of(folder, query, context)).fingerprint for query in queries]

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
        ("?device=cuda", 8, False),
    ],
)
def test_small_models_on_the_cpu_take_larger_batches(
    tmp_path: Path, context: BindContext, query: str, batch_size: int, small: bool
) -> None:
    """Unless the user says how many; what is large, or on an accelerator, keeps its size."""
    folder = write_checkpoint(tmp_path / "m", VIT)
    role = bound(plan_of(folder, query, context, DescriberParams))
    assert (role.batch_size, role.small) == (batch_size, small)


def test_large_models_on_the_cpu_keep_their_batches(tmp_path: Path, context: BindContext) -> None:
    """Theirs are bound by arithmetic or memory, not by what a call costs."""
    folder = write_checkpoint(tmp_path / "m", VIT)
    with (folder / "model.safetensors").open("r+b") as weights:
        weights.truncate(100 << 20)
    role = bound(plan_of(folder, "?device=cpu", context, DescriberParams))
    assert (role.batch_size, role.small) == (8, False)
