"""Trained parts that change nothing are found, in every form, and gating them is an error."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="adapters need the [models] extra")
pytest.importorskip("transformers", reason="adapters need the [models] extra")
peft = pytest.importorskip("peft", reason="adapters need the [models] extra")

from pytest_cepbench import gate_checkpoint  # noqa: E402
from tests.models.binding import bind_text  # noqa: E402
from tests.tiny.adapters import build_adapter, edit_tensors  # noqa: E402

pytestmark = pytest.mark.models

REPOSITORY = Path(__file__).parents[3]
DESCRIBER = REPOSITORY / "reference" / "checkpoints" / "describer-step2000"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny LLaVA."""
    from tests.tiny.describers import build_llava

    return build_llava(tmp_path_factory.mktemp("bases") / "llava")


def _lora(**options: Any) -> Callable[..., Any]:
    return lambda **targets: peft.LoraConfig(r=4, **options, **targets)


CONFIGS: dict[str, Callable[..., Any]] = {
    "lora": _lora(),
    "lora with biases": _lora(lora_bias=True, bias="all"),
    "lora of a table": lambda **_: peft.LoraConfig(r=4, target_modules=["embed_tokens"]),
    "dora": _lora(use_dora=True),
    "head": _lora(modules_to_save=["lm_head"]),
    "tokens": _lora(trainable_token_indices={"embed_tokens": [5, 6]}),
    "tokens of one table": _lora(trainable_token_indices=[5, 6]),
    "ia3": lambda **targets: peft.IA3Config(feedforward_modules=[], **targets),
    "loha": lambda **targets: peft.LoHaConfig(r=4, **targets),
    "lokr": lambda **targets: peft.LoKrConfig(r=4, **targets),
    "vera": lambda **targets: peft.VeraConfig(r=4, **targets),
    "oft": lambda **targets: peft.OFTConfig(r=0, oft_block_size=4, **targets),
    "boft": lambda **targets: peft.BOFTConfig(boft_block_size=4, **targets),
    "norms": lambda **_: peft.LNTuningConfig(target_modules=["norm"]),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_an_adapter_is_idle_until_it_is_trained(name: str, base: Path, tmp_path: Path) -> None:
    """As PEFT begins it, it changes nothing; what differs from that is another model."""
    config = CONFIGS[name](target_modules=["q_proj", "v_proj"])
    begun = build_adapter(tmp_path / "begun", base, config, spread=0)
    idle = bind_text(str(begun), "describer").idle()
    assert idle.whole
    assert idle.remarks == (f"{begun} changes nothing: it is as a training begins",)

    trained = build_adapter(tmp_path / "trained", base, config)
    assert bind_text(str(trained), "describer").idle().remarks == ()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_precision_makes_no_training(dtype: str, base: Path, tmp_path: Path) -> None:
    """A head that was saved in half precision is its base's; a step below its own is none."""
    config = peft.LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"])
    adapter = build_adapter(tmp_path / "adapter", base, config, spread=0)
    weights = adapter / "adapter_model.safetensors"
    head = "base_model.model.lm_head.weight"
    to_type = getattr(torch, dtype)
    edit_tensors(weights, lambda t: t.update({head: t[head].to(to_type)}))
    assert bind_text(str(adapter), "describer").idle().whole
    edit_tensors(weights, lambda t: t[head].mul_(1 + 2 * torch.finfo(to_type).eps))
    assert not bind_text(str(adapter), "describer").idle().whole


def test_one_idle_adapter_of_two_is_a_remark(base: Path, tmp_path: Path) -> None:
    """The other one is gated."""
    config = peft.LoraConfig(r=4, target_modules=["q_proj"])
    begun = build_adapter(tmp_path / "begun", base, config, spread=0)
    trained = build_adapter(tmp_path / "trained", base, config)
    idle = bind_text(f"{base}?adapters={begun},{trained}", "describer").idle()
    assert (len(idle.remarks), idle.whole) == (1, False)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Stable Diffusion."""
    pytest.importorskip("diffusers", reason="pipelines need the [models] extra")
    from tests.tiny.generators import build_stable_diffusion

    return build_stable_diffusion(tmp_path_factory.mktemp("bases") / "sd")


@pytest.mark.parametrize("form", ["diffusers", "kohya", "peft", "dora"])
def test_lora_of_a_pipeline_is_idle_until_it_is_trained(
    form: str, pipeline: Path, tmp_path: Path
) -> None:
    """By the names that each script gives to the second matrix of a layer."""
    from tests.tiny import loras

    lora = loras.build_lora(pipeline, tmp_path / "lora", dora=form == "dora")
    file = lora / loras.LORA_FILE
    if form in ("kohya", "peft"):
        file = getattr(loras, f"to_{form}")(lora, tmp_path / "file.safetensors")
    spec = f"{pipeline}?lora={file}"
    assert not bind_text(spec, "generator").idle().whole
    seconds = ("lora_B.weight", "lora.up.weight", "lora_up.weight")
    edit_tensors(file, lambda t: [t[name].zero_() for name in t if name.endswith(seconds)])
    assert bind_text(spec, "generator").idle().remarks == (
        f"{file} changes nothing: it is as a training begins",
    )


def test_a_component_is_compared_with_the_one_that_it_replaces(
    pipeline: Path, tmp_path: Path
) -> None:
    """Equal ones are named where nothing else was trained; so is a file, or another precision."""
    run = tmp_path / "run"
    for name in ("unet", "vae"):
        shutil.copytree(pipeline / name, run / name)
    idle = bind_text(f"{run}?base={pipeline}", "generator").idle()
    assert idle.whole
    assert idle.remarks[0] == f"{run / 'unet'} is equal to the unet that it replaces"
    weights = run / "unet" / "diffusion_pytorch_model.safetensors"
    assert bind_text(f"{pipeline}?unet={weights}", "generator").idle().whole
    edit_tensors(weights, lambda t: t.update({name: t[name].half() for name in t}))
    assert bind_text(f"{pipeline}?unet={run / 'unet'}", "generator").idle().whole
    edit_tensors(weights, lambda t: t[max(t)].add_(1))
    idle = bind_text(f"{run}?base={pipeline}", "generator").idle()
    assert (idle.remarks, idle.whole) == ((), False)


def test_gating_it_is_an_error_and_accepting_it_a_warning(tmp_path: Path) -> None:
    """Also where everything is stored: then no model is loaded that could be looked at."""
    shutil.copytree(REPOSITORY / "suites" / "instrument", tmp_path / "suite")
    options: Any = {"root": tmp_path, "samples": 3, "role": "describer"}
    suite = tmp_path / "suite" / "suite.toml"
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
    begun = build_adapter(tmp_path / "begun", DESCRIBER, config, spread=0)
    trained = build_adapter(tmp_path / "trained", DESCRIBER, config)
    remark = f"{begun} changes nothing: it is as a training begins"

    accepted = gate_checkpoint(suite, model=str(begun), snapshot_update=True, **options)
    assert accepted.passed, str(accepted)
    assert all(f"{remark}. Has its training begun?" in case.warnings for case in accepted.cases)

    gated = gate_checkpoint(suite, model=str(begun), **options)
    assert {case.verdict for case in gated.cases} == {"error"}
    assert f"nothing is gated: {remark}" in gated.cases[0].reasons[0]
    assert not gated.passed

    other = gate_checkpoint(suite, model=str(trained), **options)
    assert "error" not in {case.verdict for case in other.cases}
    assert not any(remark in line for case in other.cases for line in case.warnings)
