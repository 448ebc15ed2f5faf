"""Models of sounds: published architectures, built tiny, loaded as a user's checkpoint is.

Describers, then encoders, then generators.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure, Sound
from pytest_cepbench.errors import CheckpointError, RoleError, SpecError
from pytest_cepbench.models.binding import detect
from pytest_cepbench.models.protocols import Describer, SoundEncoder
from pytest_cepbench.models.spec import parse_spec
from tests.artifacts.files import tone
from tests.models.binding import bind_text, load_once, plain
from tests.models.text_model.conftest import Build
from tests.tiny import sounds as tiny
from tests.tiny.common import Built, edit_json, edit_tensors
from tests.tiny.encoders import build_dinov2

pytestmark = pytest.mark.models

BUILDERS: dict[str, Callable[..., Path]] = {
    **tiny.DESCRIBERS,
    **tiny.ENCODERS,
    "hubert": lambda path: tiny.build_wav2vec2(path, kind="Hubert"),
    "vits": tiny.build_vits,
    "musicgen": tiny.build_musicgen,
    "bark": tiny.build_bark,
}

MODELS = Built(BUILDERS)


def spec(name: str, *options: str) -> str:
    """What a user would type for a tiny checkpoint."""
    if name == "qwen2-audio":  # which seldom ends a text of its own
        options = ("max_new_tokens=16", *options)
    return f"{MODELS[name]}?{'&'.join(options)}"


@pytest.fixture
def copied(tmp_path: Path) -> Build:
    """A copy of a tiny checkpoint that a test may change."""
    return lambda name: Path(shutil.copytree(MODELS[name], tmp_path / name))


def sounds() -> list[Sound]:
    """Sounds of several lengths and rates, all of other tones."""
    return [tone(220), tone(880, 0.8, 22_050), tone(440, 0.5, 8_000), tone(1760, 1.2)]


DESCRIBERS = list(tiny.DESCRIBERS)


def describe(model: Describer, heard: list[Sound], prompt: str = "describe the image") -> list[Any]:
    """Describe, without what comes with a text."""
    return plain(model.describe(heard, prompt, list(range(len(heard)))))


@pytest.mark.parametrize("name", DESCRIBERS)
def test_a_text_is_what_the_library_makes_of_the_sound(name: str) -> None:
    """Run by hand, with the library's own classes alone. Padding and neighbours must not change it,
    and it must be about the sound. One beyond the window is refused: the library would read its
    first three seconds in silence.
    """
    model = load_once(spec(name), "describer")
    heard = [*sounds()[:3], tone(1760, tiny.SECONDS)]
    refused, *together = describe(model, [tone(440, tiny.SECONDS + 0.5), *heard])
    assert refused == Failure("bad-sound", "3.5 s long, and the model reads at most 3 s")
    assert together == [describe(model, [sound])[0] for sound in heard]
    assert len(set(together)) > 1
    assert all(isinstance(text, str) and "<" not in text for text in together)

    import torch
    import transformers

    folder, sound = MODELS[name], tone(440, 1.0)
    config = json.loads((folder / "config.json").read_text())
    network = getattr(transformers, config["architectures"][0]).from_pretrained(folder).eval()
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
            tokens = network.generate(**inputs, do_sample=False, max_new_tokens=16)
            tokens = tokens[:, inputs["input_ids"].shape[1] :]
        else:
            inputs = extractor(wave, sampling_rate=tiny.RATE, return_tensors="pt")
            tokens = network.generate(**inputs)
    expected = tokenizer.decode(tokens[0], skip_special_tokens=True).strip()
    (text,) = describe(model, [sound])
    assert text[: len(expected)] == expected[: len(text)]
    assert min(len(text), len(expected)) > 3


def test_a_conversation_has_prompt_and_system_prompt() -> None:
    """Another prompt or system prompt must be able to give another text, to a chat model alone."""
    chat = load_once(spec("qwen2-audio"), "describer")
    briefed = load_once(spec("qwen2-audio", "system_prompt=be%20brief"), "describer")
    heard = sounds()[:2]
    by_default = describe(chat, heard)
    assert describe(chat, heard, "what is shown ?") != by_default
    assert describe(briefed, heard) != by_default
    whisper = load_once(spec("whisper"), "describer")
    assert describe(whisper, heard, "one") == describe(whisper, heard, "another")


def test_drawn_texts_follow_their_seeds() -> None:
    """The temperature reaches Whisper too, whose own way of drawing takes it apart."""
    options = ("do_sample=true", "temperature=2.0", "max_new_tokens=8")
    model = load_once(spec("whisper", *options), "describer")
    heard = [tone(440)] * 3
    first, again, other = plain(model.describe(heard, "", [1, 1, 2]))
    assert first == again != other
    assert plain(model.describe(heard[:1], "", [1])) == [first]


def test_what_a_model_reads_and_makes_is_known_before_it_is_loaded(tmp_path: Path) -> None:
    """Suites ask it of the bound role; a vision model says it in words, too. A parameter without
    use is refused, not passed over.
    """
    for name in DESCRIBERS:
        bound = bind_text(str(MODELS[name]), "describer")
        assert bound.reads == {"text", "sound"}, name
        assert not bound.seeded
    for name in ENCODERS:
        assert bind_text(spec(name), "encoder").reads == {"text", "sound"}, name
    vision = bind_text(str(build_dinov2(tmp_path / "dinov2")), "encoder")
    assert "sound" not in vision.reads
    model: Any = vision.load()
    with pytest.raises(RoleError, match="hears no sounds"):
        model.encode_sounds(sounds())
    wrong = "has no use for|guidance_scale must be a number, finite"
    for name, *useless in (
        ("vits", "max_new_tokens=3"),
        ("musicgen", "speaker_id=1", "guidance_scale=nan"),
        ("bark", "guidance_scale=3"),
    ):
        bound = bind_text(spec(name), "generator")
        assert (bound.makes, bound.seeded, bound.params) == ("sound", True, {"dtype": "float32"})
        with pytest.raises(RoleError, match="not the describer"):
            bind_text(spec(name), "describer")
        for query in useless:
            with pytest.raises(SpecError, match=wrong):
                bind_text(spec(name, query), "generator")
    for role in ("writer", "judge", "vqa", "generator"):
        with pytest.raises(RoleError, match=f"not the {role}"):
            bind_text(str(MODELS["whisper"]), role)
    served = f"serve:{MODELS['whisper']}?engine=transformers"
    assert detect(parse_spec(served)).roles == ()
    with pytest.raises(RoleError, match="is sent no sounds"):
        bind_text(served, "describer")


@pytest.mark.parametrize("name", DESCRIBERS)
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


ENCODERS = [*tiny.ENCODERS, "hubert"]

WINDOWS = {"clap": 2.0, "ast": 1.295}
"""Seconds that an encoder reads at once, of those that have such a limit."""


@pytest.mark.parametrize("name", ENCODERS)
def test_a_vector_is_what_the_library_makes_of_the_sound(name: str) -> None:
    """Run by hand: mean, pooler, and the features in the joint space; whatever the batch. One that
    is too short has no direction; its neighbours keep theirs. Of one beyond the window the library
    reads a beginning, or a random part: what is loud at the end would be lost.
    """
    encoder = load_once(spec(name), "encoder")
    assert isinstance(encoder, SoundEncoder)
    together = encoder.encode_sounds(sounds())
    alone = np.concatenate([encoder.encode_sounds([sound]) for sound in sounds()])
    assert together.dtype == np.float32
    assert np.abs(together - alone).max() < 1e-5
    unit = together / np.linalg.norm(together, axis=1, keepdims=True)
    assert (unit @ unit.T)[~np.eye(len(unit), dtype=bool)].max() < 1 - 1e-6
    if name in ("wav2vec2", "hubert"):  # a sound without a frame, a failure of its own
        for heard in ([tone(440, 0.01), tone(440)], [tone(440, 0.01)]):
            first, *others = encoder.encode_sounds(heard)
            assert np.isnan(first).all()
            assert np.isfinite(others).all()

    if name in WINDOWS:
        length, rate = int(WINDOWS[name] * tiny.RATE), tiny.RATE
        begun, ended = tone(220, length / rate).samples, tone(1760, length / rate).samples
        (whole,) = encoder.encode_sounds([Sound(np.concatenate([begun, ended]), rate)])
        parts = encoder.encode_sounds([Sound(begun, rate), Sound(ended, rate)])
        assert np.abs(whole - parts.mean(axis=0)).max() < 1e-5

    import torch
    import transformers

    folder, sound = MODELS[name], tone(440, 1.0)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    inputs = extractor([sound.samples], sampling_rate=tiny.RATE, return_tensors="pt")
    with torch.inference_mode():
        if name == "clap":
            output = model.get_audio_features(**inputs)
            expected = output if hasattr(output, "detach") else output.pooler_output
        elif name == "ast":
            expected = model(**inputs).pooler_output
        else:
            expected = model(**inputs).last_hidden_state.mean(dim=1)
    vector = encoder.encode_sounds([sound])
    assert np.abs(vector - expected.numpy()).max() < 1e-5


def test_clap_reads_a_sound_the_same_way_each_time(tmp_path: Path) -> None:
    """With fusion its feature extractor picks a random sound of a batch to be a long one."""
    fused = tiny.build_clap(tmp_path / "fused", fusion=True)
    assert json.loads((fused / "preprocessor_config.json").read_text())["truncation"]
    heard = [*sounds()[:2], tone(300, 5.0)]
    for text in (spec("clap"), str(fused)):
        encoder = load_once(text, "encoder")
        first = encoder.encode_sounds(heard)
        for _ in range(2):
            np.random.seed(None)  # noqa: NPY002 - the extractor draws from the global generator
            assert np.array_equal(encoder.encode_sounds(heard), first)


def test_texts_lie_in_the_space_of_the_sounds() -> None:
    """CLAP's; the others read none and say what does."""
    clap = load_once(spec("clap"), "encoder")
    texts = clap.encode_texts(["a red circle", "two blue square"])
    assert texts.shape == (2, 24) == clap.encode_sounds(sounds()[:2]).shape
    assert np.abs(texts[:1] - clap.encode_texts(["a red circle"])).max() < 1e-6
    with pytest.raises(RoleError, match="reads no texts"):
        load_once(spec("ast"), "encoder").encode_texts(["red"])
    with pytest.raises(RoleError, match="embeds sounds only and sees no images"):
        clap.encode_images([])


