"""Generators of sounds: published architectures, built tiny, loaded as a user's checkpoint is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import CheckpointError, RoleError, SpecError
from tests.models.binding import bind_text, load_once
from tests.models.sounds.conftest import Load
from tests.models.text_model.conftest import Build
from tests.tiny import sounds as tiny

pytestmark = pytest.mark.models

NAMES = ["vits", "musicgen"]

TEXTS = ["a red circle", "left"]


def samples(made: list[Any]) -> list[Any]:
    """The samples of sounds, whose rate is checked."""
    assert all(rate == tiny.RATE for _, rate in made)
    return [wave for wave, _ in made]


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_depends_on_its_text_and_seed_alone(spec: Load, name: str) -> None:
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


def test_what_a_model_makes_is_known_before_it_is_loaded(spec: Load) -> None:
    """Suites ask it of the bound role; a parameter without use is refused, not passed over."""
    for name, useless in (("vits", "max_new_tokens=3"), ("musicgen", "speaker_id=1")):
        bound = bind_text(spec(name), "generator")
        assert (bound.makes, bound.seeded, bound.params) == ("sound", True, {"dtype": "float32"})
        with pytest.raises(RoleError, match="not the describer"):
            bind_text(spec(name), "describer")
        with pytest.raises(SpecError, match="has no use for"):
            bind_text(spec(name, useless), "generator")


def test_vits_speaks_as_the_library_does(tiny_model: Build, spec: Load) -> None:
    """Run by hand under the same seed."""
    import torch
    from transformers import AutoTokenizer, VitsModel

    folder = tiny_model("vits")
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


def test_musicgen_writes_as_many_tokens_as_it_is_told(spec: Load) -> None:
    """The spec's number goes before the checkpoint's, and so does greedy writing."""
    (by_default,) = samples(load_once(spec("musicgen"), "generator").generate(["red"], [0]))
    longer = load_once(spec("musicgen", "max_new_tokens=20", "do_sample=false"), "generator")
    first, second = samples(longer.generate(["red", "red"], [0, 1]))
    assert len(first) > len(by_default)
    assert np.array_equal(first, second)


def test_a_rate_that_no_file_states_is_an_error(tmp_path: Path, copied: Build) -> None:
    """Played at another rate, a sound is another one."""
    folder = copied("musicgen")
    config = json.loads((folder / "config.json").read_text())
    config["audio_encoder"]["sampling_rate"] = 0
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError):
        bind_text(str(folder), "generator").load()
