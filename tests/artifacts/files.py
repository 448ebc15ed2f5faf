"""Images and sounds as tests need them: encoded in memory, sound or spoilt."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import Sound


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The bytes of an image file."""
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def noise(height: int = 12, width: int = 16, seed: int = 0) -> npt.NDArray[np.uint8]:
    """(height, width, 3) pixels without any pattern."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def png_header(width: int, height: int) -> bytes:
    """A PNG of this size that ends where its pixels should begin."""
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", size) + png_chunk(b"IDAT", zlib.compress(b""))


def png_chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def wave(hertz: float, seconds: float, rate: int) -> npt.NDArray[np.float64]:
    """The samples of a sine of half of full scale."""
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def tone(hertz: float, seconds: float = 0.5, rate: int = 16_000) -> Sound:
    """The same as a sound."""
    return Sound(wave(hertz, seconds, rate).astype(np.float32), rate)