def test_what_training_alone_needs_may_be_missing(copied: Build) -> None:
    """Masks of frames; encoders saved from classifiers often lack them. transformers before 5
    leaves them as the memory happens to be, and torch fills that with NaN where all shall repeat.
    """
    import torch

    folder = copied("wav2vec2")
    edit_tensors(folder, lambda own: [own.pop(k) for k in list(own) if "masked_spec" in k])
    torch.use_deterministic_algorithms(True)
    try:
        assert bind_text(str(folder), "encoder").load()
    finally:
        torch.use_deterministic_algorithms(False)


GENERATORS = ["vits", "musicgen", "bark"]

TEXTS = ["a red circle", "left"]


def samples(made: list[Any]) -> list[Any]:
    """The samples of sounds, whose rate is checked."""
    assert all(rate == tiny.RATE for _, rate in made)
    return [wave for wave, _ in made]


@pytest.mark.parametrize("name", GENERATORS)
def test_a_sound_depends_on_its_text_and_seed_alone(name: str) -> None:
    """Not on its neighbours, nor on the state of the global generator, which stays as it was."""
    import torch

    model = load_once(spec(name), "generator")
    torch.manual_seed(5)
    state = torch.get_rng_state()
    together = samples(model.generate(TEXTS, [1, 2]))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    for text, seed, wave in zip(TEXTS, [1, 2], together, strict=True):
        (alone,) = samples(model.generate([text], [seed]))
        assert np.array_equal(alone, wave)
    (other,) = samples(model.generate(TEXTS[:1], [9]))
    assert not np.array_equal(other, together[0])
    for wave in together:
        assert wave.ndim == 1
        assert np.isfinite(wave).all()
        assert np.abs(wave).max() > 1e-4


