"""Images: one pixel format, an identity that no codec touches, storage without loss."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact, decode_image, encode_image
from pytest_cepbench.errors import ImageError
from tests.artifacts.files import encoded, noise

Pixels = npt.NDArray[np.uint8]

PIXELS = hnp.arrays(
    np.uint8,
    st.tuples(st.integers(1, 24), st.integers(1, 24), st.just(3)),
    elements=st.integers(0, 255),
)


@given(PIXELS)
def test_storage_is_lossless(pixels: Pixels) -> None:
    """Every pixel comes back as it was, whatever the shape."""
    image = ImageArtifact(pixels)
    back = decode_image(encode_image(image))
    np.testing.assert_array_equal(back.pixels, pixels)
    assert back.digest == image.digest


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((1, 16_383), b"RIFF"),
        ((16_383, 1), b"RIFF"),
        ((1, 16_384), b"\x89PNG"),
        ((16_384, 1), b"\x89PNG"),
    ],
)
def test_sides_that_webp_cannot_hold_are_kept_as_png(shape: tuple[int, int], kind: bytes) -> None:
    """WebP ends at 16,383 pixels; longer images are stored without loss all the same."""
    image = ImageArtifact(noise(*shape))
    data = encode_image(image)
    assert data.startswith(kind)
    np.testing.assert_array_equal(decode_image(data).pixels, image.pixels)


@settings(max_examples=30)
@given(PIXELS)
def test_identity_does_not_depend_on_the_codec(pixels: Pixels) -> None:
    """The same pixels have the same digest from any lossless file."""
    picture = Image.fromarray(pixels)
    files = [encoded(picture, kind) for kind in ("PNG", "BMP", "TIFF")]
    files.append(encoded(picture, "WEBP", lossless=True))
    assert {decode_image(data).digest for data in files} == {ImageArtifact(pixels).digest}


@given(PIXELS, PIXELS)
def test_images_share_a_digest_only_when_they_are_the_same(first: Pixels, second: Pixels) -> None:
    """Images that differ in a pixel or in shape have digests that differ."""
    same = ImageArtifact(first).digest == ImageArtifact(second).digest
    assert same == np.array_equal(first, second)


def test_the_shape_is_part_of_the_identity() -> None:
    """The same bytes in another shape are another picture."""
    pixels = noise(4, 6)
    shapes = [(4, 6, 3), (6, 4, 3), (24, 1, 3), (1, 24, 3)]
    assert len({ImageArtifact(pixels.reshape(shape)).digest for shape in shapes}) == 4


def test_every_pixel_is_part_of_the_identity() -> None:
    """Changing any one channel of any one pixel by one changes the digest."""
    pixels = noise(3, 4)
    digests = {ImageArtifact(pixels).digest}
    for place in np.ndindex(pixels.shape):
        other = pixels.copy()
        other[place] ^= 1
        digests.add(ImageArtifact(other).digest)
    assert len(digests) == 1 + pixels.size


def test_an_artifact_cannot_change() -> None:
    """Neither the array it was made of nor the Pillow image it gives reaches its pixels."""
    mine = noise()
    image = ImageArtifact(mine)
    digest = image.digest
    mine[:] = 0
    image.to_pil().paste((0, 0, 0), (0, 0, 5, 5))
    assert ImageArtifact(image.pixels).digest == digest
    with pytest.raises(ValueError, match="read-only"):
        image.pixels[0, 0, 0] = 1


def test_a_view_has_the_identity_of_its_copy() -> None:
    """Memory layout (flipped, strided, Fortran order) is no part of a picture."""
    pixels = noise()
    for view in (pixels[::-1], pixels[:, ::2], pixels[..., ::-1], np.asfortranarray(pixels)):
        assert ImageArtifact(view).digest == ImageArtifact(view.copy(order="C")).digest


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 1), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((2, 4, 4, 3), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros((4, 0, 3), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4, 3), np.int64),
        np.zeros((4, 4, 3), np.bool_),
    ],
    ids=lambda array: f"{array.shape}-{array.dtype}",
)
def test_anything_but_rgb_bytes_is_refused(array: Pixels) -> None:
    """What would need a guess to become pixels is an error that says what came."""
    with pytest.raises(ImageError, match="uint8 with no empty side, got") as caught:
        ImageArtifact(array)
    assert str(array.dtype) in str(caught.value)


def test_an_artifact_shows_its_size_and_digest() -> None:
    """In a failure's output an image is one short line, not its pixels."""
    image = ImageArtifact(noise(12, 16))
    assert image.size == (16, 12)
    assert repr(image) == f"<ImageArtifact 16x12 {image.digest[:12]}>"
