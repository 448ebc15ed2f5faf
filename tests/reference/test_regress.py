"""Deliberate regressions: each changes what it says and nothing else; the gate sees real ones."""

from __future__ import annotations

import filecmp
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reference.gated import BEST, Bench

torch = pytest.importorskip("torch", reason="the reference models need the [models] extra")
pytest.importorskip("transformers", reason="the reference models need the [models] extra")

import regress  # noqa: E402
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
