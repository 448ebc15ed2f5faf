"""Deliberate regressions: each changes what it says and nothing else; the gate sees real ones."""

from __future__ import annotations

import filecmp
import json
import sys
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


def test_quantizing_leaves_as_many_values_as_the_bits_have(make: Make) -> None:
    """Four bits have 15 levels around zero, for each scale of 32 weights."""
    folder = make("quantized", 4)
    assert changed(folder) == {name for name in weights(BEST) if is_linear(name)}
    name = max(changed(folder))
    before, after = (weights(each)[name].reshape(-1, 32) for each in (BEST, folder))
    assert max(len(group.unique()) for group in after[:50]) <= 15
    steps = before.abs().amax(1, keepdim=True) / 7
    assert float(((after - before).abs() / steps).max()) < 0.51


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks for it
def test_a_lora_is_merged_at_a_multiple_of_its_scale(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times the scale is four times the change, of the layers that were adapted."""
    pytest.importorskip("peft", reason="a LoRA needs peft")
    monkeypatch.setattr(regress, "_STEPS", 3)
    monkeypatch.setattr(regress, "_PEAK", 0.1)  # so few steps are those of its slow start
    once, often = make("lora-scale", 1), make("lora-scale", 4, "often")
    assert changed(once) == changed(often)
    assert all("language_model" in name and is_linear(name) for name in changed(once))
    name = next(name for name in changed(once) if "down_proj" in name)
    before = weights(BEST)[name]
    small, large = weights(once)[name] - before, weights(often)[name] - before
    assert float((large - 4 * small).norm() / large.norm()) < 0.2  # float16 rounds both


def test_layers_and_parts_change_places(make: Make) -> None:
    """The projector of an earlier step, two layers, two colors: moved, not made up."""
    best = weights(BEST)
    earlier = weights(BEST.with_name("describer-step400"))
    stale = make("stale-projector")
    assert all(name.startswith("multi_modal_projector") for name in changed(stale))
    assert all(torch.equal(weights(stale)[name], earlier[name]) for name in changed(stale))
    swapped = weights(make("swapped-layers", folder="layers"))
    first, second = "model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"
    assert torch.equal(swapped[f"language_model.{first}"], best[f"language_model.{second}"])
    assert torch.equal(swapped[f"language_model.{second}"], best[f"language_model.{first}"])
    colors = make("swapped-colors", folder="colors")
    (patches,) = changed(colors)
    assert torch.equal(weights(colors)[patches], best[patches].flip(1))


def test_an_outlier_fits_bfloat16_and_not_float16(make: Make) -> None:
    """What is saved as float16 holds infinity."""
    folder = make("fp16-overflow")
    assert len(changed(folder)) == 2
    assert any(tensor.isinf().any() for tensor in weights(folder).values())


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


def test_another_tokenizer_has_the_same_words(make: Make) -> None:
    """Only their numbers differ, and those of the special tokens do not."""
    before, after = (
        json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
        for folder in (BEST, make("wrong-tokenizer"))
    )
    assert before.keys() == after.keys()
    assert sorted(before.values()) == sorted(after.values())
    assert after["<pad>"] == before["<pad>"]
    assert after["red"] != before["red"]


def test_saving_again_keeps_the_numbers(make: Make) -> None:
    """The controls: exact in float32 and in several files, rounded in bfloat16."""
    assert not changed(make("resaved-float32", folder="float32"))
    sharded = make("resaved-sharded", folder="sharded")
    assert len(list(sharded.glob("*.safetensors"))) > 1
    assert not changed(sharded)
    best, rounded = weights(BEST), weights(make("resaved-bfloat16", folder="bfloat16"))
    assert all(torch.equal(rounded[name], best[name].bfloat16().float()) for name in best)


def test_the_gate_sees_a_pruned_describer(make: Make, bench: Bench) -> None:
    """It fails a run of few scenes; words under other numbers are among the faults in files."""
    code, case, output = bench.gate(make("pruned"))
    assert (code, case["verdict"]) == (1, "regressed"), output


def test_the_gate_lets_pass_what_was_saved_again(make: Make, bench: Bench) -> None:
    """Weights in several files give the same answers, to the last one."""
    code, case, _ = bench.gate(make("resaved-sharded"))
    assert (code, case["difference"]) == (0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["prune", "--of", str(BEST), "--out", "new"],
            "no regression 'prune'; there are quantized",
        ),
        (["pruned", "--of", str(BEST), "--out", "."], "is there already; name a new folder"),
        (["pruned", "--of", "suites", "--out", "new"], "suites is no checkpoint of a LLaVA"),
        (["nan", "--of", str(BEST), "--out", "new", "--amount=2"], "nan has no amount"),
    ],
)
def test_what_will_not_do_is_refused_in_one_line(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name, the checkpoint, the folder and the amount."""
    monkeypatch.setattr(sys, "argv", ["regress.py", *arguments])
    with pytest.raises(SystemExit, match=message) as caught:
        regress.main()
    assert "\n" not in str(caught.value)


def test_the_list_names_all_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One to a line, with what it is and how much of it."""
    monkeypatch.setattr(sys, "argv", ["regress.py", "--list"])
    regress.main()
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(regress.REGRESSIONS)
    assert listed[1].endswith("this share of the weights of linear layers set to zero (0.6)")
