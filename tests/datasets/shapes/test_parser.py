"""Seeing: pixels read back as scenes, boxes of objects, and pictures with what they leave over."""

from __future__ import annotations

from math import dist

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image, ImageFilter

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import (
    Scene,
    SceneObject,
    load_shapes,
    object_boxes,
    parse_caption,
    parse_image,
    render,
)
from pytest_cepbench.datasets.shapes.parser import read_picture
from pytest_cepbench.datasets.shapes.scene import CELLS, draw
from tests.datasets.shapes.strategies import SEEDS, drawn_scenes, scenes


def test_every_sample_of_a_large_data_set_is_seen_exactly() -> None:
    """Thirty drawn scenes of every family, each with a jitter of its own."""
    samples = load_shapes(30, seed=1).samples
    seen = [parse_image(sample.image.load()) for sample in samples if sample.image]
    assert seen == [parse_caption(sample.text or "") for sample in samples]


@pytest.mark.slow
@given(scenes(), st.lists(st.sampled_from((-1.0, 0.0, 1.0)), min_size=27, max_size=27))
@settings(max_examples=200)
def test_extreme_jitter_is_seen_exactly(scene: Scene, jitter: list[float]) -> None:
    """Objects that touch their neighbors' cells as far as they ever do are still told apart."""
    assert parse_image(draw(scene, np.array(jitter).reshape(CELLS, 3))) == scene


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


TOUCHING = Scene(
    (SceneObject(7, "large", "yellow", "triangle"), SceneObject(8, "large", "green", "circle"))
)
"""Each reaches into the other's cell, no farther from its center than its own corners do."""

STACKED = Scene(
    (
        SceneObject(1, "large", "yellow", "cross"),
        SceneObject(2, "large", "cyan", "triangle"),
        SceneObject(5, "large", "cyan", "triangle"),
    )
)
"""The tip of one triangle reaches into the cell of the other, below its base."""


@given(scenes(), SEEDS)
@example(TOUCHING, 37)
@example(STACKED, 1168782040)
def test_every_object_has_its_own_box(scene: Scene, seed: int) -> None:
    """In a crowd as when drawn alone, to a pixel; all objects, in the order of their cells."""
    boxes = object_boxes(render(scene, seed))
    assert tuple(located.what for located in boxes) == scene.objects
    empty = render(Scene(), seed).pixels.astype(float)
    for (
        located
    ) in boxes:  # of the pixels that an object, drawn alone, changes to more than one half
        alone = render(Scene((located.what,)), seed).pixels.astype(float)
        change = np.abs(alone - empty).max(axis=2)
        rows, columns = np.nonzero(change >= change.max() / 2)
        drawn = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        assert located.box == pytest.approx(drawn, abs=1.0)


@given(scenes(at_least=1), SEEDS, st.sampled_from([(128, 128), (192, 64), (320, 256)]))
def test_boxes_are_in_the_pixels_of_the_image(
    scene: Scene, seed: int, size: tuple[int, int]
) -> None:
    """A generator that draws larger, or not square, has its boxes where its own pixels are."""
    small = render(scene, seed)
    large = ImageArtifact.from_pil(small.to_pil().resize(size, Image.Resampling.NEAREST))
    scale = np.array([size[0], size[1], size[0], size[1]]) / 64
    for located, other in zip(object_boxes(small), object_boxes(large), strict=True):
        assert other.box == pytest.approx(tuple(np.array(located.box) * scale))


def test_what_no_world_draws_has_a_box_too() -> None:
    """A ring leaves its middle free, where its center of mass lies: its box is around all of it."""
    down, across = np.indices((64, 64)) - 10.0
    ring = np.abs(np.hypot(across, down) - 9.0) < 1.0
    pixels = np.full((64, 64, 3), 25, np.uint8)
    pixels[ring] = (235, 41, 41)
    (boxes,) = object_boxes(ImageArtifact(pixels))
    assert boxes.box == (1.0, 1.0, 20.0, 20.0)


@given(drawn_scenes(), SEEDS)
def test_drawings_are_explained(scene: Scene, seed: int) -> None:
    """A drawing differs from the one that is fitted to it by less than a level in 64; an object
    stays where it is when another is lost, by less than half of the pixel that counts as moved.
    """
    picture = read_picture(render(scene, seed))
    assert picture.scene == scene
    assert picture.residual < 1 / 64
    after = read_picture(render(Scene(scene.objects[1:]), seed)).centers
    assert all(dist(picture.centers[cell], center) < 0.5 for cell, center in after.items())


def test_black_and_noise_are_not_explained() -> None:
    """What is no drawing of the world leaves more than a good drawing does."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    assert read_picture(ImageArtifact(noise)).residual > 0.2
    assert read_picture(ImageArtifact(np.zeros((64, 64, 3), np.uint8))).residual > 0.09
    assert read_picture(render(Scene(), 0)).residual < 0.01
