"""An adapter of the reference describer is gated as the model that PEFT merges of it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the reference models need the [models] extra")
pytest.importorskip("peft", reason="adapters need the [models] extra")

from tests.reference.gated import BEST, Bench
from tests.tiny.adapters import build_lora, merge

pytestmark = [pytest.mark.models, pytest.mark.slow]


def test_an_adapter_is_gated_as_its_merged_model(tmp_path: Path) -> None:
    """Against the merged folder's baseline it holds exactly, by every name that it has."""
    bench = Bench(tmp_path)
    adapter = build_lora(tmp_path / "run" / "checkpoint-500", BEST)
    merged = merge(tmp_path / "merged", adapter)
    code, accepted, output = bench.gate(merged, "--snapshot-update", "--cep-accept-insensitive")
    assert code == 0, output

    code, case, output = bench.gate(adapter, "-v")

    assert code == 0, output
    assert f"describer: adapter checkpoint-500 (LORA) merged into {BEST}" in output
    assert case["value"] == accepted["value"]
    assert case["difference"] == 0
    assert case["effort"]["inputs"] > 0  # it is another model, whose answers are computed
    code, case, output = bench.gate(adapter.parent)
    assert code == 0, output
    assert f"describer: checkpoint read from {adapter}" in output
    assert case["value"] == accepted["value"]
    assert case["effort"]["loads"] == 0
