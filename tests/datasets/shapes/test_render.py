"""Drawing: geometry, jitter, and pixels that stay the same everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from pytest_cepbench.datasets.shapes import Scene, SceneObject, parse_caption, render
from pytest_cepbench.datasets.shapes.scene import (
    AREA,
    CELLS,
    COLORS,
    DROP,
    PALETTE,
    RADII,
    SHAPES,
    SIZES,
    Color,
    Shape,
    Size,
    coverage,
    draw,
)
from tests.datasets.shapes.strategies import SEEDS, drawn_scenes

STILL = np.zeros((CELLS, 3))


@pytest.mark.parametrize("color", COLORS)
def test_an_object_has_its_color_on_a_dark_ground(color: Color) -> None:
    """The middle of an object is of its palette color, the rest of the image is background."""
    pixels = draw(Scene((SceneObject(4, "small", color, "circle"),)), STILL).pixels
    expected = np.rint(PALETTE[COLORS.index(color)] * 255)
    assert np.array_equal(pixels[31:33, 31:33].reshape(-1, 3), np.tile(expected, (4, 1)))
    assert (pixels[:21] == 26).all()
    assert (pixels[:, 43:] == 26).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", SIZES)
def test_coverage_has_the_area_and_center_that_perception_assumes(shape: Shape, size: Size) -> None:
    """What a shape covers agrees with its documented area and center of mass."""
    radius = RADII[SIZES.index(size)]
    offsets = np.arange(-16, 16) + 0.5
    cover = coverage(shape, offsets[None, :], offsets[:, None], radius)
    assert cover.sum() == pytest.approx(AREA[shape] * radius**2, rel=0.02)
    assert (cover.sum(axis=0) @ offsets) / cover.sum() == pytest.approx(0, abs=1e-9)
    assert (cover.sum(axis=1) @ offsets) / cover.sum() == pytest.approx(
        DROP[shape] * radius, abs=0.02
    )


def test_a_triangle_points_up() -> None:
    """The top row of a triangle is narrower than its bottom row."""
    pixels = draw(Scene((SceneObject(4, "large", "red", "triangle"),)), STILL).pixels
    widths = (pixels[..., 0] > 128).sum(axis=1)
    rows = np.flatnonzero(widths)
    assert widths[rows[0]] < 4
    assert widths[rows[-1]] > 15


@given(drawn_scenes(at_least=2), SEEDS)
def test_jitter_of_an_object_does_not_depend_on_the_others(scene: Scene, seed: int) -> None:
    """Where an object is left out, the pixels of the cells that are not beside it stay."""
    lost = scene.objects[0]
    before = render(scene, seed).pixels
    after = render(Scene(scene.objects[1:]), seed).pixels
    changed = np.argwhere((before != after).any(axis=2)) + 0.5
    center = np.array([lost.row + 0.5, lost.column + 0.5]) * 64 / 3
    assert len(changed) > 0
    assert np.abs(changed - center).max() < 12.5


def test_seeds_give_different_images_of_one_scene() -> None:
    """Place and radius move within their bounds with the seed."""
    scene = parse_caption("small red circle middle left")
    assert len({render(scene, seed).digest for seed in range(50)}) == 50


@pytest.mark.parametrize(
    ("text", "seed", "digest"),
    [
        ("no shapes", 0, "143d360da5e427704a3ae276ecdf7d226fb0f6f8e92c57161acf4f7beb089457"),
        (
            "one shape : large cyan triangle top left",
            1,
            "a167d85b0173953b6fd62053ccf207f952cc29cd4e7f44f99af757389509081e",
        ),
        (
            "two shapes : small red circle top right , large blue square bottom left",
            7,
            "d365d1c9058040ae3500edb097187dd7b601ce9130d05cef76e5ac8253944e6c",
        ),
        (
            (
                "large yellow cross top left , small purple square middle center , "
                "small green circle bottom right"
            ),
            2**32 - 1,
            "9e75048a4ace845a9cec0559b5b5127bf83e736b6e38d3ac7281e86f4de08a8e",
        ),
    ],
)
def test_pixels_never_change(text: str, seed: int, digest: str) -> None:
    """The same image on every machine: where this fails, `WORLD_VERSION` has to be raised."""
    assert render(parse_caption(text), seed).digest == digest
