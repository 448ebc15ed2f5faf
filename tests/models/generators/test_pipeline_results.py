"""What a pipeline returns, taken image by image; pipelines of a few lines stand for diffusers'."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import ModelError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.generators.diffusers_generator import (
    DiffusersGenerator,
    prompt_lengths,
)

torch = pytest.importorskip("torch", reason="images begin with torch's noise")

pytestmark = pytest.mark.models

CHECKPOINT = Checkpoint(Path("step-8"), "diffusers", "NovelPipeline", ("generator",), {})
GREY = np.full((2, 2, 3), 0.5, np.float32)


class Pipeline:
    """Returns what it is made with, and keeps what it is called with."""

    device = torch.device("cpu")

    def __init__(self, **results: Any) -> None:
        self.results = results
        self.call: dict[str, Any] = {}

    def __call__(self, **call: Any) -> Any:
        """Return the results."""
        self.call = call
        return SimpleNamespace(**self.results)


@pytest.mark.parametrize(
    ("results", "words"),
    [({}, "returned no images for 2"), ({"images": [GREY]}, r"1 image\(s\) for 2 text\(s\)")],
)
def test_one_image_for_each_text_is_required(results: dict[str, Any], words: str) -> None:
    """Fewer could not be told apart: each would be taken for another text's."""
    with pytest.raises(ModelError, match=words):
        DiffusersGenerator(CHECKPOINT, Pipeline(**results), {}).generate(["a", "b"], [1, 2])


def test_a_failure_belongs_to_its_own_image() -> None:
    """Flagged or not a number: the images beside it are kept as they are."""
    broken = GREY.copy()
    broken[0, 0] = np.nan
    pipeline = Pipeline(images=[GREY, broken, GREY], nsfw_content_detected=[False, False, True])
    drawn = DiffusersGenerator(CHECKPOINT, pipeline, {}).generate(["a", "b", "c"], [1, 2, 3])
    assert drawn[0] is GREY
    assert drawn[1] == Failure("nan-image", "25% of the pixel values are not numbers")
    assert isinstance(drawn[2], Failure)
    assert drawn[2].kind == "blank-image"


def test_each_text_has_its_own_generator_and_the_negative_prompt() -> None:
    """The generator of its seed, on the CPU; the parameters reach the call as they are."""
    pipeline = Pipeline(images=[GREY, GREY])
    parameters = {"negative_prompt": "blur", "height": 64}
    DiffusersGenerator(CHECKPOINT, pipeline, parameters).generate(["a", "b"], [11, 12])
    call = pipeline.call
    assert call["prompt"] == ["a", "b"]
    assert [g.initial_seed() for g in call["generator"]] == [11, 12]
    assert {g.device.type for g in call["generator"]} == {"cpu"}
    assert (call["negative_prompt"], call["height"]) == (["blur", "blur"], 64)


class Tokenizer:
    """Reads words. limit: what it says it reads at most."""

    def __init__(self, limit: int) -> None:
        self.model_max_length = limit

    def __call__(self, texts: list[str]) -> dict[str, list[list[str]]]:
        """A token for each word."""
        return {"input_ids": [text.split() for text in texts]}


class CLIPTokenizer(Tokenizer):
    """A tokenizer whose limit is that of the network's positions."""


class Reader:
    """A pipeline that reads with T5 up to a length of its call, with CLIP up to 77."""

    tokenizer = CLIPTokenizer(77)
    tokenizer_2: Tokenizer | None = Tokenizer(10**30)

    def __call__(self, prompt: list[str], max_sequence_length: int = 256) -> None:
        """Draws nothing."""


def test_the_encoder_that_reads_most_decides() -> None:
    """The call's length bounds a tokenizer without one; CLIP's own limit stands."""
    texts = ["a red circle", "two"]
    assert prompt_lengths(Reader(), {}, texts) == ([3, 1], 256)
    assert prompt_lengths(Reader(), {"max_sequence_length": 512}, texts)[1] == 512
    assert prompt_lengths(Reader(), {"max_sequence_length": 50}, texts)[1] == 77
    alone = Reader()
    alone.tokenizer_2 = None
    assert prompt_lengths(alone, {"max_sequence_length": 512}, texts)[1] == 77
