"""Pictures: where objects are, and what a drawing of the world does not explain."""

from __future__ import annotations

from math import dist

import numpy as np
import pytest
from hypothesis import given
from PIL import Image, ImageFilter

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import Scene, parse_caption, parse_image, render
from pytest_cepbench.datasets.shapes.parser import read_picture
from pytest_cepbench.datasets.shapes.scene import draw
from tests.datasets.shapes.strategies import SEEDS, drawn_scenes

SCENE = parse_caption("small red circle top left , large blue cross middle center")


@given(drawn_scenes(), SEEDS)
def test_drawings_are_explained(scene: Scene, seed: int) -> None:
    """A drawing differs from the one that is fitted to it by less than a level in 64."""
    picture = read_picture(render(scene, seed))
    assert picture.scene == scene
    assert picture.residual < 1 / 64


@given(drawn_scenes(at_least=2), SEEDS)
def test_an_object_stays_where_it_is_when_another_is_lost(scene: Scene, seed: int) -> None:
    """By less than half of the pixel that counts as moved, whatever is beside the object."""
    before = read_picture(render(scene, seed)).centers
    after = read_picture(render(Scene(scene.objects[1:]), seed)).centers
    assert max(dist(before[cell], after[cell]) for cell in after) < 0.5


@pytest.mark.parametrize("pixels", [-1.0, -0.4, 0.7])
def test_centers_follow_the_jitter(pixels: float) -> None:
    """An object that is drawn some pixels aside is read as far aside."""
    aside = np.zeros((9, 3))
    aside[4, 0] = pixels
    here, there = read_picture(draw(SCENE, np.zeros((9, 3)))), read_picture(draw(SCENE, aside))
    assert np.subtract(there.centers[4], here.centers[4]) == pytest.approx([pixels, 0], abs=0.05)


def test_black_and_noise_are_not_explained() -> None:
    """What is no drawing of the world leaves more than a good drawing does."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    assert read_picture(ImageArtifact(noise)).residual > 0.2
    assert read_picture(ImageArtifact(np.zeros((64, 64, 3), np.uint8))).residual > 0.09
    assert read_picture(render(Scene(), 0)).residual < 0.01


def test_a_picture_of_another_size_is_read_the_same() -> None:
    """It is brought to the world's size first, and centers are in its pixels."""
    image = render(SCENE, 3)
    large = ImageArtifact.from_pil(image.to_pil().resize((256, 256), Image.Resampling.NEAREST))
    assert read_picture(large) == read_picture(image)


def test_blur_shows_in_the_residual_before_it_shows_in_the_scene() -> None:
    """A blurred drawing is still read, and leaves more unexplained than a sharp one."""
    sharp = render(SCENE, 3)
    blurred = ImageArtifact.from_pil(sharp.to_pil().filter(ImageFilter.GaussianBlur(1)))
    assert parse_image(blurred) == SCENE
    assert read_picture(blurred).residual > 5 * read_picture(sharp).residual
