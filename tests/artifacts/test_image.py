"""Images and digests: one pixel format, identities that no codec touches, lossless storage."""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from pytest_cepbench.artifacts import (
    Failure,
    ImageArtifact,
    canonical_json,
    decode_image,
    digest_bytes,
    digest_json,
    digest_text,
    encode_image,
)
from pytest_cepbench.artifacts.modality import check_image
from pytest_cepbench.errors import ImageError, ModelError
from tests.artifacts.files import encoded, noise, png_chunk

Pixels = npt.NDArray[np.uint8]

PIXELS = hnp.arrays(
    np.uint8,
    st.tuples(st.integers(1, 24), st.integers(1, 24), st.just(3)),
    elements=st.integers(0, 255),
)


@given(PIXELS)
def test_storage_is_lossless_in_any_codec(pixels: Pixels) -> None:
    """Every pixel comes back as it was, whatever the shape; the same pixels have the same digest
    from any lossless file.
    """
    image = ImageArtifact(pixels)
    back = decode_image(encode_image(image))
    np.testing.assert_array_equal(back.pixels, pixels)
    assert back.digest == image.digest
    picture = Image.fromarray(pixels)
    files = [encoded(picture, kind) for kind in ("PNG", "BMP", "TIFF")]
    files.append(encoded(picture, "WEBP", lossless=True))
    assert {decode_image(data).digest for data in files} == {image.digest}


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


def test_an_artifact_cannot_change_and_is_its_pixels() -> None:
    """Neither the array it was made of nor the Pillow image it gives reaches them. What would need
    a guess to become pixels is an error that says what came.
    """
    mine = noise()
    image = ImageArtifact(mine)
    digest = image.digest
    assert repr(image) == f"<ImageArtifact 16x12 {digest[:12]}>"
    mine[:] = 0
    image.to_pil().paste((0, 0, 0), (0, 0, 5, 5))
    assert ImageArtifact(image.pixels).digest == digest
    with pytest.raises(ValueError, match="read-only"):
        image.pixels[0, 0, 0] = 1
    # Memory layout (flipped, strided, Fortran order) is no part of a picture.
    pixels = noise()
    for view in (pixels[::-1], pixels[:, ::2], pixels[..., ::-1], np.asfortranarray(pixels)):
        assert ImageArtifact(view).digest == ImageArtifact(view.copy(order="C")).digest
    # The same bytes in another shape are another one.
    shapes = [(12, 16, 3), (16, 12, 3), (192, 1, 3), (1, 192, 3)]
    assert len({ImageArtifact(pixels.reshape(shape)).digest for shape in shapes}) == 4
    others = [np.zeros(shape, np.uint8) for shape in ((4, 4), (4, 4, 4), (0, 4, 3))]
    others += [np.zeros((4, 4, 3), kind) for kind in (np.float32, np.bool_)]
    for array in others:
        with pytest.raises(ImageError, match=f"uint8 with no empty side, got.*{array.dtype}"):
            ImageArtifact(array)


RED, GREEN, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (255, 255, 255), (0, 0, 0)


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


@pytest.mark.parametrize(
    ("greys", "kind", "expected"),
    [
        ([0, 0.5, 1], np.float32, [0, 128, 255]),
        ([0, 1], np.int32, [0, 1]),
        ([0, 256, 65535], np.int32, [0, 1, 255]),
        ([0, 1.05], np.float32, [0, 1]),
        ([0, 2, 255], np.float32, [0, 2, 255]),
        ([0, 257, 65535], np.float32, [0, 1, 255]),
        ([-3, 65535, 70000], np.int32, [0, 255, 255]),
    ],
)
def test_wide_greys_are_scaled_by_the_range_that_they_use(
    greys: list[float], kind: type[Any], expected: list[int]
) -> None:
    """Floats up to 1 are shares of white, and up to 255 greys are bytes already, beyond that they
    have 16 bits. NaN and infinities have no brightness and are refused.
    """
    picture = Image.fromarray(np.array([greys], kind))
    picture.info["transparency"] = (1, 2, 3)  # of the colors that were converted: no grey
    for pixels in (ImageArtifact.from_pil(picture).pixels, pixels_of(picture, "TIFF")):
        assert pixels[0, :, 0].tolist() == expected
    for value in (np.nan, np.inf):
        with pytest.raises(ImageError, match="NaN or infinite"):
            pixels_of(Image.fromarray(np.array([[0, value, 1]], np.float32)), "TIFF")


def _image(mode: str, *colors: Any, palette: Sequence[int] = ()) -> Image.Image:
    """A row of pixels."""
    image = Image.new(mode, (len(colors), 1))
    if palette:
        image.putpalette(palette)
    for x, color in enumerate(colors):
        image.putpixel((x, 0), color)
    return image


