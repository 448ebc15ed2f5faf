"""Editors: tiny pipelines saved by diffusers, bound and loaded as a user's would be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.models.protocols import Editor, Movable
from pytest_cepbench.models.torch_runtime import has
from tests.models.binding import bind_text
from tests.tiny.common import pictures, skip_before

pytestmark = pytest.mark.models

KNOWS_KONTEXT = has("diffusers", "0.35")
QUERIES = {
    "stable-diffusion": "num_inference_steps=4&strength=0.5",
    "sdxl": "num_inference_steps=4&strength=0.5",
    "flux": "num_inference_steps=4&strength=0.5&max_sequence_length=16",
    "pix2pix": "num_inference_steps=2",
    "kontext": "num_inference_steps=2&max_sequence_length=16&max_area=2304",
}
NAMES = [name for name in QUERIES if KNOWS_KONTEXT or name != "kontext"]
TEXTS = ["two red circles and a blue square", "one green triangle", "three small yellow shapes"]
IMAGES = pictures(((48, 48), (64, 32), (48, 48)))
SEEDS = [11, 12, 13]

Levels = npt.NDArray[np.int_]


@pytest.fixture(autouse=True)
def _small_kontext(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its images are brought to a size of this list, all of a million pixels.
    if not KNOWS_KONTEXT:
        return
    from diffusers.pipelines.flux import pipeline_flux_kontext

    sizes = [(48, 48), (64, 32)]
    monkeypatch.setattr(pipeline_flux_kontext, "PREFERRED_KONTEXT_RESOLUTIONS", sizes)


def load(folder: Path, query: str = "", settings: str | None = None) -> Editor:
    """Bind and load; settings: in the place of those of the pipeline's kind."""
    own = QUERIES[folder.name] if settings is None else settings
    options = "&".join(part for part in (own, query) if part)
    model = bind_text(f"{folder}?{options}", "editor").load()
    assert isinstance(model, Editor)
    assert isinstance(model, Movable)
    return model


def edit(
    model: Editor, images: Sequence[Image.Image], texts: Sequence[str], seeds: Sequence[int]
) -> list[Levels]:
    """The results as grey levels of 0 to 255."""
    results = list(model.edit(images, texts, seeds))
    assert not any(isinstance(result, Failure) for result in results)
    return [np.rint(np.asarray(result) * 255).astype(int) for result in results]


def apart(first: Levels, second: Levels) -> int:
    """The largest difference of a pixel."""
    return int(np.abs(first - second).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_result_depends_on_its_own_inputs(folders: dict[str, Path], name: str) -> None:
    """Alone, in a batch and in another order the same within a level; caller's state stays."""
    import torch

    model = load(folders[name])
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


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_result_has_the_shape_of_its_image(folders: dict[str, Path], name: str) -> None:
    """Whole steps of the pipeline's patches; another size where the spec says so."""
    model = load(folders[name])

    square, wide = edit(model, IMAGES[:2], TEXTS[:2], SEEDS[:2])

    assert square.shape == (48, 48, 3)
    assert wide.shape[1] > wide.shape[0]
    if name != "kontext":  # it brings every image to its own area
        assert wide.shape == (32, 64, 3)
        (odd,) = edit(model, [Image.new("RGB", (35, 50), "red")], TEXTS[:1], [1])
        assert odd.shape == (48, 32, 3)
        (said,) = edit(load(folders[name], "height=32&width=48"), IMAGES[:1], TEXTS[:1], [1])
        assert said.shape == (32, 48, 3)


def test_what_decides_is_in_the_key(folders: dict[str, Path]) -> None:
    """Given parameters, the size among them; seeds always."""
    folder = folders["stable-diffusion"]

    bound = bind_text(f"{folder}?strength=0.5&height=32&width=32&batch_size=2", "editor")

    assert bound.params == {"dtype": "float32", "strength": 0.5, "height": 32, "width": 32}
    assert (bound.adapter, bound.seeded, bound.resources.batch_size) == (
        "diffusers-editor/1",
        True,
        2,
    )
    assert bound.fingerprint == bind_text(str(folder), "generator").fingerprint


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
