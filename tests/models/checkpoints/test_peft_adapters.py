"""PEFT adapters on their base: the answers are those of the model that PEFT merges and saves.

Trained parts that change nothing are found, and gating them is an error.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="adapters need the [models] extra")

from pytest_cepbench import gate_checkpoint  # noqa: E402
from pytest_cepbench.errors import CheckpointError  # noqa: E402
from pytest_cepbench.models.protocols import Encoder  # noqa: E402
from tests.models.binding import bind_text, describe  # noqa: E402
from tests.optional import needs  # noqa: E402
from tests.tiny.adapters import build_adapter, build_lora, merge  # noqa: E402
from tests.tiny.common import edit_json, edit_tensors, pictures  # noqa: E402

needs("peft", reason="adapters need the [models] extra")

pytestmark = pytest.mark.models

SETTINGS = "max_new_tokens=8"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny LLaVA."""
    from tests.tiny.describers import build_llava

    return build_llava(tmp_path_factory.mktemp("bases") / "llava")


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory, base: Path) -> Path:
    """A LoRA of it; not to be changed."""
    return build_lora(tmp_path_factory.mktemp("adapters") / "lora", base)


@pytest.fixture
def copied(tmp_path: Path, lora: Path) -> Path:
    """A copy of the LoRA that a test may damage."""
    return Path(shutil.copytree(lora, tmp_path / "copied"))


OPTIONS: dict[str, dict[str, Any]] = {
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "head": {"modules_to_save": ["lm_head"]},
    "tokens": {"trainable_token_indices": {"embed_tokens": [5, 6]}},
}


def config_of(name: str, *targets: str, **options: Any) -> Any:
    """A configuration of PEFT: LoRA with these options, or another method."""
    import peft  # takes seconds, and only these tests need it

    options |= {"target_modules": list(targets), **OPTIONS.get(name, {})}
    if name == "ia3":
        return peft.IA3Config(feedforward_modules=[], **options)
    return (peft.LoHaConfig if name == "loha" else peft.LoraConfig)(r=4, **options)


@pytest.mark.parametrize(
    "name",
    [
        "lora",
        "head",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("rslora", "dora", "tokens", "ia3", "loha")
        ),
    ],
)
def test_an_adapter_is_the_merged_model(name: str, base: Path, tmp_path: Path) -> None:
    """Merged in memory or at work beside the weights, it describes as the merged folder does."""
    config = config_of(name, "q_proj", "v_proj")
    adapter = build_adapter(tmp_path / "adapter", base, config)

    expected = describe(merge(tmp_path / "merged", adapter))

    assert expected != describe(base)
    assert describe(adapter) == expected
    assert describe(adapter, "merge=false") == expected


def test_new_tokens_bring_their_rows(base: Path, tmp_path: Path) -> None:
    """An adapter that was trained with more tokens has all of both tables in its file."""
    rows = 40
    tables = ["embed_tokens", "lm_head"]
    config = config_of("lora", "q_proj", modules_to_save=tables)
    adapter = build_adapter(
        tmp_path / "adapter",
        base,
        config,
        change=lambda model: model.resize_token_embeddings(rows, mean_resizing=False),
    )

    loaded: Any = bind_text(f"{adapter}?{SETTINGS}", "describer").load()

    model = loaded.loaded.model
    assert model.get_input_embeddings().weight.shape[0] == rows
    assert model.get_output_embeddings().weight.shape[0] == rows
    edit_tensors(
        adapter / "adapter_model.safetensors", lambda t: t.pop("base_model.model.lm_head.weight")
    )
    with pytest.raises(CheckpointError, match="no output embeddings, which would be random"):
        describe(adapter)


def test_the_fingerprint_covers_base_and_adapter(
    base: Path, lora: Path, copied: Path, tmp_path: Path
) -> None:
    """Another base, another adapter, another way to apply it: each is another model."""

    def fingerprint(folder: Path, query: str = "") -> str:
        return bind_text(f"{folder}?{query}", "describer").fingerprint

    own = fingerprint(lora)
    assert own == fingerprint(copied) == fingerprint(lora, f"base={base}")
    assert own == fingerprint(base, f"adapters={lora}") == fingerprint(lora, "merge=true")
    other = Path(shutil.copytree(base, tmp_path / "other"))
    edit_tensors(other, lambda t: next(iter(t.values())).add_(1))
    edit_tensors(copied / "adapter_model.safetensors", lambda t: t[min(t)].mul_(2))
    seen = [
        own,
        fingerprint(base),
        fingerprint(copied),
        fingerprint(lora, "merge=false"),
        fingerprint(lora, f"base={other}"),
        fingerprint(base, f"adapters={lora}&weights=0.5"),
        fingerprint(base, f"adapters={lora},{copied}"),
        fingerprint(base, f"adapters={copied},{lora}"),
    ]
    assert len(set(seen)) == len(seen)


