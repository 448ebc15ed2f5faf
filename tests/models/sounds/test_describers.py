"""Describers of sounds: published architectures, built tiny, loaded as a user's checkpoint is."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure, Sound
from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.binding import detect
from pytest_cepbench.models.protocols import Describer
from pytest_cepbench.models.spec import parse_spec
from tests.models.binding import bind_text, load_once, plain
from tests.models.sounds.conftest import Load, sounds
from tests.models.text_model.conftest import Build
from tests.tiny import sounds as tiny
from tests.tones import tone

pytestmark = pytest.mark.models

NAMES = list(tiny.DESCRIBERS)


def describe(model: Describer, heard: list[Sound], prompt: str = "describe the image") -> list[Any]:
    """Describe, without what comes with a text."""
    return plain(model.describe(heard, prompt, list(range(len(heard)))))


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_mixed_lengths_and_rates_equals_one_by_one(spec: Load, name: str) -> None:
    """Padding and neighbours must not change a text, and the text must be about the sound."""
    model = load_once(spec(name), "describer")
    together = describe(model, sounds())
    assert together == [describe(model, [sound])[0] for sound in sounds()]
    assert len(set(together)) > 1
    assert all(isinstance(text, str) and "<" not in text for text in together)


@pytest.mark.parametrize("name", NAMES)
def test_a_text_is_what_the_library_makes_of_the_sound(
    spec: Load, tiny_model: Build, name: str
) -> None:
    """Run by hand, with the library's own classes alone."""
    import torch
    import transformers

    folder, sound = tiny_model(name), tone(440, 1.0)
    config = json.loads((folder / "config.json").read_text())
    model = getattr(transformers, config["architectures"][0]).from_pretrained(folder).eval()
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    wave = [np.asarray(sound.samples)]
    with torch.inference_mode():
        if name == "qwen2-audio":
            processor = transformers.AutoProcessor.from_pretrained(folder)
            text = (
                "<bos> user : <|audio_bos|><|AUDIO|><|audio_eos|> describe the image assistant : "
            )
            inputs = processor(text=[text], audio=wave, return_tensors="pt")
            tokens = model.generate(**inputs, do_sample=False, max_new_tokens=32)
            tokens = tokens[:, inputs["input_ids"].shape[1] :]
        else:
            inputs = extractor(wave, sampling_rate=tiny.RATE, return_tensors="pt")
            tokens = model.generate(**inputs)
    expected = tokenizer.decode(tokens[0], skip_special_tokens=True).strip()
    (text,) = describe(load_once(spec(name), "describer"), [sound])
    assert text[: len(expected)] == expected[: len(text)]
    assert min(len(text), len(expected)) > 3


def test_a_conversation_has_prompt_and_system_prompt(spec: Load) -> None:
    """Another prompt or system prompt must be able to give another text, to a chat model alone."""
    chat = load_once(spec("qwen2-audio"), "describer")
    briefed = load_once(spec("qwen2-audio", "system_prompt=be%20brief"), "describer")
    heard = sounds()[:2]
    by_default = describe(chat, heard)
    assert describe(chat, heard, "what is shown ?") != by_default
    assert describe(briefed, heard) != by_default
    whisper = load_once(spec("whisper"), "describer")
    assert describe(whisper, heard, "one") == describe(whisper, heard, "another")


@pytest.mark.parametrize("name", ["whisper", "qwen2-audio"])
def test_a_sound_beyond_the_window_is_refused_and_never_cut(spec: Load, name: str) -> None:
    """The library would read its first three seconds in silence; neighbours keep their texts."""
    model = load_once(spec(name), "describer")
    long, short = tone(440, tiny.SECONDS + 0.5), tone(440, tiny.SECONDS)
    refused, text = describe(model, [long, short])
    assert refused == Failure("bad-sound", "3.5 s long, and the model reads at most 3 s")
    assert text == describe(model, [short])[0]


def test_drawn_texts_follow_their_seeds(spec: Load) -> None:
    """The temperature reaches Whisper too, whose own way of drawing takes it apart."""
    options = ("do_sample=true", "temperature=2.0", "max_new_tokens=8")
    model = load_once(spec("whisper", *options), "describer")
    heard = [tone(440)] * 3
    first, again, other = plain(model.describe(heard, "", [1, 1, 2]))
    assert first == again != other
    assert plain(model.describe(heard[:1], "", [1])) == [first]


def test_what_a_model_reads_is_known_before_it_is_loaded(tiny_model: Build) -> None:
    """Suites ask it of the bound role."""
    for name in NAMES:
        bound = bind_text(str(tiny_model(name)), "describer")
        assert bound.reads == {"text", "sound"}, name
        assert not bound.seeded
    for role in ("writer", "judge", "vqa", "generator"):
        with pytest.raises(RoleError, match=f"not the {role}"):
            bind_text(str(tiny_model("whisper")), role)
    spec = f"serve:{tiny_model('whisper')}?engine=transformers"
    assert detect(parse_spec(spec)).roles == ()
    with pytest.raises(RoleError, match="is sent no sounds"):
        bind_text(spec, "describer")


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_without_feature_extractor_says_what_is_missing(copied: Build, name: str) -> None:
    """Trainers that were not given it leave it out."""
    folder = copied(name)
    for file in ("preprocessor_config.json", "processor_config.json"):
        (folder / file).unlink(missing_ok=True)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="feature extractor"):
            bind_text(str(folder), "describer")
        # Nor is an image processor read as one.
        other = '{"image_processor_type": "ViTImageProcessor"}'
        (folder / "preprocessor_config.json").write_text(other)
