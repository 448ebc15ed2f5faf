"""What pipelines return and read, which parameters enter keys, quantized parts, and editors."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from diffusers import AudioPipelineOutput, DiffusionPipeline, ImagePipelineOutput
from diffusers.pipelines.stable_diffusion import StableDiffusionPipelineOutput
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.artifacts.modality import check_image
from pytest_cepbench.errors import CheckpointError, ModelError, SpecError
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.pipelines.pipeline import PipelineParams
from pytest_cepbench.models.pipelines.roles import DiffusersGenerator
from pytest_cepbench.models.protocols import CountsTokens, Editor, Generator, Movable
from pytest_cepbench.models.torch_runtime import has, quiet
from tests.models.binding import bind_text
from tests.models.pipelines.conftest import (
    FOLDERS,
    SEEDS,
    TEXTS,
    apart,
    bind_generator,
    draw,
    levels,
    load,
)
from tests.tiny import generators as tiny
from tests.tiny import loras
from tests.tiny.common import edit_tensors, pictures, skip_before
from tests.tiny.encoders import clip_tokenizer
from tests.tiny.generators import t5_tokenizer

pytestmark = pytest.mark.models

CHECKPOINT = Checkpoint(
    "NovelPipeline", ("generator",), path=Path("step-8"), kind="diffusers", config={}
)

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


def test_each_text_has_its_own_generator_and_image() -> None:
    """The generator of its seed, on the CPU; the parameters reach the call as they are. Fewer
    images than texts could not be told apart: each would be taken for another text's. One that is
    flagged or not a number is a failure, and those beside it are kept as they are.
    """
    for output, words in (
        (AudioPipelineOutput(audios=GREY), "returned no images for 2"),
        (ImagePipelineOutput(images=[GREY]), r"1 image\(s\) for 2 text\(s\)"),
    ):
        generator = DiffusersGenerator(CHECKPOINT, Pipeline(output), PipelineParams())
        with pytest.raises(ModelError, match=words):
            generator.generate(["a", "b"], [1, 2])

    broken = GREY.copy()
    broken[0, 0] = np.nan
    made = StableDiffusionPipelineOutput([GREY, broken, GREY], [False, False, True])
    generator = DiffusersGenerator(CHECKPOINT, Pipeline(made), PipelineParams())
    drawn = generator.generate(["a", "b", "c"], [1, 2, 3])
    assert drawn[0] is GREY
    nan = Failure("nan-image", "3 of 12 pixel values are NaN or infinite")
    assert check_image(drawn[1]) == nan
    assert isinstance(drawn[2], Failure)
    assert drawn[2].kind == "blank-image"

    pipeline = Pipeline(ImagePipelineOutput(images=[GREY, GREY]))
    parameters = PipelineParams(negative_prompt="blur", height=64)
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
    by_clip, by_t5 = [5, 3], [4, 2]  # tokens, those of beginning and end included
    for tokenizers, length, expected in (
        ((clip, t5), None, (by_t5, 256)),
        ((clip, t5), 512, (by_t5, 512)),
        ((clip, t5), 50, (by_clip, 77)),
        ((clip,), 512, (by_clip, 77)),
    ):
        params = PipelineParams(max_sequence_length=length)
        generator = DiffusersGenerator(CHECKPOINT, Reader(*tokenizers), params)
        assert generator.text_lengths(texts) == expected


def image_of(model: Generator, text: str) -> Any:
    """The image of one text."""
    (image,) = model.generate([text], [3])
    return image


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stable-diffusion", "sdxl"])
def test_what_comes_after_the_limit_changes_nothing(name: str) -> None:
    """A text of more tokens than are read is drawn like its beginning; one of as many is whole."""
    model = load(f"{FOLDERS[name]}?{tiny.DRAW[name]}")
    assert isinstance(model, CountsTokens)
    words = "red circle " * 200
    (length,), most = model.text_lengths([words])
    assert length > most
    (of_one_word,), _ = model.text_lengths(["red"])
    (of_two_words,), _ = model.text_lengths(["red red"])
    room = (most - of_one_word) // (of_two_words - of_one_word) + 1  # words that fit
    whole, longer = "red " * room, "red " * room + "blue"
    assert model.text_lengths([whole.strip()])[0][0] <= most < model.text_lengths([longer])[0][0]
    assert np.array_equal(image_of(model, longer), image_of(model, longer + " square"))
    assert not np.array_equal(
        image_of(model, whole.strip()), image_of(model, "blue " + "red " * (room - 1))
    )


def test_parameters_enter_the_identity_as_given() -> None:
    """What changes an image is in `params`; where it runs is provenance; defaults add nothing."""
    folder = FOLDERS["stable-diffusion"]
    bare = bind_generator(str(folder))
    assert bare.params == {"dtype": "float32"}
    assert bare.seeded
    assert bare.resources.batch_size == 4
    changed = bind_generator(
        f"{folder}?guidance_scale=3&negative_prompt=red&scheduler=PNDMScheduler"
        "&device=cpu&batch_size=2&dtype=bfloat16"
    )
    assert changed.params == {
        "dtype": "bfloat16",
        "guidance_scale": 3.0,
        "negative_prompt": "red",
        "scheduler": "PNDMScheduler",
    }
    assert changed.resources.batch_size == 2
    assert changed.provenance["device"] == "cpu"
    assert changed.fingerprint == bare.fingerprint
    placed = bind_generator(f"{folder}?offload=model&device=cuda&dtype=float32")
    assert (placed.params, placed.resources.dispatched) == (bare.params, True)
    editor = bind_text(f"{folder}?strength=0.5&height=32&width=32&batch_size=2", "editor")
    assert editor.params == {"dtype": "float32", "strength": 0.5, "height": 32, "width": 32}
    assert (editor.adapter, editor.seeded) == ("diffusers-editor/1", True)
    assert (editor.resources.batch_size, editor.fingerprint) == (2, bare.fingerprint)


@pytest.mark.parametrize(
    ("name", "parameter", "expected"),
    [
        ("stable-diffusion", "max_sequence_length=8", "DiffusionPipeline 'max_sequence_length'"),
        ("flux", "use_resolution_binning=false", "FluxPipeline 'use_resolution_binning'"),
        ("pixart", "true_cfg_scale=2", "Known: clean_caption, guidance_scale, height"),
        ("stable-diffusion", "scheduler=DDIM", "Known: DDIMScheduler, DDPMScheduler"),
        ("stable-diffusion", "scheduler=DPMSolverSDEScheduler", "draws noise from a generator"),
        ("flux", "scheduler=DDIMScheduler", "Known: FlowMatchEulerDiscreteScheduler"),
    ],
)
def test_what_a_pipeline_does_not_take_is_refused_by_name_at_load(
    name: str, parameter: str, expected: str
) -> None:
    """A parameter of another pipeline must not be dropped in silence."""
    bound = bind_generator(f"{FOLDERS[name]}?{parameter}")
    with pytest.raises(SpecError, match=expected):
        bound.load()


DRAW = tiny.DRAW["flux"]


@pytest.fixture
def quantized(tmp_path: Path) -> Path:
    """A FLUX whose transformer's weights are whole numbers of eight bits, saved by torchao."""
    pytest.importorskip("torchao", reason="it quantizes")
    import torch
    from diffusers import FluxTransformer2DModel, TorchAoConfig
    from torchao.quantization import Int8WeightOnlyConfig

    folder = Path(shutil.copytree(FOLDERS["flux"], tmp_path / "quantized"))
    with quiet():
        transformer = FluxTransformer2DModel.from_pretrained(
            folder / "transformer",
            quantization_config=TorchAoConfig(Int8WeightOnlyConfig()),
            torch_dtype=torch.float32,
        )
    shutil.rmtree(folder / "transformer")
    transformer.save_pretrained(folder / "transformer")
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torchao's own, of its way to be loaded
def test_a_quantized_component_draws_nearly_what_the_whole_one_draws(
    quantized: Path, tmp_path: Path
) -> None:
    """In the pipeline or in the place of its own; a LoRA works beside it, and is not merged."""
    expected = draw(f"{FOLDERS['flux']}?{DRAW}")
    image = draw(f"{quantized}?{DRAW}")
    assert 0 < apart(image, expected) < 0.05
    spec = f"{FOLDERS['flux']}?transformer={quantized / 'transformer'}&{DRAW}"
    assert np.array_equal(draw(spec), image)
    lora = loras.build_lora(FOLDERS["flux"], tmp_path / "lora")
    with pytest.raises(CheckpointError, match=r"quantized.*add fuse=false"):
        bind_generator(f"{quantized}?lora={lora}").load()
    assert np.abs(draw(f"{quantized}?lora={lora}&fuse=false&{DRAW}") - image).max() > 1e-3