def test_pickled_adapters_load_when_allowed(lora: Path, copied: Path) -> None:
    """allow_pickle=true must load what it allows, and describe as the safetensors did."""
    from safetensors.torch import load_file

    weights = copied / "adapter_model.safetensors"
    torch.save(load_file(weights), copied / "adapter_model.bin")
    weights.unlink()

    with pytest.raises(CheckpointError, match="allow_pickle=true"):
        describe(copied)
    assert describe(copied, "allow_pickle=true") == describe(lora)


FIRST = "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda t: t.pop(FIRST), f"lacks tensors .*{FIRST}"),
        (
            lambda t: t.update({FIRST: torch.ones(8, 32)}),
            rf"size mismatch for {FIRST}: .*\[8, 32\].*\[4, 32\]",
        ),
        (
            lambda t: t.update({FIRST.replace("q_proj", "gate_proj"): t[FIRST].clone()}),
            "no place for .*layers.0.self_attn.gate_proj.lora_A.weight",
        ),
        (
            lambda t: t.update({FIRST.replace("layers.0", "layers.7"): t[FIRST].clone()}),
            "no place for .*layers.7.self_attn.q_proj.lora_A.weight",
        ),
        (lambda t: t[FIRST].fill_(float("nan")), "NaN or infinite values in .*q_proj"),
    ],
    ids=["missing", "other rank", "other module", "other depth", "nan"],
)
def test_tensors_that_do_not_fit_are_named(
    copied: Path, damage: Callable[[dict[str, Any]], object], words: str
) -> None:
    """PEFT would leave out or make up each of these with a line in its log."""
    edit_tensors(copied / "adapter_model.safetensors", damage)
    with pytest.raises(CheckpointError, match=words):
        describe(copied)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"target_modules": ["query"]}, "does not fit .*LlavaForConditionalGeneration.*query"),
        ({"r": 8}, r"size mismatch .*\[8, 4\].*\[32, 8\]|size mismatch .*lora_"),
        ({"modules_to_save": ["lm_head"]}, "does not fit .*base_model.model.lm_head.weight"),
        ({"use_tomorrows_method": True}, "does not know use_tomorrows_method"),
        ({"peft_type": "TOMORROW"}, "knows no adapters of type 'TOMORROW'"),
        ({"peft_type": "prefix_tuning"}, "puts prompts before a text"),
        ({"megatron_config": {"a": 1}}, "has a module imported by its name"),
        ({"init_lora_weights": "pissa_niter_16"}, "another one each time"),
    ],
)
def test_a_configuration_of_another_adapter_is_explained(
    copied: Path, values: dict[str, Any], words: str
) -> None:
    """The configuration says what is applied; one that is not the file's must not half apply."""
    edit_json(copied / "adapter_config.json", **values)
    with pytest.raises(CheckpointError, match=words):
        describe(copied)


def test_adapters_add_up_as_peft_concatenates_them(base: Path, lora: Path, tmp_path: Path) -> None:
    """Each times its factor, whatever their ranks."""
    second = build_lora(tmp_path / "second", base, seed=8, r=2, target_modules=["k_proj", "v_proj"])
    merged = merge(tmp_path / "m", lora, second, weights=[1.0, 0.5], combination_type="cat")

    query = f"adapters={lora},{second}&weights=1,0.5"

    expected = describe(merged)
    assert describe(base, query) == expected
    assert describe(base, f"{query}&merge=false") == expected
    assert describe(base, f"adapters={lora},{second}") != expected


