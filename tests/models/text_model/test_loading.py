"""Describer checkpoints with faults: each is refused in words, and none is measured."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cepbench.chains.batching import CallCounts
from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.protocols import RoleName, Writer
from pytest_cepbench.models.text_model.loading import conversation
from pytest_cepbench.models.text_model.text_generation import TextModel
from pytest_cepbench.models.torch_runtime import has
from tests.models.binding import bind_text
from tests.models.text_model.conftest import (
    DESCRIBERS,
    Build,
    bound,
    describer,
)
from tests.tiny.common import edit_json, edit_tensors, skip_before

pytestmark = pytest.mark.models


def reshape(folder: Path) -> None:
    """Write a config that does not belong to the weights."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    edit_json(folder / "config.json", text_config=config["text_config"] | {"intermediate_size": 96})


def exchange_tokenizer(folder: Path) -> None:
    """Token ids beyond the weights would crash a lookup."""
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    model["vocab"]["describe"] = len(model["vocab"]) + 500
    edit_json(folder / "tokenizer.json", model=model)


def bring_code(folder: Path) -> None:
    """What transformers says of it speaks of the hub."""
    edit_json(folder / "config.json", model_type="own", auto_map={"AutoConfig": "own.OwnConfig"})
    (folder / "own.py").write_text("raise SystemError", encoding="utf-8")


def drop_processor(folder: Path) -> None:
    """Trainers often save the model alone."""
    skip_before("an error that names the processor", "transformers", "5.0")
    for name in ("processor_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


def forget_patches(folder: Path) -> None:
    """As processors of before transformers 4.46."""
    edit_json(folder / "processor_config.json", patch_size=None)


SHAPES = r" is \(64, 32\), expected \(96, 32\)" if has("transformers", "5.0") else ""


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (reshape, rf"not of one model: .*gate_proj.weight{SHAPES}"),
        (exchange_tokenizer, r"the token 'describe' at .* not the one of these"),
        (bring_code, "add trust_remote_code=true to the model's spec"),
        (drop_processor, r"processor|tokenizer"),
        (forget_patches, r'config.json: no patch_size, .*LlavaProcessor.*{"patch_size": 8}'),
    ],
)
def test_a_damaged_checkpoint_is_explained(
    damage: Callable[[Path], None], words: str, copied: Build
) -> None:
    """The library would go on with random numbers, or end in an error that names no file."""
    folder = copied("llava")
    damage(folder)
    with pytest.raises(CheckpointError, match=words):
        bound(folder).load()


def test_a_tensor_that_is_not_used_is_refused(copied: Build) -> None:
    """An unmerged adapter is left out silently; a constant of old libraries is no adapter."""
    import torch

    folder = copied("llava")
    name = "language_model.model.layers.0.self_attn.q_proj.lora_A.weight"
    constant = {"language_model.model.masked_bias": torch.ones(2)}
    edit_tensors(folder, lambda own: own.update(constant))
    bound(folder).load()
    edit_tensors(folder, lambda own: own.update({name: torch.ones(2)}))
    with pytest.raises(CheckpointError, match=r"lora_A\.weight\. An adapter .* allow_unused=true"):
        bound(folder).load()
    allowed = bound(folder, "allow_unused=true")
    assert allowed.params == bound(folder).params
    allowed.load()


def test_a_chat_template_that_cannot_ask_is_told(copied: Build) -> None:
    """Several templates without a default are refused; one that drops the prompt, or the system
    prompt that there is, or takes a message's parts for a text, is warned of.
    """
    folder = copied("llava")
    template = folder / "chat_template.jinja"
    text = template.read_text(encoding="utf-8")
    users = text.replace("in messages", "in messages if message['role'] == 'user'")
    llama = "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content']|trim }}{% endif %}"
    for written, query, what in (
        (text.replace("{{ part['text'] }}", ""), "", "the text of a message"),
        (users, "system_prompt=be brief", "the system prompt"),
        (llama + users, "system_prompt=be brief", "the system prompt"),
    ):
        template.write_text(written, encoding="utf-8")
        told = pytest.warns(UserWarning, match=f"leaves out {what}, .* does not read what it is")
        with told, warnings.catch_warnings(action="error"), CallCounts().timed():  # `-W error`
            describer(folder, query)
    with warnings.catch_warnings(action="error"):  # a suite may give a writer none
        describer(folder)
        writer = bind_text(f"{folder}?max_new_tokens=1", "writer").load()
        assert isinstance(writer, Writer)
        writer.write([["what ?"]], "", [0])
    with pytest.warns(UserWarning, match="leaves out the system prompt"):
        writer.write([["what ?"]], "be brief", [0])
    template.write_text("{{ raise_exception('roles must alternate') }}", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"could not be loaded: .*roles must alternate"):
        describer(folder)
    template.unlink()
    named = [{"name": "tool_use", "template": text}]
    edit_json(folder / "tokenizer_config.json", chat_template=named)
    with pytest.raises(CheckpointError, match=r"\(tool_use\) none is called default"):
        describer(folder)


