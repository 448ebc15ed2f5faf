"""Deliberate regressions: each changes what it says and nothing else; the gate sees real ones.

Faults in the files of a checkpoint are a clear error or a regression, never a pass.
"""

from __future__ import annotations

import filecmp
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reference.conftest import BEST, Bench

torch = pytest.importorskip("torch", reason="the reference models need the [models] extra")
pytest.importorskip("diffusers", reason="the reference models need the [models] extra")

import regress  # noqa: E402
from damage import DAMAGES  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

pytestmark = [pytest.mark.models, pytest.mark.slow]

Make = Callable[..., Path]

LINEAR = ("proj.weight", "fc1.weight", "fc2.weight", "linear_1.weight", "linear_2.weight")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """The folder of a regression of the best describer."""

    def made(name: str, amount: float | None = None, folder: str = "made") -> Path:
        regress.regress(name, BEST, tmp_path / folder, amount)
        return tmp_path / folder

    return made


def weights(folder: Path) -> dict[str, Any]:
    """All tensors of a checkpoint in float32."""
    files = sorted(folder.glob("*.safetensors"))
    return {name: t.float() for file in files for name, t in load_file(file).items()}


def changed(folder: Path) -> set[str]:
    """The tensors in which a copy differs from the best describer."""
    ours, theirs = weights(folder), weights(BEST)
    assert ours.keys() == theirs.keys()
    return {name for name in ours if not torch.equal(ours[name], theirs[name])}


def is_linear(name: str) -> bool:
    """Whether a tensor is the matrix of a linear layer."""
    return name.endswith(LINEAR)


def test_the_same_command_makes_the_same_bytes(make: Make) -> None:
    """What is measured of a regression must be found again."""
    first, second = make("pruned"), make("pruned", folder="again")
    names = [path.name for path in first.iterdir()]
    assert filecmp.cmpfiles(first, second, names, shallow=False)[1:] == ([], [])


def test_pruning_sets_the_share_of_linear_layers_to_zero(make: Make) -> None:
    """Over all linear layers together, and nothing outside of them."""
    folder = make("pruned", 0.25)
    assert all(map(is_linear, changed(folder)))
    values = torch.cat([t.flatten() for name, t in weights(folder).items() if is_linear(name)])
    assert float((values == 0).float().mean()) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("wrong-tokenizer", "tokenizer.json"),
        ("wrong-mean", "preprocessor_config.json"),
        ("cropped", "preprocessor_config.json"),
        ("cut-short", "generation_config.json"),
        ("repetition-penalty", "generation_config.json"),
        ("no-image-place", "chat_template.jinja"),
    ],
)
def test_a_setting_changes_in_one_file(name: str, file: str, make: Make) -> None:
    """The weights and everything else stay as they were."""
    folder = make(name)
    names = [path.name for path in BEST.iterdir()]
    assert filecmp.cmpfiles(BEST, folder, names, shallow=False)[1:] == ([file], [])


def test_the_gate_sees_a_pruned_describer(make: Make, bench: Bench) -> None:
    """It fails a run of few scenes; words under other numbers are among the faults in files."""
    code, case, output = bench.gate(make("pruned"))
    assert (code, case["verdict"]) == (1, "regressed"), output


def test_the_gate_lets_pass_what_was_saved_again(make: Make, bench: Bench) -> None:
    """Weights in several files give the same answers, to the last one."""
    code, case, _ = bench.gate(make("resaved-sharded"))
    assert (code, case["difference"]) == (0, 0.0)


# -- faults in files --

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
    "truncated": "/model.safetensors: .* it is damaged or was copied only in part: write or fetch",
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
    assert re.search(f"ERROR: {copy}.*{INCOMPLETE[name]}", output)
    assert "Traceback" not in output


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_what_still_answers_is_regressed(name: str, bench: Bench, tmp_path: Path) -> None:
    """Words moved by one and a projector that lets nothing through cost nearly everything."""
    code, case, output = bench.gate(damaged(name, tmp_path))
    assert (code, case["verdict"]) == (1, "regressed"), output
    assert case["difference"] < -0.3
    assert ("zero throughout: model.multi_modal_projector" in output) is (name == "zeroed-matrix")
