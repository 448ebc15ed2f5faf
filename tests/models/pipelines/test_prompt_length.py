"""How much of a prompt a pipeline reads: what it says against what its images depend on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.models.pipelines.pipeline import prompt_lengths
from pytest_cepbench.models.protocols import CountsTokens, Generator
from tests.models.pipelines.conftest import BUILDERS, load
from tests.tiny import generators as tiny

pytest.importorskip("torch", reason="generators need the [models] extra")
pytest.importorskip("diffusers", reason="generators need the [models] extra")

pytestmark = pytest.mark.models


def draw(model: Generator, text: str) -> Any:
    """The image of one text."""
    (image,) = model.generate([text], [3])
    return image


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stable-diffusion", "sdxl"])
def test_what_comes_after_the_limit_changes_nothing(folders: dict[str, Path], name: str) -> None:
    """A text of more tokens than are read is drawn like its beginning; one of as many is whole."""
    model = load(f"{folders[name]}?{tiny.DRAW[name]}")
    assert isinstance(model, CountsTokens)
    words = "red circle " * 200
    (length,), most = model.text_lengths([words])
    assert length > most
    (of_one_word,), _ = model.text_lengths(["red"])
    (of_two_words,), _ = model.text_lengths(["red red"])
    room = (most - of_one_word) // (of_two_words - of_one_word) + 1  # words that fit
    whole, longer = "red " * room, "red " * room + "blue"
    assert model.text_lengths([whole.strip()])[0][0] <= most < model.text_lengths([longer])[0][0]
    assert np.array_equal(draw(model, longer), draw(model, longer + " square"))
    assert not np.array_equal(
        draw(model, whole.strip()), draw(model, "blue " + "red " * (room - 1))
    )


@pytest.mark.parametrize("name", BUILDERS)
def test_every_pipeline_says_how_much_it_reads(folders: dict[str, Path], name: str) -> None:
    """A limit that a short text keeps, and longer texts have more tokens."""
    model = load(f"{folders[name]}?{tiny.DRAW[name]}")
    assert isinstance(model, CountsTokens)
    (short, long), most = model.text_lengths(["red", "red circle and a blue square"])
    assert 0 < short < long <= most < 10_000


@pytest.mark.parametrize("asked", [100, 300])
def test_the_longest_reader_counts(folders: dict[str, Path], asked: int) -> None:
    """FLUX reads with CLIP and T5: T5 reads more, as much as the call says."""
    steps = "num_inference_steps=2&height=64&width=64"
    model = load(f"{folders['flux']}?{steps}&max_sequence_length={asked}")
    assert isinstance(model, CountsTokens)
    assert model.text_lengths(["red"])[1] == asked


def test_a_pipeline_without_tokenizers_reads_everything() -> None:
    """Nothing is said to be cut where nothing is known."""
    lengths, most = prompt_lengths(object.__new__(_Bare), {}, ["a text", "another"])
    assert lengths == [0, 0]
    assert most > 10**9


class _Bare:
    """A user's own pipeline, which reads characters."""

    def __call__(self, prompt: list[str]) -> list[str]:
        return prompt
