"""Images: decoding with limits, one pixel format, lossless storage.

An image is its 8-bit RGB pixels. Files are turned upright by their EXIF orientation, transparency
is laid over white, 16-bit greys are scaled to 8 bits, palettes and CMYK are converted by Pillow.
Animations and files that are not safe to decode (decompression bombs) are refused.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

# Decoders are imported here: Pillow imports them at the first image, and where no file handle is
# left then, it takes whole images for files of a format that it does not know.
from PIL import (  # noqa: F401
    BmpImagePlugin,
    ExifTags,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    MpoImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)
from PIL import __version__ as _pillow

from pytest_cepbench.errors import ArtifactError, ImageError, UnreadError
from pytest_cepbench.files import open_regular, tells_of_file

MAX_PIXELS = 89_478_485
"""Largest image that is decoded, in pixels: Pillow's own warning limit (a quarter GiB of RGB)."""

MOST_BYTES = 8 * MAX_PIXELS + 2**20
"""Largest file that is decoded, in bytes: four channels of 16 bits for every pixel, and headers."""

try:
    from PIL import AvifImagePlugin
except ImportError:
    AVIF = False
else:
    AVIF = bool(AvifImagePlugin.SUPPORTED)
"""Whether AVIF can be decoded: Pillow brings its decoder from 11.3 on."""

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", *(("AVIF",) if AVIF else ()))
"""Formats that are decoded; Pillow's rarer decoders (PSD, EPS, ...) are not used."""

DECODER = f"3 pillow/{_pillow}"
"""Version of the rules above and of the decoders, on which remembered digests of pixels depend."""

_KEY_STEPS = {"L;2": 85, "L;4": 17, "RGB;16B": 1 / 256}
"""Pixels of PNGs that Pillow scales -> by what. The one transparent color it leaves as stored."""

_PNG = b"\x89PNG\r\n\x1a\n"

_REMARKS = {b"tEXt", b"zTXt", b"iTXt", b"iCCP"}
"""Chunks of PNG whose contents Pillow unpacks to a megabyte at most, and raises above."""

_WEBP_MAX_SIDE = 16383  # a limit of the WebP format; larger images are stored as PNG

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Orientation in EXIF -> what makes the image upright."""

_DECODING_BYTES = 24  # for a pixel; libwebp 1.6 and Pillow 13 take 21 together


@dataclass(frozen=True, eq=False, repr=False)
class ImageArtifact:
    """One immutable image.

    pixels: (height, width, 3) uint8, read-only, at most `MAX_PIXELS`.
    Raises ImageError when constructed from anything else.
    """

    pixels: npt.NDArray[np.uint8]

    def __post_init__(self) -> None:
        shape, dtype = self.pixels.shape, self.pixels.dtype
        if len(shape) != 3 or shape[2] != 3 or 0 in shape or dtype != np.uint8:
            raise ImageError(
                f"an image is (height, width, 3) uint8 with no empty side, got {shape} {dtype}"
            )
        if shape[0] * shape[1] > MAX_PIXELS:  # no store could read it again
            raise ImageError(f"{shape[1]} x {shape[0]} pixels; the limit is {MAX_PIXELS:,} pixels")
        pixels = np.ascontiguousarray(self.pixels)
        if pixels.flags.writeable:
            pixels = pixels.copy()
            pixels.flags.writeable = False
        object.__setattr__(self, "pixels", pixels)

    def __repr__(self) -> str:
        width, height = self.size
        return f"<ImageArtifact {width}x{height} {self.digest[:12]}>"

    @cached_property
    def digest(self) -> str:
        """SHA-256 over size and pixels: the same whatever file or codec the image came from."""
        height, width, _ = self.pixels.shape
        hasher = sha256(f"image\0{width}x{height}\0".encode())
        hasher.update(self.pixels.data)
        return hasher.hexdigest()

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels."""
        height, width, _ = self.pixels.shape
        return width, height

    @property
    def nbytes(self) -> int:
        """In memory."""
        return self.pixels.nbytes

    def to_pil(self) -> Image.Image:
        """A Pillow RGB image; changing it does not change the artifact."""
        return Image.fromarray(self.pixels)

    @classmethod
    def from_pil(cls, image: Image.Image) -> ImageArtifact:
        """Any Pillow image as upright 8-bit RGB (see the module's text for the rules)."""
        image.load()  # which turns some files upright by itself
        try:
            turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
        except (SyntaxError, ValueError, struct.error):  # EXIF that cannot be read says nothing
            turn = None
        # Not by `ImageOps.exif_transpose`, which fails where it cannot write the other tags anew.
        upright = image if turn is None else image.transpose(turn)
        return cls(np.asarray(_to_rgb(upright), dtype=np.uint8))


def decode_image(data: bytes) -> ImageArtifact:
    """The image in these bytes.

    Raises ImageError for what is no image, is cut off, is animated, or has more than `MAX_PIXELS`;
    UnreadError where the memory does not suffice.
    """
    return _decode(io.BytesIO(data))


def read_image(path: Path) -> ImageArtifact:
    """The image in a file; the rules and errors of `decode_image`, and those of `reading_file`."""
    with reading_file(path), open_regular(path, MOST_BYTES) as stream:
        return _decode(stream)


@contextmanager
def reading_file(where: object, refusal: type[ArtifactError] = ImageError) -> Iterator[None]:
    """Turn errors of reading into a refusal, where there is no file that could hold an artifact,
    and UnreadError, which names the place, where the system could not read it.
    """
    try:
        yield
    except OSError as error:
        if tells_of_file(error):
            raise refusal(f"cannot be read: {error.strerror or error}") from error
        raise UnreadError(f"{where} could not be read: {error.strerror or error}") from error
    except (UnreadError, MemoryError) as error:
        raise UnreadError(
            f"{where} could not be read: {str(error) or 'no memory is left'}"
        ) from error


