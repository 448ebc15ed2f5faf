"""Distortions change what they say they change, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.sample import load_seed_image
from pytest_cepbench.datasets.shapes import load_shapes, parse_image
from pytest_cepbench.studies.doctor.model_checks import (
    COVERED_SIDE,
    CROP_SIDE,
    FAINT_BLUR,
    IMAGE_DISTORTIONS,
    MIDDLE_BLUR,
    STRONG_BLUR,
    TEXT_DISTORTIONS,
    cropped,
    negated,
    recolored,
    region_covered,
    word_dropped,
    words_swapped,
)


def image_of(pixels: object) -> ImageArtifact:
    """An image of such pixels."""
    return ImageArtifact(np.asarray(pixels, dtype=np.uint8))


def scenes(category: str, count: int) -> list[ImageArtifact]:
    """Starts of the shapes world."""
    samples = load_shapes(samples_per_category=count).in_category(category)
    return [load_seed_image(sample) for sample in samples]


@pytest.mark.parametrize("distortion", IMAGE_DISTORTIONS, ids=lambda distortion: distortion.name)
@pytest.mark.parametrize("size", [(1, 1), (2, 5), (3, 3), (64, 64), (40, 90)])
def test_every_distortion_keeps_the_size(distortion: object, size: tuple[int, int]) -> None:
    """Of images of any size, also of one pixel; twice the same image gives twice the same."""
    apply = distortion.apply  # type: ignore[attr-defined] # pytest's parameters have no type
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3))
    made = apply(image_of(pixels))
    assert made.size == (size[1], size[0])
    assert made.digest == apply(image_of(pixels)).digest


@pytest.mark.parametrize("distortion", IMAGE_DISTORTIONS, ids=lambda distortion: distortion.name)
def test_an_image_of_one_color_keeps_all_but_its_color(distortion: object) -> None:
    """Nothing is drawn into an image that shows nothing."""
    plain = image_of(np.full((30, 30, 3), (10, 20, 30)))
    made = distortion.apply(plain)  # type: ignore[attr-defined] # as above
    assert (made.pixels == made.pixels[0, 0]).all()
    expected = (
        (30, 10, 20)
        if "colors" in distortion.name  # type: ignore[attr-defined] # as above
        else (10, 20, 30)
    )
    assert tuple(made.pixels[0, 0]) == expected


def test_distortions_are_as_strong_as_documented() -> None:
    """docs/writing-a-suite.md names the shares of the image's sides."""
    assert (FAINT_BLUR, MIDDLE_BLUR, STRONG_BLUR) == (1 / 256, 1 / 64, 1 / 16)
    assert (CROP_SIDE, COVERED_SIDE) == (0.7, 1 / 3)


def test_blurs_grow() -> None:
    """Each blur leaves less detail than the one before."""
    (image,) = scenes("crowded", 1)
    blurs = [blur for blur in IMAGE_DISTORTIONS if "blur" in blur.name]
    detail = [
        np.abs(np.diff(blur.apply(image).pixels.astype(float), axis=1)).sum() for blur in blurs
    ]
    assert len(blurs) == 3
    assert detail == sorted(detail, reverse=True)
    assert detail[2] < 0.8 * detail[0]


def test_a_covered_region_hides_an_object() -> None:
    """An object that is alone is gone; of several, one at least is not what it was."""
    every = [scene for name in ("color", "relation", "crowded") for scene in scenes(name, 4)]
    for image in every:
        before, after = parse_image(image).objects, parse_image(region_covered(image)).objects
        assert set(before) - set(after)
        if len(before) == 1:
            assert not after


def test_what_lies_outside_of_a_covered_region_stays() -> None:
    """No more than a ninth of the pixels change."""
    for image in scenes("crowded", 4):
        changed = (region_covered(image).pixels != image.pixels).any(axis=2)
        assert 0 < changed.sum() <= 21 * 21


def test_a_covered_region_at_the_edge_is_filled_from_inside() -> None:
    """A region with no surroundings on one side takes those of the other."""
    pixels = np.full((30, 30, 3), 50)
    pixels[2:6, 2:6] = 250
    assert (region_covered(image_of(pixels)).pixels == 50).all()


def test_the_most_detailed_region_is_covered() -> None:
    """Among weaker details everywhere, a region of strong ones is found and filled smoothly."""
    draw = np.random.default_rng(3)
    pixels = draw.integers(100, 110, (30, 42, 3))
    pixels[3:13, 5:19] = draw.integers(0, 256, (10, 14, 3))
    covered = region_covered(image_of(pixels)).pixels
    rows, columns = np.nonzero((covered != pixels).any(axis=2))
    assert 2 <= rows.min() <= rows.max() <= 13
    assert 4 <= columns.min() <= columns.max() <= 19
    assert covered[4:12, 6:18].std() < 10


def test_colors_come_back_after_three_exchanges() -> None:
    """Each channel takes the place of the next; a grey image has nothing to exchange."""
    (image,) = scenes("color", 1)
    once = recolored(image)
    assert once.digest != image.digest
    assert recolored(recolored(once)).digest == image.digest
    grey = image_of(np.repeat(np.arange(12).reshape(3, 4, 1), 3, axis=2))
    assert recolored(grey).digest == grey.digest


def test_a_crop_shows_the_middle() -> None:
    """What lies at the rim is gone, and the middle is larger."""
    pixels = np.zeros((40, 40, 3))
    pixels[:4] = pixels[-4:] = 255
    pixels[16:24, 16:24] = 100
    made = cropped(image_of(pixels)).pixels
    assert made.max() <= 100
    assert (made > 50).sum() > (pixels == 100).sum()


def test_texts() -> None:
    """A word is missing, two words have changed places, the whole is denied."""
    text = "A small circle, left of the large square"
    assert word_dropped(text) == "A small , left of the large square"
    assert words_swapped(text) == "A small square, left of the large circle"
    assert negated(text) == "It is not true that a small circle, left of the large square"


def test_texts_that_cannot_be_changed_stay() -> None:
    """One word cannot be dropped, and equal words cannot be exchanged."""
    assert word_dropped("circle") == "circle"
    assert words_swapped("Circle circle") == "Circle circle"
    assert words_swapped("") == word_dropped("") == ""


@given(st.text())
def test_any_text_can_be_distorted(text: str) -> None:
    """Never raises; a swap keeps all letters."""
    made = {distortion.name: distortion.apply(text) for distortion in TEXT_DISTORTIONS}
    assert sorted(made["words swapped"]) == sorted(text)
