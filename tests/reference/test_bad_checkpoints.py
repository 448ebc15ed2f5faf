"""Faults in the files of a checkpoint: a clear error or a regression, never a pass."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.reference.gated import BEST, Bench

pytest.importorskip("diffusers", reason="the reference models need the [models] extra")

from damage import DAMAGES

pytestmark = [pytest.mark.models, pytest.mark.slow]

FAULTS = {
    "nan": "holds NaN or infinite values in model.multi_modal_projector.linear_1.weight",
    "missing-tensor": "missing from the weights and would be random numbers: model.multi_modal",
    "left-adapter": "does not know tensors that lie in the weights and would leave them out",
    "wrong-shape": "weights and config.json are not of one model",
    "wider-config": "weights and config.json are not of one model",
    "shallower-config": "does not know tensors that lie in the weights and would leave them out",
    "word-more": "the tokenizer is not the one of these weights",
    "word-less": "the tokenizer is not the one of these weights",
}
"""What a case says of each fault that keeps a checkpoint from being loaded."""

INCOMPLETE = {
    "truncated": "it is damaged or was copied only in part: write or fetch it again",
    "missing-shard": "of the 2 weight files that it names model-00002-of-00002",
}
"""What is said of a folder that is not whole, before anything is run."""

MEASURED = {"zeroed-matrix", "shifted-words"}
"""The others, which give answers."""


def damaged(name: str, folder: Path) -> Path:
    """A copy of the best describer with that fault."""
    copy = Path(shutil.copytree(BEST, folder / name))
    DAMAGES[name][0](copy)
    return copy


def test_every_fault_is_tried() -> None:
    """A fault that is not gated could pass."""
    assert set(DAMAGES) == {*FAULTS, *INCOMPLETE, *MEASURED}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_loaded_is_an_error_in_words(
    name: str, bench: Bench, tmp_path: Path
) -> None:
    """The run fails, says what is wrong in which folder, and shows no traceback."""
    copy = damaged(name, tmp_path)
    code, case, output = bench.gate(copy)
    assert (code, case["verdict"]) == (1, "error")
    (reason,) = case["reasons"]
    assert FAULTS[name] in reason
    assert str(copy) in reason
    assert "\n" not in reason
    assert "Traceback" not in output


@pytest.mark.parametrize("name", INCOMPLETE)
def test_what_is_not_whole_is_refused_at_once(name: str, bench: Bench, tmp_path: Path) -> None:
    """A single line and pytest's exit code for wrong usage, before a model is loaded."""
    copy = damaged(name, tmp_path)
    code, case, output = bench.gate(copy)
    assert (code, case) == (pytest.ExitCode.USAGE_ERROR, {})
    assert f"ERROR: {copy}" in output
    assert INCOMPLETE[name] in output
    assert "Traceback" not in output


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_what_still_answers_is_regressed(name: str, bench: Bench, tmp_path: Path) -> None:
    """Words moved by one and a projector that lets nothing through cost nearly everything."""
    code, case, output = bench.gate(damaged(name, tmp_path))
    assert (code, case["verdict"]) == (1, "regressed"), output
    assert case["difference"] < -0.3
    assert ("zero throughout: model.multi_modal_projector" in output) is (name == "zeroed-matrix")