@pytest.mark.slow
def test_what_does_not_add_up_is_refused(base: Path, lora: Path, tmp_path: Path) -> None:
    """Trained heads of two adapters cannot both be in place, and DoRA's norms do not add.

    Nor are those multiplied by the factor of one.
    """
    for name in ("dora", "head", "ia3"):
        config = config_of(name, "q_proj")
        other = build_adapter(tmp_path / name, base, config)
        for query in (f"{lora},{other}", f"{other}&weights=0.5"):
            with pytest.raises(CheckpointError, match="right for LoRA alone"):
                describe(base, f"adapters={query}")


def test_an_adapter_of_a_dual_encoder(tmp_path: Path) -> None:
    """Vectors of images and texts are those of the merged folder, to the last bit."""
    from tests.tiny.encoders import build_clip

    base = build_clip(tmp_path / "clip")
    config = config_of("lora", "q_proj", "v_proj")
    adapter = build_adapter(tmp_path / "adapter", base, config, auto_class="AutoModel")
    merged = merge(tmp_path / "merged", adapter, auto_class="AutoModel")

    def vectors(folder: Path) -> tuple[Any, Any]:
        model = bind_text(str(folder), "encoder").load()
        assert isinstance(model, Encoder)
        return model.encode_images(pictures()), model.encode_texts(["a red circle"])

    for own, expected, plain in zip(vectors(adapter), vectors(merged), vectors(base), strict=True):
        np.testing.assert_array_equal(own, expected)
        assert not np.array_equal(own, plain)


def test_a_tokenizer_beside_the_adapter_is_used(base: Path, copied: Path) -> None:
    """Trainers save the one that they trained with there, and its chat template counts, also where
    it lies there alone.
    """
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(base)
    processor.tokenizer.chat_template = processor.chat_template.replace("assistant", "system")
    before = bind_text(f"{copied}?{SETTINGS}", "describer")
    template = copied / "chat_template.jinja"

    def save_alone() -> None:
        template.write_text(processor.tokenizer.chat_template, encoding="utf-8")

    def save_whole() -> None:
        template.unlink()
        processor.tokenizer.save_pretrained(copied)

    for save in (save_alone, save_whole):
        save()
        bound = bind_text(f"{copied}?{SETTINGS}", "describer")
        assert bound.fingerprint != before.fingerprint
        assert any(f"tokenizer read from {copied}" in remark for remark in bound.remarks)
        loaded: Any = bound.load()
        assert "system : " in loaded.loaded.chat_template.split("add_generation_prompt")[1]


def test_an_unmerged_adapter_does_not_depend_on_its_file(copied: Path) -> None:
    """A trainer may write the next step where the last one was loaded from."""
    loaded: Any = bind_text(f"{copied}?{SETTINGS}&merge=false", "describer").load()
    before = list(loaded.describe(pictures(), "describe the image", [0, 1, 2]))
    weights = copied / "adapter_model.safetensors"
    with weights.open("r+b") as stream:
        stream.write(bytes(weights.stat().st_size))
    assert list(loaded.describe(pictures(), "describe the image", [0, 1, 2])) == before


# -- parts that change nothing --

REPOSITORY = Path(__file__).parents[3]
DESCRIBER = REPOSITORY / "reference" / "checkpoints" / "describer-step2000"


