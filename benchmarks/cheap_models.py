"""Models that cost next to nothing, for `python:` specs: an image is 4 x 4 fields of color.

    python -m benchmarks.cheap_models FOLDER 1284 13    # seed images for them, in 13 categories

A describer with `wait=SECONDS` takes so long for each image, and keeps no core busy meanwhile.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from benchmarks.whole_runs import DIMENSION

_FIELDS = 4
_SIDE = 16  # pixels


def write_images(folder: Path, count: int, categories: int) -> None:
    """So many seed images as PNG files in so many sub-folders."""
    random = np.random.default_rng(count)
    for number in range(count):
        path = folder / f"c{number % categories:04}" / f"{number:06}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = random.integers(0, 256, (_FIELDS, _FIELDS, 3), np.uint8)
        Image.fromarray(_spread(fields)).save(path, compress_level=1)


def _spread(fields: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """(16, 16, 3)."""
    return fields.repeat(_SIDE // _FIELDS, axis=0).repeat(_SIDE // _FIELDS, axis=1)


def _fields(image: Image.Image) -> npt.NDArray[np.uint8]:
    """(4, 4, 3), the color in the middle of each field."""
    pixels = np.asarray(image.convert("RGB"))
    step = pixels.shape[0] // _FIELDS
    return pixels[step // 2 :: step, step // 2 :: step]


class Describer:
    """Writes the colors down; of each step of training it sees some of them a little wrong."""

    batch_size = 32
    seeded = False

    def __init__(self, step: str = "1", wait: str = "0") -> None:
        self.fingerprint = f"cheap/1 {step}"
        self._step, self._seconds = int(step), float(wait)

    def describe(
        self,
        images: Sequence[Image.Image],
        prompt: str,  # noqa: ARG002 - a describer is given both
        seeds: Sequence[int],  # noqa: ARG002
    ) -> list[str]:
        """One text for each image."""
        time.sleep(self._seconds * len(images))
        return [self._one(_fields(image)) for image in images]

    def _one(self, fields: npt.NDArray[np.uint8]) -> str:
        noise = np.random.default_rng([self._step, *fields.ravel().tolist()])
        seen = fields + noise.normal(0, 10, fields.shape)
        return seen.clip(0, 255).astype(np.uint8).tobytes().hex()


class Generator:
    """Draws what is written."""

    batch_size = 32
    fingerprint, seeded = "cheap/1", False

    def generate(
        self,
        texts: Sequence[str],
        seeds: Sequence[int],  # noqa: ARG002 - a generator is given them
    ) -> list[npt.NDArray[np.uint8]]:
        """(16, 16, 3) uint8 for each text."""
        fields = [np.frombuffer(bytes.fromhex(text), np.uint8).reshape(4, 4, 3) for text in texts]
        return [_spread(field) for field in fields]


class Encoder:
    """Vectors whose distances are those of the colors, the first `dimension` numbers of them."""

    batch_size = 32

    def __init__(self, dimension: str = f"{DIMENSION}") -> None:
        self.fingerprint, self._dimension = f"cheap/1 {dimension}", int(dimension)

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float32]:
        """(n, dimension)."""
        return _vectors([_fields(image).ravel() for image in images])[:, : self._dimension]

    def encode_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """(n, dimension)."""
        colors = [np.frombuffer(bytes.fromhex(text), np.uint8) for text in texts]
        return _vectors(colors)[:, : self._dimension]


def _vectors(colors: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
    centred = np.stack(colors).astype(np.float32) / np.float32(127.5) - np.float32(1)
    # The cosine gives them a spread in all directions, as real features have, not in 48.
    return np.cos(centred @ _directions()).astype(np.float32)


@cache
def _directions() -> npt.NDArray[np.float32]:
    """(48, 768)."""
    random = np.random.default_rng(0)
    return random.standard_normal((3 * _FIELDS**2, DIMENSION)).astype(np.float32)


if __name__ == "__main__":
    write_images(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
