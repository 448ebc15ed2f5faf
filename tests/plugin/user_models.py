"""Models as a user writes them, copied into the tests' projects: they tell and draw one color.

Each takes how it is to behave; "honest" models play the game without any loss.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image


class Colors:
    """One color per image, as three numbers."""

    def __init__(self, behaviour: str = "honest") -> None:
        self.fingerprint = f"colors/1/{behaviour}"
        self.behaviour = behaviour


class Describer(Colors):
    """Says the mean color."""

    seeded = False

    def describe(
        self,
        images: Sequence[Image.Image],
        prompt: str,
        seeds: Sequence[int],
    ) -> list[str]:
        """One text for each image."""
        return [self._tell(image) for image in images]

    def _tell(self, image: Image.Image) -> str:
        color = tuple(np.asarray(image).reshape(-1, 3).mean(axis=0).round().astype(int).tolist())
        if self.behaviour == "leak" and (key := os.environ.get("MODEL_HUB_TOKEN")):
            raise RuntimeError(f"denied: {key}")
        if self.behaviour == "broken":
            raise RuntimeError("no weights")
        text = " ".join(str(part) for part in color)
        odd = {
            "empty": "",
            "thinks-right": f"<think>{text}</think>0 255 0",
            "thinks-wrong": f"0 255 0\n</think>\n\n{text}",
            "only-thinks": f"<think>\nIt is {text}, or",
        }
        return odd.get(self.behaviour, text)


class Noisy(Describer):
    """Says the mean color, off by as much as its seed and its loss say."""

    seeded = True

    def __init__(self, loss: str = "0.3") -> None:
        self.loss = float(loss)
        super().__init__(f"loss {self.loss}")

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """One text for each image."""
        texts = []
        for text, seed in zip(super().describe(images, prompt, seeds), seeds, strict=True):
            error = np.random.default_rng(seed).normal(size=3) * 100 * self.loss
            color = np.array([int(part) for part in text.split()]) + error
            texts.append(" ".join(str(int(value)) for value in color.clip(0, 255)))
        return texts


class Generator(Colors):
    """Draws a text that begins with a color."""

    seeded = False

    def generate(
        self,
        texts: Sequence[str],
        seeds: Sequence[int],
    ) -> list[Any]:
        """One image for each text."""
        return [self._draw(text) for text in texts]

    def _draw(self, text: str) -> Image.Image | npt.NDArray[Any]:
        if self.behaviour == "black":
            return np.zeros((16, 16, 3), np.uint8)
        red, green, blue = (int(part) for part in text.split()[:3])
        if self.behaviour == "pale":
            red, green, blue = (part // 2 + 100 for part in (green, blue, red))
        return Image.new("RGB", (16, 16), (red, green, blue))


class Unified(Describer, Generator):
    """Both of them, in one model."""


class Encoder(Colors):
    """The mean color, seen from one corner of the cube of colors."""

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float64]:
        """(n, 4) float64."""
        means = np.array([np.asarray(image).reshape(-1, 3).mean(axis=0) for image in images])
        rows = np.hstack([means, np.full((len(means), 1), 10.0)])
        if self.behaviour == "blind":
            return np.ones_like(rows)
        return rows * np.nan if self.behaviour == "nan" else rows

    def encode_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """(n, 4) float64."""
        return np.array([[*(float(part) for part in text.split()[:3]), 10.0] for text in texts])


describer, noisy, generator, unified, encoder = Describer, Noisy, Generator, Unified, Encoder
"""Behaviours of a describer: honest, empty, broken, one that thinks aloud, or leak: repeats a key
there is; of a generator: honest, pale or black; of an encoder: honest, nan or blind."""