def test_vits_speaks_as_the_library_does() -> None:
    """Run by hand under the same seed."""
    import torch
    from transformers import AutoTokenizer, VitsModel

    folder = MODELS["vits"]
    model = VitsModel.from_pretrained(folder).eval()
    tokens = AutoTokenizer.from_pretrained(folder)("a red circle", return_tensors="pt")
    torch.manual_seed(4)
    with torch.inference_mode():
        expected = model(**tokens).waveform[0].numpy()
    vits = load_once(spec("vits"), "generator")
    (made,) = samples(vits.generate(["a red circle"], [4]))
    assert np.allclose(made, expected, atol=1e-5)
    failure, made = vits.generate(["ЖЖ", "red"], [0, 0])  # letters that its vocabulary lacks
    assert isinstance(failure, Failure)
    assert (failure.kind, len(made)) == ("bad-sound", 2)


@pytest.mark.parametrize("name", ["musicgen", "bark"])
def test_a_codec_has_as_many_tokens_as_it_is_told(name: str) -> None:
    """The spec's number goes before the checkpoint's, and so does greedy writing."""
    (by_default,) = samples(load_once(spec(name), "generator").generate(["red"], [0]))
    longer = load_once(spec(name, "max_new_tokens=14", "do_sample=false"), "generator")
    first, second = samples(longer.generate(["red", "red"], [0, 1]))
    assert len(first) > len(by_default)
    assert np.array_equal(first, second)


def test_bark_reads_a_text_as_its_processor_does(copied: Build) -> None:
    """Padded and without the marks of sentences; one that is longer would be cut in silence."""
    import torch
    import transformers

    folder = copied("bark")
    processor = transformers.BarkProcessor(transformers.AutoTokenizer.from_pretrained(folder))
    model = transformers.BarkModel.from_pretrained(folder).eval()
    torch.manual_seed(4)
    with torch.inference_mode():
        expected = model.generate(**processor(["a red circle"]))
    bark = load_once(spec("bark"), "generator")
    made, failure = bark.generate(["a red circle", "red " * 300], [4, 0])
    assert np.allclose(made[0], expected[0].numpy(), atol=1e-5)
    assert failure == Failure("bad-sound", "the text has 300 tokens, and the model reads 256")
    (folder / "generation_config.json").unlink()
    with pytest.raises(CheckpointError, match="semantic_config by which Bark reads"):
        bind_text(str(folder), "generator").load()


def test_a_rate_that_no_file_states_is_an_error(copied: Build) -> None:
    """Played at another rate, a sound is another one."""
    folder = copied("musicgen")
    codec = json.loads((folder / "config.json").read_text())["audio_encoder"]
    edit_json(folder / "config.json", audio_encoder=codec | {"sampling_rate": 0})
    with pytest.raises(CheckpointError):
        bind_text(str(folder), "generator").load()
