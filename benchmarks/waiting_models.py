"""Models for clusters and devices, for `python:` specs: they wait in place of computing.

A generator can draw large images. A wait keeps no core busy, so several nodes or devices on one
machine do not disturb each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from benchmarks import cheap_models

_NOISE = 6  # levels: so much lies over the colors, as in a photograph


class _Calls:
    """Waits in place of computing, and notes each batch in the folder `log`.

    A line is the time when it began, when it ended, its node, and how many inputs it had; one that
    did not end has no line, but a file of its own is left with its beginning.
    """

    def __init__(self, wait: str, log: str) -> None:
        self._wait, self._log = float(wait), Path(log) if log else None

    @contextmanager
    def batch(self, count: int) -> Iterator[None]:
        """A batch of so many inputs; its results are made in here."""
        began = time.time()
        if self._log is not None:
            begun = self._log / f"begun-{os.getpid()}-{began:.6f}"
            begun.write_text(str(count))
        time.sleep(self._wait * count)
        yield
        if self._log is not None:
            with (self._log / f"done-{os.getpid()}").open("a") as lines:
                lines.write(f"{began} {time.time()} {count}\n")
            begun.unlink()


class Describer(cheap_models.Describer):
    """As the cheap one; takes `wait` seconds an image, in batches of `batch`, on a `device`."""

    def __init__(
        self, wait: str = "0", log: str = "", batch: str = "32", device: str = "cpu"
    ) -> None:
        super().__init__()
        self.batch_size, self.device = int(batch), device
        self._calls = _Calls(wait, log)

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """One text for each image."""
        with self._calls.batch(len(images)):
            return super().describe(images, prompt, seeds)


class Generator(cheap_models.Generator):
    """As the cheap one, on a canvas of `side` pixels, with a little noise on it; waits likewise."""

    def __init__(
        self,
        side: str = "16",
        wait: str = "0",
        log: str = "",
        batch: str = "32",
        device: str = "cpu",
    ) -> None:
        super().__init__()
        self.fingerprint = f"waiting/1 {side}"
        self.batch_size, self.device = int(batch), device
        self._side = int(side)
        self._calls = _Calls(wait, log)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
        """(side, side, 3) uint8 for each text."""
        factor = self._side // 16
        with self._calls.batch(len(texts)):
            return [
                image.repeat(factor, axis=0).repeat(factor, axis=1) ^ _noise(self._side)
                for image in super().generate(texts, seeds)
            ]


class Encoder(cheap_models.Encoder):
    """As the cheap one; waits likewise."""

    def __init__(
        self, wait: str = "0", log: str = "", batch: str = "32", device: str = "cpu"
    ) -> None:
        self.batch_size, self.device = int(batch), device
        self._calls = _Calls(wait, log)

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float32]:
        """(n, 768)."""
        with self._calls.batch(len(images)):
            return super().encode_images(images)


@cache
def _noise(side: int) -> npt.NDArray[np.uint8]:
    """(side, side, 3), small numbers."""
    return np.random.default_rng(side).integers(0, _NOISE, (side, side, 3), np.uint8)
