"""Seeing: exact on what the world draws, forgiving of blur and noise, defined for everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image, ImageFilter

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import Scene, load_shapes, parse_caption, parse_image, render
from pytest_cepbench.datasets.shapes.parser import sightings
from pytest_cepbench.datasets.shapes.scene import (
    AREA,
    CELLS,
    COLORS,
    RADII,
    SHAPES,
    SIZES,
    Color,
    SceneObject,
    Shape,
    Size,
    draw,
)
from tests.datasets.shapes.strategies import SEEDS, scenes


def test_every_sample_of_a_large_data_set_is_seen_exactly() -> None:
    """Sixty drawn scenes of every family, each with a jitter of its own."""
    samples = load_shapes(60, seed=1).samples
    seen = [parse_image(sample.image.load()) for sample in samples if sample.image]
    assert seen == [parse_caption(sample.text or "") for sample in samples]


@pytest.mark.slow
@given(scenes(), SEEDS)
@settings(max_examples=200)
def test_every_scene_is_seen_exactly(scene: Scene, seed: int) -> None:
    """No scene, not even one with all cells taken, has a jitter that misleads."""
    assert parse_image(render(scene, seed)) == scene


@pytest.mark.slow
@given(scenes(), st.lists(st.sampled_from((-1.0, 0.0, 1.0)), min_size=27, max_size=27))
@settings(max_examples=200)
def test_extreme_jitter_is_seen_exactly(scene: Scene, jitter: list[float]) -> None:
    """Objects that touch their neighbors' cells as far as they ever do are still told apart."""
    assert parse_image(draw(scene, np.array(jitter).reshape(CELLS, 3))) == scene


@pytest.mark.parametrize("color", COLORS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", SIZES)
def test_coverage_is_that_of_the_drawn_object(size: Size, shape: Shape, color: Color) -> None:
    """Whatever its color, an object covers the area of its shape at its radius."""
    scene = Scene((SceneObject(4, size, color, shape),))
    ((_, cover, left, top),) = sightings(draw(scene, np.zeros((CELLS, 3))))
    assert (left, top) == (21, 21)
    assert cover.sum() == pytest.approx(AREA[shape] * RADII[SIZES.index(size)] ** 2, rel=0.04)


@given(scenes(), SEEDS, st.sampled_from((128, 192, 512)))
def test_larger_images_are_brought_to_size(scene: Scene, seed: int, side: int) -> None:
    """A generator that draws larger is read just as well."""
    large = render(scene, seed).to_pil().resize((side, side), Image.Resampling.BICUBIC)
    assert parse_image(ImageArtifact.from_pil(large)) == scene


@pytest.mark.parametrize("spoil", ["noise", "blur", "pale", "gray ground"])
def test_small_damage_is_forgiven(spoil: str) -> None:
    """Noise, blur and shifts of level of the size that small diffusion models leave."""
    rng = np.random.Generator(np.random.PCG64(0))
    for sample in load_shapes(8).samples:
        assert sample.image
        image = sample.image.load()
        pixels = image.pixels / 255
        if spoil == "noise":
            pixels = pixels + rng.normal(0, 0.06, pixels.shape)
        elif spoil == "blur":
            pixels = np.asarray(image.to_pil().filter(ImageFilter.GaussianBlur(0.8))) / 255
        elif spoil == "pale":
            pixels = 0.1 + (pixels - 0.1) * 0.85
        else:
            pixels = pixels + 0.04
        spoilt = ImageArtifact((pixels.clip(0, 1) * 255).astype(np.uint8))
        assert parse_image(spoilt) == parse_image(image)


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 90), st.integers(1, 90), st.just(3))))
def test_no_image_is_refused(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
    """Any image of any size has a scene, the same at every look."""
    image = ImageArtifact(pixels)
    assert parse_image(image) == parse_image(image)


@pytest.mark.parametrize("level", [0, 26, 40])
def test_an_even_dark_image_shows_nothing(level: int) -> None:
    """Neither black nor a slightly lighter ground is an object."""
    assert parse_image(ImageArtifact(np.full((64, 64, 3), level, np.uint8))) == Scene()
