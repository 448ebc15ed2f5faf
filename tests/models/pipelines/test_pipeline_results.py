"""What a pipeline returns, taken image by image; the pipelines are a few lines of a user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import ModelError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.pipelines.pipeline import prompt_lengths
from pytest_cepbench.models.pipelines.roles import DiffusersGenerator
from tests.tiny.encoders import clip_tokenizer
from tests.tiny.generators import t5_tokenizer

pytest.importorskip("torch", reason="images begin with torch's noise")
pytest.importorskip("diffusers", reason="its pipelines draw them")

from diffusers import AudioPipelineOutput, DiffusionPipeline, ImagePipelineOutput
from diffusers.pipelines.stable_diffusion import StableDiffusionPipelineOutput

pytestmark = pytest.mark.models

CHECKPOINT = Checkpoint(Path("step-8"), "diffusers", "NovelPipeline", ("generator",), {})
GREY = np.full((2, 2, 3), 0.5, np.float32)


class Pipeline(DiffusionPipeline):  # type: ignore[misc] # diffusers is not typed
    """Returns what it is made with, and keeps what it is called with."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output
        self.call: dict[str, Any] = {}

    def __call__(self, **call: Any) -> Any:
        """Return the output."""
        self.call.update(call)
        return self.output


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (AudioPipelineOutput(audios=GREY), "returned no images for 2"),
        (ImagePipelineOutput(images=[GREY]), r"1 image\(s\) for 2 text\(s\)"),
    ],
)
def test_one_image_for_each_text_is_required(output: Any, words: str) -> None:
    """Fewer could not be told apart: each would be taken for another text's."""
    with pytest.raises(ModelError, match=words):
        DiffusersGenerator(CHECKPOINT, Pipeline(output), {}).generate(["a", "b"], [1, 2])


def test_a_failure_belongs_to_its_own_image() -> None:
    """Flagged or not a number: the images beside it are kept as they are."""
    broken = GREY.copy()
    broken[0, 0] = np.nan
    output = StableDiffusionPipelineOutput([GREY, broken, GREY], [False, False, True])
    pipeline = Pipeline(output)
    drawn = DiffusersGenerator(CHECKPOINT, pipeline, {}).generate(["a", "b", "c"], [1, 2, 3])
    assert drawn[0] is GREY
    assert drawn[1] == Failure("nan-image", "25% of the pixel values are not numbers")
    assert isinstance(drawn[2], Failure)
    assert drawn[2].kind == "blank-image"


def test_each_text_has_its_own_generator_and_the_negative_prompt() -> None:
    """The generator of its seed, on the CPU; the parameters reach the call as they are."""
    pipeline = Pipeline(ImagePipelineOutput(images=[GREY, GREY]))
    parameters = {"negative_prompt": "blur", "height": 64}
    DiffusersGenerator(CHECKPOINT, pipeline, parameters).generate(["a", "b"], [11, 12])
    call = pipeline.call
    assert call["prompt"] == ["a", "b"]
    assert [g.initial_seed() for g in call["generator"]] == [11, 12]
    assert {g.device.type for g in call["generator"]} == {"cpu"}
    assert (call["negative_prompt"], call["height"]) == (["blur", "blur"], 64)


class Reader(DiffusionPipeline):  # type: ignore[misc] # diffusers is not typed
    """A pipeline that reads with T5 up to a length of its call, with CLIP up to 77."""

    def __init__(self, tokenizer: Any, tokenizer_2: Any = None) -> None:
        super().__init__()
        self.register_modules(tokenizer=tokenizer, tokenizer_2=tokenizer_2)

    def __call__(self, prompt: list[str], max_sequence_length: int = 256) -> None:
        """Draws nothing."""


def test_the_encoder_that_reads_most_decides() -> None:
    """The call's length bounds a tokenizer without one; CLIP's own limit stands."""
    texts = ["a red circle", "two"]
    clip, t5 = clip_tokenizer(77), t5_tokenizer()
    t5.model_max_length = 10**30  # as of one that states none
    both = Reader(clip, t5)
    by_clip, by_t5 = [5, 3], [4, 2]  # tokens, those of beginning and end included
    assert prompt_lengths(both, {}, texts) == (by_t5, 256)
    assert prompt_lengths(both, {"max_sequence_length": 512}, texts) == (by_t5, 512)
    assert prompt_lengths(both, {"max_sequence_length": 50}, texts) == (by_clip, 77)
    assert prompt_lengths(Reader(clip), {"max_sequence_length": 512}, texts) == (by_clip, 77)