CLEAR = _image("RGBA", *((*RED, alpha) for alpha in (255, 0, 128)))
PALETTE = _image("P", 0, 1, palette=[*RED, *GREEN])


@pytest.mark.parametrize(
    ("image", "kind", "options", "expected"),
    [
        # Transparency is laid over white: opaque stays, half-clear is half way to white.
        (CLEAR, "PNG", {}, [RED, WHITE, (255, 127, 127)]),
        (CLEAR, "WEBP", {"lossless": True}, [RED, WHITE, (255, 127, 127)]),
        (CLEAR, "TIFF", {}, [RED, WHITE, (255, 127, 127)]),
        (_image("LA", (10, 255), (10, 0)), "PNG", {}, [(10, 10, 10), WHITE]),
        # A palette image is what its palette says; a transparent entry is white.
        (PALETTE, "PNG", {}, [RED, GREEN]),
        (PALETTE, "GIF", {}, [RED, GREEN]),
        (PALETTE, "PNG", {"transparency": 1}, [RED, WHITE]),
        (PALETTE, "GIF", {"transparency": 1}, [RED, WHITE]),
        # Without an alpha channel PNGs can name one transparent color.
        (_image("RGB", RED, BLACK), "PNG", {"transparency": RED}, [WHITE, BLACK]),
        (_image("L", 7, 0), "PNG", {"transparency": 7}, [WHITE, BLACK]),
        (_image("1", 0, 1), "PNG", {}, [BLACK, WHITE]),
    ],
)
def test_every_kind_of_pixel_becomes_rgb(
    image: Image.Image, kind: str, options: dict[str, Any], expected: list[tuple[int, int, int]]
) -> None:
    """By one rule for each, in whatever file it comes."""
    assert pixels_of(image, kind, **options)[0].tolist() == [list(color) for color in expected]


@pytest.mark.parametrize(
    ("header", "row", "key", "expected"),
    [
        (b"\x10\x02", "123456789abc 000000000000", "123456789abc", [WHITE, BLACK]),
        (b"\x10\x00", "1234 12ff", "1234", [WHITE, (19, 19, 19)]),
        (b"\x04\x00", "5a", "0005", [WHITE, (170, 170, 170)]),
    ],
)
def test_the_transparent_color_of_a_png_has_the_steps_of_its_pixels(
    header: bytes, row: str, key: str, expected: list[tuple[int, int, int]]
) -> None:
    """Pillow gives pixels of 8 bits, and the color as it is stored, in 4 bits or 16.

    header: bits and kind of its pixels.
    """
    chunks = {
        b"IHDR": b"\0\0\0\2\0\0\0\1" + header + bytes(3),
        b"tRNS": bytes.fromhex(key),
        b"IDAT": zlib.compress(b"\0" + bytes.fromhex(row)),
        b"IEND": b"",
    }
    file = b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in chunks.items())
    assert decode_image(file).pixels[0].tolist() == [list(color) for color in expected]


def test_cmyk_jpegs_become_rgb() -> None:
    """Print colors: no ink is white, all magenta and yellow is red, all black is black."""
    for ink, color in [((0, 0, 0, 0), WHITE), ((0, 255, 255, 0), RED), ((0, 0, 0, 255), BLACK)]:
        pixels = pixels_of(Image.new("CMYK", (8, 8), ink), "JPEG", quality=95)
        np.testing.assert_allclose(pixels, np.broadcast_to(color, (8, 8, 3)), atol=3)


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
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_photographs_are_turned_upright(kind: str, orientation: int, turn: object) -> None:
    """A camera that was held sideways says so in EXIF: the model sees what a person sees.

    Also where another tag is not of its type.
    """
    pixels = noise(4, 6)
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "him", orientation
    sound = exif.tobytes()
    spoilt = sound.replace(b"\x01\x0f\0\2\0\0\0\4", b"\x01\x0f\0\x0b\0\0\0\1")
    assert spoilt != sound
    options = {"lossless": True} if kind == "WEBP" else {}
    for tags in (sound,) if kind == "TIFF" else (sound, spoilt):  # Pillow writes no such TIFF
        data = encoded(Image.fromarray(pixels), kind, exif=tags, **options)
        opened = ImageArtifact.from_pil(Image.open(io.BytesIO(data)))
        for decoded in (decode_image(data), opened):
            np.testing.assert_array_equal(decoded.pixels, turn(pixels))  # type: ignore[operator] # a lambda


