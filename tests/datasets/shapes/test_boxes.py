"""Boxes of the shapes: around all of an object and little else, in images of any size."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import Scene, SceneObject, object_boxes, parse_image, render
from tests.datasets.shapes.strategies import SEEDS, scenes


def drawn_box(located: SceneObject, seed: int) -> tuple[float, ...]:
    """The box of the pixels that an object, drawn alone, changes to more than one half."""
    alone = render(Scene((located,)), seed).pixels.astype(float)
    change = np.abs(alone - render(Scene(), seed).pixels.astype(float)).max(axis=2)
    rows, columns = np.nonzero(change >= change.max() / 2)
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


TOUCHING = Scene(
    (
        SceneObject(7, "large", "yellow", "triangle"),
        SceneObject(8, "large", "green", "circle"),
    )
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
    for located in boxes:
        assert located.box == pytest.approx(drawn_box(located.what, seed), abs=1.0)


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


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 90), st.integers(1, 90), st.just(3))))
def test_no_image_is_refused(pixels: npt.NDArray[np.uint8]) -> None:
    """Whatever is perceived has a box inside the image, in images that show no scene at all too."""
    image = ImageArtifact(pixels)
    width, height = image.size
    boxes = object_boxes(image)
    assert tuple(located.what for located in boxes) == parse_image(image).objects
    for located in boxes:
        left, top, right, bottom = located.box
        assert 0 <= left < right <= width + 1e-9
        assert 0 <= top < bottom <= height + 1e-9
