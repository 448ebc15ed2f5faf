"""Encoders of sounds: which vector is a sound's, and that none depends on its neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Sound
from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.protocols import SoundEncoder
from tests.models.binding import bind_text, load_once
from tests.models.sounds.conftest import Load, sounds
from tests.models.text_model.conftest import Build, rewrite
from tests.tiny import sounds as tiny
from tests.tiny.encoders import build_dinov2
from tests.tones import tone

pytestmark = pytest.mark.models

NAMES = [*tiny.ENCODERS, "hubert"]

WINDOWS = {"clap": 2.0, "ast": 1.295}
"""Seconds that an encoder reads at once, of those that have such a limit."""


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_mixed_lengths_and_rates_equals_one_by_one(spec: Load, name: str) -> None:
    """And the vectors are about the sounds."""
    encoder = load_once(spec(name), "encoder")
    assert isinstance(encoder, SoundEncoder)
    together = encoder.encode_sounds(sounds())
    alone = np.concatenate([encoder.encode_sounds([sound]) for sound in sounds()])
    assert together.dtype == np.float32
    assert np.abs(together - alone).max() < 1e-5
    unit = together / np.linalg.norm(together, axis=1, keepdims=True)
    assert (unit @ unit.T)[~np.eye(len(unit), dtype=bool)].max() < 1 - 1e-6


@pytest.mark.parametrize("name", ["wav2vec2", "ast", "clap"])
def test_a_vector_is_what_the_library_makes_of_the_sound(
    spec: Load, tiny_model: Build, name: str
) -> None:
    """Run by hand: mean, pooler, and the features in the joint space."""
    import torch
    import transformers

    folder, sound = tiny_model(name), tone(440, 1.0)
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
    vector = load_once(spec(name), "encoder").encode_sounds([sound])
    assert np.abs(vector - expected.numpy()).max() < 1e-5


@pytest.mark.parametrize("name", list(WINDOWS))
def test_a_sound_beyond_the_window_is_read_in_windows(spec: Load, name: str) -> None:
    """The library reads a beginning, or a random part: what is loud at the end would be lost."""
    encoder, rate = load_once(spec(name), "encoder"), tiny.RATE
    length = int(WINDOWS[name] * rate)
    first, last = tone(220, length / rate).samples, tone(1760, length / rate).samples
    (whole,) = encoder.encode_sounds([Sound(np.concatenate([first, last]), rate)])
    parts = encoder.encode_sounds([Sound(first, rate), Sound(last, rate)])
    assert np.abs(whole - parts.mean(axis=0)).max() < 1e-5


@pytest.mark.parametrize("fusion", [False, True])
def test_clap_reads_a_sound_the_same_way_each_time(
    tmp_path: Path, copied: Build, *, fusion: bool
) -> None:
    """With fusion its feature extractor picks a random sound of a batch to be a long one."""
    import json

    folder = copied("clap")
    if fusion:
        folder = tiny.build_clap(tmp_path / "fused", fusion=True)
        assert json.loads((folder / "preprocessor_config.json").read_text())["truncation"]
    encoder: Any = bind_text(str(folder), "encoder").load()
    heard = [*sounds()[:2], tone(300, 5.0)]
    first = encoder.encode_sounds(heard)
    for _ in range(3):
        np.random.seed(None)  # noqa: NPY002 - the extractor draws from the global generator
        assert np.array_equal(encoder.encode_sounds(heard), first)


@pytest.mark.parametrize("name", ["wav2vec2", "hubert"])
def test_a_sound_without_a_frame_has_no_direction(spec: Load, name: str) -> None:
    """NaN, which is a failure of its own; the neighbours keep theirs."""
    vectors = load_once(spec(name), "encoder").encode_sounds([tone(440, 0.01), tone(440)])
    assert np.isnan(vectors[0]).all()
    assert np.isfinite(vectors[1]).all()
    assert np.isnan(load_once(spec(name), "encoder").encode_sounds([tone(440, 0.01)])).all()


def test_texts_lie_in_the_space_of_the_sounds(spec: Load) -> None:
    """CLAP's; the others read none and say what does."""
    clap = load_once(spec("clap"), "encoder")
    texts = clap.encode_texts(["a red circle", "two blue square"])
    assert texts.shape == (2, 24) == clap.encode_sounds(sounds()[:2]).shape
    assert np.abs(texts[:1] - clap.encode_texts(["a red circle"])).max() < 1e-6
    with pytest.raises(RoleError, match="reads no texts"):
        load_once(spec("ast"), "encoder").encode_texts(["red"])
    with pytest.raises(RoleError, match="embeds sounds only and sees no images"):
        clap.encode_images([])


def test_what_an_encoder_reads_is_known_before_it_is_loaded(spec: Load, tmp_path: Path) -> None:
    """Suites ask it of the bound role; a vision model says it in words, too."""
    for name in NAMES:
        assert bind_text(spec(name), "encoder").reads == {"text", "sound"}, name
    vision = bind_text(str(build_dinov2(tmp_path / "dinov2")), "encoder")
    assert "sound" not in vision.reads
    model: Any = vision.load()
    with pytest.raises(RoleError, match="hears no sounds"):
        model.encode_sounds(sounds())


def test_what_training_alone_needs_may_be_missing(copied: Build) -> None:
    """Masks of frames; encoders saved from classifiers often lack them."""
    folder = copied("wav2vec2")
    rewrite(folder, lambda own: {k: v for k, v in own.items() if "masked_spec" not in k})
    assert bind_text(str(folder), "encoder").load()
