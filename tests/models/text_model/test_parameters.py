"""A describer's parameters: what is in force is in the key, what is wrong is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Describer, Reply
from tests.models.binding import plain
from tests.models.text_model.conftest import Build, describe
from tests.tiny.common import WORDS, pictures

pytestmark = pytest.mark.models


def store(folder: Path, **settings: object) -> None:
    """Add settings to a checkpoint's generation_config.json."""
    file = folder / "generation_config.json"
    stored = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(stored | settings), encoding="utf-8")


@pytest.mark.parametrize("name", ["llava", "blip"])
@pytest.mark.parametrize(
    "settings",
    [
        {"return_dict_in_generate": True, "output_scores": True, "output_attentions": True},
        {"num_return_sequences": 2, "do_sample": True},
        {"num_return_sequences": 2, "num_beams": 2},
        {"token_healing": True},
        {"is_assistant": True},
        {"prompt_lookup_num_tokens": 3},
        {"assistant_early_exit": 1},
        {"max_time": 1e-9},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_comes_back_is_a_text_for_each_image(
    name: str, settings: dict[str, Any], copied: Build, describer: Callable[..., Describer]
) -> None:
    """Settings of a training's own calls: others of these would fail in every chain."""
    folder = copied(name)
    if "num_beams" in settings:
        store(folder, num_beams=settings["num_beams"])
    expected = describe(describer(folder), pictures())
    store(folder, **settings)
    assert describe(describer(folder), pictures()) == expected


@pytest.mark.parametrize("strings", ["be", ["be", "circle"]])
def test_strings_end_a_text(
    strings: str | list[str], tmp_path: Path, describer: Callable[..., Describer]
) -> None:
    """The text ends behind the string, and was not cut at its limit; others go on."""
    from tests.tiny.describers import build_llava

    # transformers reads a tokenizer's own way to join tokens from this text.
    folder = build_llava(tmp_path / "m", words=[*WORDS, "abcdef"])
    whole = describe(describer(folder), pictures())
    store(folder, stop_strings=strings)
    model = describer(folder)
    replies = model.describe(pictures(), "describe the image", [0, 1, 2])
    ended = [text.partition("be")[0] + "be" if "be" in text else text for text in whole]
    assert ended != whole
    assert plain(replies) == ended
    assert [isinstance(reply, Reply) for reply in replies] == ["be" not in text for text in ended]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"penalty_alpha": 0.6}, "asks for contrastive search"),
        ({"dola_layers": "high"}, "asks for dola generation"),
        ({"num_beams": 2, "num_beam_groups": 2}, "group beam search"),
    ],
)
def test_writing_by_code_of_the_hub_is_refused(
    settings: dict[str, Any], words: str, copied: Build, bound: Callable[..., BoundRole]
) -> None:
    """When the model is loaded, and not in every chain."""
    folder = copied("llava")
    store(folder, **settings)
    with pytest.raises(CheckpointError, match=words):
        bound(folder).load()


def test_settings_in_force_are_in_the_key(copied: Build, bound: Callable[..., BoundRole]) -> None:
    """The checkpoint's own settings count, the spec's override them, and all are in the identity;
    device and batch size are not.
    """
    folder = copied("llava")
    stored = {"max_new_tokens": 32, "repetition_penalty": 1.05, "do_sample": True, "top_k": 1}
    (folder / "generation_config.json").write_text(json.dumps(stored), encoding="utf-8")
    own = bound(folder)
    assert own.params["max_new_tokens"] == 32
    assert own.params["repetition_penalty"] == 1.05
    assert own.params["do_sample"] is False
    assert "top_k" not in own.params
    assert own.seeded is False
    changed = bound(folder, "max_new_tokens=9&do_sample=true&temperature=0.5&num_beams=2")
    assert changed.seeded is True
    wanted = {"max_new_tokens": 9, "temperature": 0.5, "top_k": 1, "top_p": 1.0, "num_beams": 2}
    assert dict(changed.params) == {**own.params, **wanted, "do_sample": True}
    assert changed.fingerprint == own.fingerprint
    other = bound(folder, "batch_size=2&device=cpu")
    assert other.identity == own.identity
    assert (other.resources.batch_size, other.provenance["device"]) == (2, "cpu")


def test_a_captioners_own_length_counts(copied: Build, bound: Callable[..., BoundRole]) -> None:
    """Captioners' published max_length includes the start token; chat models' is the context."""
    for name, expected in (("blip", 15), ("llava", 512)):
        folder = copied(name)
        (folder / "generation_config.json").write_text('{"max_length": 16}', encoding="utf-8")
        assert bound(folder).params["max_new_tokens"] == expected
