"""Models whose chains fade by a known law, for a drift rate that is known before it is fitted.

Each description says how often it was said; the encoder turns that into an angle whose cosine to
the start is 0.6 * exp(-0.3 * generation) + 0.3, and 1 at the start itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Any

import numpy as np
from PIL import Image

RATE = 0.3
"""b of the law, per generation."""


class Fading:
    """A describer, generator and encoder: the picture's brightness counts the drawings."""

    fingerprint = "fading/1"
    seeded = False

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """How often the picture was drawn."""
        return [f"said {int(np.asarray(image).max())} times" for image in images]

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image]:
        """A picture that is one brighter than the text says; a start was never drawn."""
        return [Image.new("RGB", (4, 4), (_count(text) + 1,) * 3) for text in texts]

    def encode_texts(self, texts: Sequence[str]) -> Any:
        """(n, 2) unit vectors."""
        return np.array([_direction(2 * _count(text)) for text in texts])

    def encode_images(self, images: Sequence[Image.Image]) -> Any:
        """(n, 2) unit vectors."""
        return np.array([_direction(2 * int(np.asarray(image).max()) - 1) for image in images])


def _count(text: str) -> int:
    return int(text.split()[1]) if text.startswith("said ") else 0


def _direction(generation: int) -> tuple[float, float]:
    cosine = 1.0 if generation == 0 else 0.6 * exp(-RATE * generation) + 0.3
    return cosine, (1 - cosine * cosine) ** 0.5


def describer() -> Fading:
    """The model in one role."""
    return Fading()


def generator() -> Fading:
    """The model in another role."""
    return Fading()


def encoder() -> Fading:
    """The model that compares."""
    return Fading()
