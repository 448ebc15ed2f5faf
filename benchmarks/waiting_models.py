"""Models for clusters, for `python:` specs: they wait in place of computing, and draw large images.

A wait keeps no core busy, so several nodes on one machine do not disturb each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from benchmarks import cheap_models

_NOISE = 6  # levels: so much lies over the colors, as in a photograph


class Describer(cheap_models.Describer):
    """As the cheap one; takes `wait` seconds an image, and notes each batch in the folder `log`.

    A line is the time when it began, when it ended, its node, and how many images it had; one that
    did not end has no line, but a file of its own is left with its beginning.
    """

    def __init__(self, wait: str = "0", log: str = "", batch: str = "32") -> None:
        super().__init__()
        self.batch_size = int(batch)
        self._wait, self._log = float(wait), Path(log) if log else None

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """One text for each image."""
        began = time.time()
        if self._log is not None:
            begun = self._log / f"begun-{os.getpid()}-{began:.6f}"
            begun.write_text(str(len(images)))
        time.sleep(self._wait * len(images))
        texts = super().describe(images, prompt, seeds)
        if self._log is not None:
            with (self._log / f"done-{os.getpid()}").open("a") as lines:
                lines.write(f"{began} {time.time()} {len(images)}\n")
            begun.unlink()
        return texts


class Generator(cheap_models.Generator):
    """As the cheap one, on a canvas of `side` pixels, with a little noise on it."""

    def __init__(self, side: str = "16") -> None:
        super().__init__()
        self.fingerprint = f"waiting/1 {side}"
        self._side = int(side)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
        """(side, side, 3) uint8 for each text."""
        factor = self._side // 16
        return [
            image.repeat(factor, axis=0).repeat(factor, axis=1) ^ _noise(self._side)
            for image in super().generate(texts, seeds)
        ]


class Encoder(cheap_models.Encoder):
    """As the cheap one, the first `dimension` numbers of its vectors."""

    def __init__(self, dimension: str = "768") -> None:
        super().__init__()
        self.fingerprint = f"waiting/1 {dimension}"
        self._dimension = int(dimension)

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float32]:
        """(n, dimension)."""
        return super().encode_images(images)[:, : self._dimension]


@cache
def _noise(side: int) -> npt.NDArray[np.uint8]:
    """(side, side, 3), small numbers."""
    return np.random.default_rng(side).integers(0, _NOISE, (side, side, 3), np.uint8)