def test_images_come_in_three_forms() -> None:
    """Bytes, floats in [0, 1] and Pillow images of the same picture are the same artifact.

    Floats that a decoder overshoots are clipped. Anything else is a wrong plug-in, not a failed
    sample.
    """
    pixels = noise()
    forms: list[Any] = [
        pixels,
        Image.fromarray(pixels),
        *(pixels / f(255) for f in (np.float32, np.float64)),
    ]
    for form in forms:
        checked = check_image(form)
        assert isinstance(checked, ImageArtifact)
        np.testing.assert_array_equal(checked.pixels, pixels)
    checked = check_image(np.array([[[-0.2, 0.5, 1.3]]]))
    assert isinstance(checked, ImageArtifact)
    assert checked.pixels.tolist() == [[[0, 128, 255]]]
    for value in (None, "a text", [[1, 2, 3]], b"\x89PNG"):
        with pytest.raises(ModelError, match=rf"this one returned {type(value).__name__}"):
            check_image(value)


def test_a_picture_that_is_none_is_a_failure() -> None:
    """Half-precision decoders overflow, and one pixel is enough; black is what safety checkers
    give, and one other pixel makes it a picture. Floats on the scale of bytes would all be white if
    they were clipped to [0, 1], a worse model's too. Nothing is guessed of other shapes.
    """
    for kind, value in product((np.float16, np.float32), (np.nan, np.inf, -np.inf)):
        pixels: Any = np.full((4, 4, 3), 0.5, kind)
        pixels[1, 2, 0] = value
        assert check_image(pixels) == Failure(
            "nan-image", "1 of 48 pixel values are NaN or infinite"
        )
    black = np.zeros((4, 4, 3), np.uint8)
    for form in (black, Image.fromarray(black), black.astype(np.float32)):
        assert check_image(form) == Failure("blank-image", "every pixel is black")
    black[0, 0, 2] = 1
    assert isinstance(check_image(black), ImageArtifact)
    pixels = noise().astype(np.float32)
    reach = f"pixels reach {pixels.max():g}, [0, 1] is expected"
    assert check_image(pixels) == Failure("bad-image", reach)
    white = np.full((8, 8, 3), 1.1, np.float32)  # some decoders overshoot, in places by far
    white[0, 0] = 9.0
    clipped = check_image(white)
    assert isinstance(clipped, ImageArtifact)
    assert (clipped.pixels == 255).all()
    shapes: list[Any] = [np.ones(shape, np.uint8) for shape in ((4, 4), (3, 4, 4), (0, 4, 3))]
    for value in (*shapes, np.full((4, 4, 3), None)):
        checked = check_image(value)
        assert isinstance(checked, Failure)
        assert checked.kind == "bad-image"
        assert str(value.shape) in checked.detail


ANY_TEXT = st.text(st.characters(codec=None), max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def test_digests_never_change() -> None:
    """Stores and baselines hold digests: a change of any of them makes all of those worthless."""
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    assert [
        digest_bytes(b"abc"),
        digest_text("abc"),
        digest_json({"b": [1, 2.5, None], "a": "\u00e9"}),
        ImageArtifact(pixels).digest,
    ] == [
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "913e2cec540f72fbae8c1ce3c2e393214917f26b602bd937e7b0d1afa11fce12",
        "84afbf1d4853005f9dd0c81cb1819b53ce86978340764c062160f6e8356665de",
        "bd8da236a1d3d2de1704684a562f09a53cf2834cc14135d0ddb11dca90b6e857",
    ]


@given(st.binary(max_size=60))
def test_the_kinds_have_digests_of_their_own(data: bytes) -> None:
    """The same bytes as a text, as JSON, as an image and as bytes are four different things."""
    text = data.decode("latin-1")
    pixels = np.frombuffer(data.ljust(60, b"\0"), np.uint8).reshape(4, 5, 3)
    digests = {
        digest_bytes(data),
        digest_text(text),
        digest_json(text),
        ImageArtifact(pixels).digest,
    }
    assert len(digests) == 4


@given(st.dictionaries(ANY_TEXT, JSON, max_size=5))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    """A structure is the same however its tables were filled."""
    backwards = dict(reversed(list(value.items())))
    assert canonical_json(value) == canonical_json(backwards)
    assert digest_json(value) == digest_json(backwards)


def test_only_numbers_and_built_in_types_enter_a_key() -> None:
    """NaN differs from itself; nothing is named by its repr, which may hold an address."""
    for value in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            digest_json({"temperature": value})
    for thing in (object(), b"bytes", {1, 2}, np.float32(0.5), np.arange(2)):
        with pytest.raises(TypeError, match="not JSON serializable"):
            digest_json([thing])