def test_a_chat_template_is_told_one_day(copied: Build) -> None:
    """Texts of today and of tomorrow are under one key, so their prompts are one."""
    folder = copied("llava")
    before = bound(folder).params
    template = folder / "chat_template.jinja"
    date = "{{ strftime_now( '%d %b %Y' ) }} {{ strftime_now(\"%Y-%m-%d\") }}"
    template.write_text(date + template.read_text("utf-8"), "utf-8")
    loaded = describer(folder)
    assert isinstance(loaded, TextModel)
    assert loaded.loaded.chat_text(conversation(["what ?"])).startswith(
        "26 Jul 2024 2024-07-26<bos>"
    )
    for role in ("describer", "writer", "judge", "vqa"):
        assert bind_text(str(folder), role).params["today"] == "2024-07-26"
    assert "today" not in before


def test_the_day_is_in_keys_where_a_template_tells_it(copied: Build) -> None:
    """Llama 3.2 tells it where there is no image, Mistral in a system prompt of its own: elsewhere
    all days have one prompt, and results that are stored stay those of their keys.
    """
    folder = copied("llava")
    asks = "{%- if strftime_now is defined %}{% set day = strftime_now('%d %b %Y') %}{% endif %}"
    llama = """{% for part in messages[-1]['content'] if part['type'] == 'image' -%}
        {% if messages[0]['role'] == 'system' %}{{ raise_exception('not both') }}{% endif %}
        {%- else %}{{ day }}{% endfor %}"""
    mistral = "{% if messages[0]['role'] != 'system' %}{{ bos_token + 'It is ' + day }}{% endif %}"
    own, given = "", "system_prompt=be brief"
    cases: tuple[tuple[str, RoleName, str, bool], ...] = (
        (llama, "describer", own, False),
        (llama, "describer", given, False),
        (llama, "writer", own, True),
        (llama, "judge", own, True),
        (mistral, "describer", own, True),
        (mistral, "describer", given, False),
        (mistral, "writer", own, True),
        (mistral, "writer", given, False),
        (mistral, "judge", own, False),
        (mistral, "vqa", own, True),
        ("{% generation %}{% endgeneration %}", "describer", own, True),
    )
    for template, role, query, told in cases:
        (folder / "chat_template.jinja").write_text(asks + template, "utf-8")
        params = bind_text(f"{folder}?{query}", role).params
        assert ("today" in params) == told, (template, role, query)


WITHOUT_TORCHVISION = """
import sys
sys.modules["torchvision"] = None
from pytest_cepbench.errors import MissingDependencyError
from pytest_cepbench.models.binding import BindContext
from pytest_cepbench.models.binding import bind
from pytest_cepbench.models.spec import parse_spec
for folder in sys.argv[1:]:
    bound = bind(parse_spec(folder), "describer", BindContext(lambda path: path.name, threads=1))
    try:
        bound.load()
        print("loaded")
    except MissingDependencyError as error:
        print(error)
"""


@pytest.mark.slow
def test_an_absent_torchvision_is_explained() -> None:
    """Most processors work without torchvision; where one does not, the message must name it."""
    folders = [str(DESCRIBERS[name]) for name in ("llava", "qwen2-vl")]
    command = [sys.executable, "-c", WITHOUT_TORCHVISION, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    without, needing = done.stdout.splitlines()
    assert without == "loaded"
    assert "torchvision, which several need" in needing
