"""Adapters on disk: where their base is, what they are made of, and what is said otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CheckpointError, SpecError
from pytest_cepbench.models.checkpoints import Checkpoint
from tests.models.files import (
    LLAVA,
    STABLE_DIFFUSION,
    inspect,
    safetensors_bytes,
    write_checkpoint,
)


def write_adapter(folder: Path, base: str | None, **config: Any) -> Path:
    """A LoRA's folder, as far as inspection looks at it."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"peft_type": "LORA", "base_model_name_or_path": base, **config}
    (folder / "adapter_config.json").write_text(json.dumps(values), encoding="utf-8")
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes())
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A describer's folder."""
    return write_checkpoint(tmp_path / "base", LLAVA)


def test_the_base_is_found_where_the_adapter_says(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an absolute path, from the working folder, or from the adapter's own."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate([str(base), "base", "../../base", "./base"]):
        adapter = write_adapter(tmp_path / "runs" / str(number), name)
        found = inspect(adapter)
        assert found.path == base
        assert found.roles == ("describer", "writer")
        assert found.place == adapter
        assert found.remarks == (f"adapter {number} (LORA) merged into {base}",)


def test_an_absent_base_is_one_line(tmp_path: Path) -> None:
    """It says which one is missing, and how to name it."""
    for name in ("org/model", "/gone/base"):
        adapter = write_adapter(tmp_path / "adapter", name, revision="v1")
        with pytest.raises(CheckpointError, match=rf"base model '{name}'.*base=FOLDER"):
            inspect(adapter)
    with pytest.raises(CheckpointError, match=r"names no base model.*base=FOLDER"):
        inspect(write_adapter(tmp_path / "none", None))


def test_another_base_is_said(base: Path, tmp_path: Path) -> None:
    """A base by another name may be another model, which only its user can know."""
    adapter = write_adapter(tmp_path / "adapter", "org/llava-7b")
    found: Checkpoint = inspect(adapter, f"?base={base}")
    assert found.remarks[0] == (
        f"the adapter was trained on 'org/llava-7b', and is applied to {base}"
    )
    write_adapter(adapter, "/cluster/models/base")
    assert len(inspect(adapter, f"?base={base}").remarks) == 1


def test_an_adapter_of_a_run_is_found(base: Path, tmp_path: Path) -> None:
    """The root of a run with one adapter, by itself and among `adapters`."""
    write_adapter(tmp_path / "run" / "checkpoint-7", str(base))
    found = inspect(tmp_path / "run")
    assert found.path == base
    assert [part.path.name for part in found.adapters] == ["checkpoint-7"]
    assert inspect(base, f"?adapters={tmp_path / 'run'}").adapters == found.adapters


def test_adapters_that_are_not_whole_are_refused(base: Path, tmp_path: Path) -> None:
    """Half-written, pickled, without its configuration, or with weights that PEFT never reads."""
    adapter = write_adapter(tmp_path / "adapter", str(base))
    weights = adapter / "adapter_model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-2])
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors: .* bytes where"):
        inspect(adapter)
    weights.unlink()
    with pytest.raises(CheckpointError, match=r"adapter without weights.*adapter_config\.json"):
        inspect(adapter)
    weights.write_bytes(data)
    (adapter / "non_lora_trainables.bin").write_bytes(b"pickle")
    with pytest.raises(CheckpointError, match=r"non_lora_trainables\.bin beside the adapter"):
        inspect(adapter)


@pytest.mark.parametrize("text", ["{", "[]", '{"peft_type": 3}', '{"peft_type": "A\\nB"}', "{}"])
def test_a_configuration_that_is_none_is_named(base: Path, tmp_path: Path, text: str) -> None:
    """A configuration cut off in writing must be an error that names the file."""
    adapter = write_adapter(tmp_path / "adapter", str(base))
    (adapter / "adapter_config.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"adapter_config\.json"):
        inspect(adapter)


def test_folders_that_are_both_are_refused(base: Path, tmp_path: Path) -> None:
    """A whole model beside an adapter, and an adapter as the base of another."""
    adapter = write_adapter(tmp_path / "adapter", str(base))
    second = write_adapter(tmp_path / "second", str(adapter))
    with pytest.raises(CheckpointError, match=r"its base .* is an adapter too"):
        inspect(second)
    with pytest.raises(SpecError, match="is an adapter itself"):
        inspect(adapter, f"?adapters={second}")
    write_adapter(base, str(base))
    with pytest.raises(CheckpointError, match="a whole model and a PEFT adapter"):
        inspect(base)


def test_adapters_are_for_transformers(tmp_path: Path) -> None:
    """Those of a pipeline are named in another way."""
    base = write_checkpoint(tmp_path / "sd", STABLE_DIFFUSION, None, index="model_index.json")
    adapter = write_adapter(tmp_path / "adapter", str(base))
    with pytest.raises(CheckpointError, match="applied to a model of transformers"):
        inspect(adapter)


def test_a_quantized_base_is_not_merged_into(tmp_path: Path) -> None:
    """Its few bits would round what the adapter adds away."""
    config = {**LLAVA, "quantization_config": {"quant_method": "bitsandbytes"}}
    adapter = write_adapter(tmp_path / "a", str(write_checkpoint(tmp_path / "base", config)))
    found = inspect(adapter)
    assert found.adapters[0].settings == {"merge": False}
    assert found.remarks[0].endswith("/base, which is quantized")
    with pytest.raises(SpecError, match=r"merge=true, and .* is quantized"):
        inspect(adapter, "?merge=true")