def encode_image(image: ImageArtifact) -> bytes:
    """Lossless bytes: WebP (method 0, effort 0: fast, smaller than PNG), PNG past 16,383 pixels."""
    stream = io.BytesIO()
    if max(image.size) > _WEBP_MAX_SIDE:
        image.to_pil().save(stream, "PNG", compress_level=1)
    else:
        image.to_pil().save(stream, "WEBP", lossless=True, method=0, quality=0)
    return stream.getvalue()


class _CutOffRefused:
    """Has Pillow refuse images that are cut off while any thread decodes here.

    Training code often has it fill them up instead, in all of its process.
    """

    def __init__(self) -> None:
        self._lock, self._decoding, self._fills_up = Lock(), 0, False

    def __enter__(self) -> None:
        with self._lock:
            asked = ImageFile.LOAD_TRUNCATED_IMAGES
            self._fills_up = asked or (self._fills_up and self._decoding > 0)
            ImageFile.LOAD_TRUNCATED_IMAGES = False
            self._decoding += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._decoding -= 1
            if not self._decoding:
                ImageFile.LOAD_TRUNCATED_IMAGES |= self._fills_up


_CUT_OFF_REFUSED = _CutOffRefused()


def _decode(stream: BinaryIO) -> ImageArtifact:
    try:
        # No filter of warnings is set: on threads that would undo those of the process.
        with _CUT_OFF_REFUSED, Image.open(stream, formats=FORMATS) as image:
            _check_header(image)
            step = _KEY_STEPS.get(str(image.tile[0][3])) if image.tile else None
            if step is not None and (key := image.info.get("transparency")) is not None:
                scaled = [int(value * step) for value in np.ravel(key).tolist()]
                image.info["transparency"] = tuple(scaled) if isinstance(key, tuple) else scaled[0]
            return ImageArtifact.from_pil(image)
    except ImageError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(
            f"too large to decode ({error}); the limit is {MAX_PIXELS:,} pixels"
        ) from error
    except UnidentifiedImageError as error:
        raise ImageError(f"not an image of a known format ({', '.join(FORMATS)})") from error
    except Exception as error:
        if getattr(error, "errno", None) is not None:  # of the stream: decoders have no number
            raise
        if isinstance(error, MemoryError | ImportError) or _lacks_memory(stream, error):
            raise UnreadError("no memory is left to decode it") from error
        bare = _without_remarks(stream) if isinstance(error, ValueError) else None
        if bare is not None:
            return _decode(bare)
        # Pillow's decoders raise OSError, SyntaxError, ValueError, struct.error and others on
        # damaged files: each means that these bytes are no usable image.
        raise ImageError(f"damaged: {error}") from error


def _without_remarks(stream: BinaryIO) -> BinaryIO | None:
    """A PNG without its texts and color profile; None where it has none, or is no PNG.

    Workflows, prompts and thumbnails of many megabytes are kept there, beside sound pixels.
    """
    stream.seek(0)
    if stream.read(len(_PNG)) != _PNG:
        return None
    bare, dropped = io.BytesIO(), False
    bare.write(_PNG)
    while len(head := stream.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        if kind in _REMARKS:
            stream.seek(length + 4, io.SEEK_CUR)
            dropped = True
        else:
            bare.write(head + stream.read(length + 4))
    return bare if dropped else None


def _lacks_memory(stream: BinaryIO, error: Exception) -> bool:
    """Whether the image could not be decoded for want of memory.

    libwebp reports that as it reports damage, so what it needs is asked for again, all at once.
    """
    stream.seek(0)
    head = stream.read(25)
    if head[8:12] != b"WEBP":
        return "out of memory" in str(error)  # the words of Pillow's own decoders
    pixels = MAX_PIXELS
    if head[12:16] == b"VP8L":  # lossless, as the store writes them: two sides of 14 bits
        bits = int.from_bytes(head[21:25], "little")
        pixels = min(pixels, ((bits & 0x3FFF) + 1) * ((bits >> 14 & 0x3FFF) + 1))
    try:
        np.empty(_DECODING_BYTES * pixels, np.uint8)
    except MemoryError:
        return True
    return False


def _check_header(image: Image.Image) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"too large to decode: {width} x {height}; the limit is {MAX_PIXELS:,} pixels"
        )
    frames = getattr(image, "n_frames", 1)
    # MPO is a JPEG with previews appended by cameras; its first frame is the photograph.
    if frames > 1 and image.format != "MPO":
        raise ImageError(f"animated or multi-page ({frames} frames): save the frame that is meant")


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I") or image.mode == "F":
        # Scaled to 8 bits: Pillow's own convert() clips at 255 instead.
        values = np.asarray(image)
        scaled = values.astype(np.float64)
        if not np.isfinite(scaled).all():
            raise ImageError("pixels are NaN or infinite")
        top = 65535.0 if scaled.max(initial=0) > 255 or values.dtype.itemsize == 2 else 255.0
        if values.dtype.kind == "f" and scaled.max(initial=0) <= 1.0:
            top = 1.0
        greys = np.rint(scaled / top * 255).clip(0, 255).astype(np.uint8)
        if isinstance(key := image.info.get("transparency"), int):  # a grey of a PNG
            greys[values == key] = 255
        return Image.fromarray(greys).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    return image.convert("RGB")
