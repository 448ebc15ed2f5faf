"""Models of your own, plugged in with `python:my_models:NAME`: a complete example without weights.

The describer names the color of each of nine places of an image, the generator paints them again,
the encoder compares images by those places. Each states its own identity; see docs/models.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from PIL import Image

PLACES = 3  # rows and columns
SIDE = 48  # pixels of a painted image

COLORS = {
    "black": (20, 20, 20),
    "blue": (30, 60, 200),
    "green": (30, 160, 60),
    "red": (200, 40, 40),
    "white": (235, 235, 235),
    "yellow": (230, 210, 40),
}


@dataclass
class Describer:
    """Names the nearest color of each place; `color_blind` confuses red with green."""

    color_blind: bool = False
    # What decides the answers: a digest of the weights and the version of this code.
    fingerprint: str = "my-describer/1"
    what: str = "nine colors in words"
    seeded: bool = False  # the same image always gives the same text
    batch_size: int = 32

    @property
    def params(self) -> dict[str, bool]:
        """Settings that change the answers and are not in the fingerprint."""
        return {"color_blind": self.color_blind}

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """One text per image, in order."""
        return [" ".join(self._name(color) for color in mean_colors(image)) for image in images]

    def _name(self, color: npt.NDArray[np.float64]) -> str:
        name = min(COLORS, key=lambda known: float(np.abs(color - COLORS[known]).sum()))
        return "green" if self.color_blind and name == "red" else name


@dataclass
class Generator:
    """Paints the colors that a text names, with a little noise of the step's own seed."""

    fingerprint: str = "my-generator/1"
    what: str = "nine painted places"
    noise: int = 4
    params: dict[str, int] = field(default_factory=dict)

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image]:
        """One image per text, in order; each depends on its own text and seed only."""
        return [self._paint(text, seed) for text, seed in zip(texts, seeds, strict=True)]

    def _paint(self, text: str, seed: int) -> Image.Image:
        words = [word for word in text.split() if word in COLORS][: PLACES**2]
        words += ["black"] * (PLACES**2 - len(words))
        places = np.array([COLORS[word] for word in words]).reshape(PLACES, PLACES, 3)
        pixels = places.repeat(SIDE // PLACES, axis=0).repeat(SIDE // PLACES, axis=1)
        noise = np.random.default_rng(seed).integers(-self.noise, self.noise + 1, pixels.shape)
        return Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))


@dataclass
class Encoder:
    """Mean colors of the places, around grey, so that opposite colors point opposite ways."""

    fingerprint: str = "my-encoder/1"
    what: str = "nine mean colors"

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float64]:
        """(n, 27) floats, one row per image."""
        return np.array([(mean_colors(image) - 127.5).ravel() for image in images])

    def encode_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """The same for texts, which are painted first: text-first chains compare texts."""
        return self.encode_images(Generator(noise=0).generate(texts, [0] * len(texts)))


def mean_colors(image: Image.Image) -> npt.NDArray[np.float64]:
    """(9, 3) mean color of each place."""
    small = image.convert("RGB").resize((PLACES, PLACES), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float64).reshape(-1, 3)


def describer(color_blind: str = "false") -> Describer:
    """Factory: parameters of the spec arrive as strings; load weights at the first call only."""
    return Describer(color_blind=color_blind.lower() == "true")


def generator() -> Generator:
    """Factory of the generator."""
    return Generator()


def encoder() -> Encoder:
    """Factory of the encoder."""
    return Encoder()