def test_an_adapter_is_idle_until_it_is_trained(base: Path, lora: Path, tmp_path: Path) -> None:
    """As PEFT begins it, it changes nothing; what holds anything else may change something."""
    config = config_of("lora", "q_proj", "v_proj")
    begun = build_adapter(tmp_path / "begun", base, config, spread=0)
    idle = bind_text(str(begun), "describer").idle()
    assert idle.whole
    assert idle.remarks == (f"{begun} changes nothing: all that it adds is zero",)

    assert bind_text(str(lora), "describer").idle().remarks == ()
    still = Path(shutil.copytree(lora, tmp_path / "still"))
    described = still / "adapter_config.json"
    pattern = {"lora_alpha": 0, "alpha_pattern": {"q_proj": 0}}
    for change, whole in (
        (pattern, True),
        ({"lora_alpha": 0, "alpha_pattern": {"q_proj": 1}}, False),
    ):
        edit_json(described, **change)
        assert bind_text(str(still), "describer").idle().whole == whole
    idle = bind_text(f"{base}?adapters={begun},{lora}", "describer").idle()
    assert (len(idle.remarks), idle.whole) == (1, False)
    head = config_of("head", "q_proj")
    other = build_adapter(tmp_path / "head", base, head, spread=0)
    assert bind_text(str(other), "describer").idle().remarks == ()


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Stable Diffusion."""
    pytest.importorskip("diffusers", reason="pipelines need the [models] extra")
    from tests.tiny.generators import build_stable_diffusion

    return build_stable_diffusion(tmp_path_factory.mktemp("bases") / "sd")


@pytest.mark.parametrize("form", ["diffusers", "kohya", "kohya's alpha", "peft"])
def test_lora_of_a_pipeline_is_idle_until_it_is_trained(
    form: str, pipeline: Path, tmp_path: Path
) -> None:
    """By the names that each script gives to the second matrix of a layer, or to its factor."""
    from tests.tiny import loras

    lora = loras.build_lora(pipeline, tmp_path / "lora")
    file = lora / loras.LORA_FILE
    if form != "diffusers":
        convert = loras.to_peft if form == "peft" else loras.to_kohya
        file = convert(lora, tmp_path / "file.safetensors")
    spec = f"{pipeline}?lora={file}"
    assert not bind_text(spec, "generator").idle().whole
    seconds = ("lora_B.weight", "lora.up.weight", "lora_up.weight")
    emptied = ".alpha" if "alpha" in form else seconds
    edit_tensors(file, lambda t: [t[name].zero_() for name in t if name.endswith(emptied)])
    assert bind_text(spec, "generator").idle().remarks == (
        f"{file} changes nothing: all that it adds is zero",
    )


def test_a_component_is_compared_with_the_one_that_it_replaces(
    pipeline: Path, tmp_path: Path
) -> None:
    """Equal ones are named where nothing else was trained."""
    run = tmp_path / "run"
    for name in ("unet", "vae"):
        shutil.copytree(pipeline / name, run / name)
    idle = bind_text(f"{run}?base={pipeline}", "generator").idle()
    assert idle.whole
    assert idle.remarks[0] == f"{run / 'unet'} is equal to the unet that it replaces"
    weights = run / "unet" / "diffusion_pytorch_model.safetensors"
    edit_tensors(weights, lambda t: t.update({name: own.half() for name, own in t.items()}))
    other_name = weights.rename(weights.with_name("model.safetensors"))
    idle = bind_text(f"{pipeline}?unet={other_name}", "generator").idle()
    assert idle.remarks == (f"{other_name} is equal to the unet that it replaces",)
    other_name.rename(weights)
    assert bind_text(f"{run}?base={pipeline}", "generator").idle().whole
    edit_tensors(weights, lambda t: t[max(t)].add_(1))
    idle = bind_text(f"{run}?base={pipeline}", "generator").idle()
    assert (idle.remarks, idle.whole) == ((), False)


def test_gating_it_is_an_error_and_accepting_it_a_warning(tmp_path: Path) -> None:
    """Also where everything is stored: then no model is loaded that could be looked at."""
    shutil.copytree(REPOSITORY / "suites" / "instrument", tmp_path / "suite")
    options: Any = {"root": tmp_path, "samples": 1, "role": "describer"}
    suite = tmp_path / "suite" / "suite.toml"
    chain, _, _ = suite.read_text("utf-8").partition("[metrics.gc]")
    chain = chain.replace("iterations = 3", "iterations = 1")
    suite.write_text(f'{chain}[metrics.sim]\nparts = "overall"\n', "utf-8")
    config = config_of("lora", "q_proj", "v_proj")
    begun = build_adapter(tmp_path / "begun", DESCRIBER, config, spread=0)
    trained = build_adapter(tmp_path / "trained", DESCRIBER, config)
    brief = "?max_new_tokens=8"
    remark = f"{begun} changes nothing: all that it adds is zero"

    accepted = gate_checkpoint(suite, model=f"{begun}{brief}", snapshot_update=True, **options)
    assert accepted.passed, str(accepted)
    assert all(f"{remark}. Has its training begun?" in case.warnings for case in accepted.cases)

    gated = gate_checkpoint(suite, model=f"{begun}{brief}", **options)
    assert {case.verdict for case in gated.cases} == {"error"}
    assert f"nothing is gated: {remark}" in gated.cases[0].reasons[0]
    assert not gated.passed

    other = gate_checkpoint(suite, model=f"{trained}{brief}", **options)
    assert "error" not in {case.verdict for case in other.cases}
    assert not any(remark in line for case in other.cases for line in case.warnings)
