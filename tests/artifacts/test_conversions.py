"""Files that are not plain 8-bit RGB: each is converted as the documentation says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact, decode_image, read_image
from pytest_cepbench.errors import ImageError
from tests.artifacts.files import encoded, noise

RED, GREEN, WHITE = (255, 0, 0), (0, 255, 0), (255, 255, 255)


def pixels_of(image: Image.Image, kind: str = "PNG", **options: object) -> npt.NDArray[np.uint8]:
    """What an image is after a file."""
    return decode_image(encoded(image, kind, **options)).pixels


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@given(value=st.integers(0, 65535))
def test_16_bit_greys_are_scaled(kind: str, value: int) -> None:
    """16-bit greys keep their brightness, also where all of the image is darker than 256."""
    pixels = pixels_of(Image.fromarray(np.full((2, 3), value, np.uint16)), kind)
    assert pixels.shape == (2, 3, 3)
    np.testing.assert_allclose(pixels, value / 257, atol=0.5001)


def test_floating_point_greys_are_scaled() -> None:
    """Greys in [0, 1] become bytes; NaN and infinities have no brightness and are refused."""
    ramp = np.array([[0.0, 0.5, 1.0]], np.float32)
    assert pixels_of(Image.fromarray(ramp), "TIFF")[0, :, 0].tolist() == [0, 128, 255]
    for value in (np.nan, np.inf):
        with pytest.raises(ImageError, match="NaN or infinite"):
            pixels_of(
                Image.fromarray(np.where(ramp == 0.5, value, ramp).astype(np.float32)), "TIFF"
            )


@pytest.mark.parametrize(
    ("greys", "kind", "expected"),
    [
        ([0, 1], np.int32, [0, 1]),
        ([0, 100, 255], np.int32, [0, 100, 255]),
        ([0, 256, 65535], np.int32, [0, 1, 255]),
        ([0, 256, 256], np.int32, [0, 1, 1]),
        ([0, 2], np.float32, [0, 2]),
        ([0, 2, 255], np.float32, [0, 2, 255]),
        ([0, 257, 65535], np.float32, [0, 1, 255]),
    ],
)
def test_wide_greys_are_scaled_by_the_range_that_they_use(
    greys: list[int], kind: type[Any], expected: list[int]
) -> None:
    """Up to 255 they are bytes already, beyond that they have 16 bits."""
    image = ImageArtifact.from_pil(Image.fromarray(np.array([greys], kind)))
    assert image.pixels[0, :, 0].tolist() == expected


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_transparency_is_laid_over_white(kind: str) -> None:
    """RGBA: opaque stays, clear becomes white, half-clear is half way to white."""
    image = Image.new("RGBA", (3, 1))
    for x, alpha in enumerate((255, 0, 128)):
        image.putpixel((x, 0), (*RED, alpha))
    options = {"lossless": True} if kind == "WEBP" else {}
    assert pixels_of(image, kind, **options)[0].tolist() == [[*RED], [*WHITE], [255, 127, 127]]


def test_grey_with_transparency_is_laid_over_white() -> None:
    """LA: the same rule for greys."""
    image = Image.new("LA", (2, 1), (10, 255))
    image.putpixel((1, 0), (10, 0))
    assert pixels_of(image)[0].tolist() == [[10, 10, 10], [*WHITE]]


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_palettes_give_their_colors(kind: str) -> None:
    """A palette image is what its palette says; a transparent entry is white."""
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *GREEN])
    image.putpixel((1, 0), 1)
    assert pixels_of(image, kind)[0].tolist() == [[*RED], [*GREEN]]
    assert pixels_of(image, kind, transparency=1)[0].tolist() == [[*RED], [*WHITE]]


@pytest.mark.parametrize(("mode", "color"), [("RGB", RED), ("L", 7)])
def test_a_color_declared_transparent_is_white(mode: str, color: object) -> None:
    """PNGs without an alpha channel can name one transparent color."""
    image = Image.new(mode, (2, 1), 0)
    image.putpixel((0, 0), color)  # type: ignore[arg-type] # a color of the mode
    assert pixels_of(image, transparency=color)[0].tolist() == [[*WHITE], [0, 0, 0]]


def test_cmyk_jpegs_become_rgb() -> None:
    """Print colors: no ink is white, all magenta and yellow is red, all black is black."""
    for ink, color in [((0, 0, 0, 0), WHITE), ((0, 255, 255, 0), RED), ((0, 0, 0, 255), (0, 0, 0))]:
        pixels = pixels_of(Image.new("CMYK", (8, 8), ink), "JPEG", quality=95)
        np.testing.assert_allclose(pixels, np.broadcast_to(color, (8, 8, 3)), atol=3)


def test_bits_become_black_and_white() -> None:
    """1-bit images have two colors."""
    image = Image.new("1", (2, 1))
    image.putpixel((1, 0), 1)
    assert pixels_of(image)[0].tolist() == [[0, 0, 0], [*WHITE]]


@pytest.mark.parametrize(
    ("orientation", "turn"),
    [
        (1, lambda p: p),
        (2, lambda p: p[:, ::-1]),
        (3, lambda p: p[::-1, ::-1]),
        (4, lambda p: p[::-1]),
        (5, lambda p: p.transpose(1, 0, 2)),
        (6, lambda p: np.rot90(p, -1)),
        (7, lambda p: np.rot90(p.transpose(1, 0, 2), 2)),
        (8, np.rot90),
    ],
    ids=range(1, 9),
)
@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_photographs_are_turned_upright(kind: str, orientation: int, turn: object) -> None:
    """A camera that was held sideways says so in EXIF: the model sees what a person sees."""
    pixels = noise(4, 6)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if kind == "WEBP" else {}
    decoded = pixels_of(Image.fromarray(pixels), kind, exif=exif, **options)
    np.testing.assert_array_equal(decoded, turn(pixels))  # type: ignore[operator] # a lambda


def test_the_suffix_does_not_matter(tmp_path: Path) -> None:
    """A PNG that is called .jpg is the picture that it holds."""
    path = tmp_path / "photo.jpg"
    path.write_bytes(encoded(Image.fromarray(noise()), "PNG"))
    np.testing.assert_array_equal(read_image(path).pixels, noise())