@pytest.mark.filterwarnings("ignore")  # torchao's own, of its way to be loaded
def test_a_scale_that_is_no_number_is_refused_by_name(quantized: Path) -> None:
    """Whole numbers hold no NaN, and the scales beside them can."""
    file = quantized / "transformer" / "diffusion_pytorch_model.safetensors"
    edit_tensors(
        file, lambda t: next(t[name] for name in t if name.endswith("scale")).fill_(float("nan"))
    )
    with pytest.raises(CheckpointError, match=r"NaN or infinite values in transformer\..*scale"):
        bind_generator(str(quantized)).load()


# -- editors ---------------------------------------------------------------------------------------

KNOWS_KONTEXT = has("diffusers", "0.35")
QUERIES = {
    "stable-diffusion": "num_inference_steps=4&strength=0.5",
    "sdxl": "num_inference_steps=4&strength=0.5",
    "flux": "num_inference_steps=4&strength=0.5&max_sequence_length=16",
    "pix2pix": "num_inference_steps=2",
    "kontext": "num_inference_steps=2&max_sequence_length=16&max_area=2304",
}
NAMES = [name for name in QUERIES if KNOWS_KONTEXT or name != "kontext"]
IMAGES = pictures(((48, 48), (64, 32), (48, 48)))


@pytest.fixture(autouse=True)
def _small_kontext(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its images are brought to a size of this list, all of a million pixels.
    if not KNOWS_KONTEXT:
        return
    from diffusers.pipelines.flux import pipeline_flux_kontext

    sizes = [(48, 48), (64, 32)]
    monkeypatch.setattr(pipeline_flux_kontext, "PREFERRED_KONTEXT_RESOLUTIONS", sizes)


def load_editor(folder: Path, query: str = "", settings: str | None = None) -> Editor:
    """Bind and load; settings: in the place of those of the pipeline's kind."""
    own = QUERIES[folder.name] if settings is None else settings
    options = "&".join(part for part in (own, query) if part)
    model = bind_text(f"{folder}?{options}", "editor").load()
    assert isinstance(model, Editor)
    assert isinstance(model, Movable)
    return model


def edit(
    model: Editor, images: Sequence[Image.Image], texts: Sequence[str], seeds: Sequence[int]
) -> list[npt.NDArray[np.int_]]:
    """The results as grey levels of 0 to 255."""
    return [levels(result) for result in model.edit(images, texts, seeds)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_result_depends_on_its_own_inputs(name: str) -> None:
    """Alone, in a batch and in another order the same within a level; caller's state stays.

    It has the shape of its image, in whole steps of the pipeline's patches, or the spec's size.
    """
    import torch

    model = load_editor(FOLDERS[name])
    before = torch.get_rng_state()

    together = edit(model, IMAGES, TEXTS, SEEDS)

    assert torch.equal(torch.get_rng_state(), before)
    turned = edit(model, IMAGES[::-1], TEXTS[::-1], SEEDS[::-1])[::-1]
    for index in range(3):
        (alone,) = edit(model, [IMAGES[index]], [TEXTS[index]], [SEEDS[index]])
        assert apart(alone, together[index]) <= 1
        assert apart(turned[index], together[index]) <= 1
    (seed,) = edit(model, IMAGES[:1], TEXTS[:1], [99])
    (text,) = edit(model, IMAGES[:1], TEXTS[1:2], SEEDS[:1])
    (image,) = edit(model, IMAGES[2:], TEXTS[:1], SEEDS[:1])
    assert apart(seed, together[0]) > 16
    assert min(apart(text, together[0]), apart(image, together[0])) > 1
    square, wide, _ = together
    assert square.shape == (48, 48, 3)
    assert wide.shape[1] > wide.shape[0]
    if name != "kontext":  # it brings every image to its own area
        assert wide.shape == (32, 64, 3)
        (odd,) = edit(model, [Image.new("RGB", (35, 50), "red")], TEXTS[:1], [1])
        assert odd.shape == (48, 32, 3)
        (said,) = edit(load_editor(FOLDERS[name], "height=32&width=48"), IMAGES[:1], TEXTS[:1], [1])
        assert said.shape == (32, 48, 3)


@pytest.mark.slow
def test_the_library_has_the_pipelines_that_detection_promises() -> None:
    """Each has a class that takes an image and a text, under the same components."""
    skip_before("Qwen-Image", "diffusers", "0.35")
    import inspect

    from diffusers.pipelines import auto_pipeline

    from pytest_cepbench.models.checkpoints import format_detection

    by_name = {
        drawing.__name__: auto_pipeline.AUTO_IMAGE2IMAGE_PIPELINES_MAPPING.get(family)
        for family, drawing in auto_pipeline.AUTO_TEXT2IMAGE_PIPELINES_MAPPING.items()
    }
    for name in format_detection._REDRAWING:
        editing = by_name[name]
        assert editing is not None, name
        assert {"prompt", "image", "generator"} <= set(
            inspect.signature(editing.__call__).parameters
        )
