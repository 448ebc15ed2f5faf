"""Models without weights that tell, draw and compare the mean color of an image, and photos."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image


class Describer:
    """Says the color, off by as much as its seed and its loss say."""

    def __init__(self, loss: float) -> None:
        self.loss = loss
        self.fingerprint = f"describer {loss}"
        self.seeded = loss > 0

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """Three numbers for each image."""
        texts = []
        for image, seed in zip(images, seeds, strict=True):
            error = np.random.default_rng(seed).normal(size=3) * 40 * self.loss
            color = np.array(image.resize((1, 1)).getpixel((0, 0))) + error
            texts.append(" ".join(str(int(value)) for value in color.clip(0, 255)))
        return texts


class Generator:
    """Paints the three numbers."""

    fingerprint = "generator"
    seeded = False

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image]:
        """One color each."""
        colors = [tuple(map(int, text.split())) for text in texts]
        return [Image.new("RGB", (32, 32), color) for color in colors]


class Encoder:
    """The color, from the middle of the space."""

    fingerprint = "encoder"

    def encode_images(self, images: Sequence[Image.Image]) -> np.ndarray:
        """Three numbers for each image."""
        return np.array([np.asarray(image.resize((1, 1))).ravel() / 255 - 0.5 for image in images])

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """The same for all."""
        return np.ones((len(texts), 3))


class Blind(Encoder):
    """The same for every image."""

    fingerprint = "blind"

    def encode_images(self, images: Sequence[Image.Image]) -> np.ndarray:
        """Ones."""
        return np.ones((len(images), 3))


def describer(loss: str = "0.3") -> Describer:
    """The model under test."""
    return Describer(float(loss))


class Broken(Describer):
    """Fails when it is asked."""

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """Nothing."""
        raise RuntimeError("no weights")


def broken() -> Describer:
    """The model under test, where it cannot be asked."""
    return Broken(0)


generator, encoder, blind = Generator, Encoder, Blind


ROLES = ("--generator=python:color_models:generator", "--encoder=python:color_models:encoder")

MODEL = "--model=python:color_models:describer"


def make_photos(home: Path, counts: dict[str, int], name: str = "photos") -> Path:
    """Photographs by category, and the models. Returns their folder."""
    rng = np.random.default_rng(0)
    shutil.copy(__file__, home)
    for category, count in counts.items():
        folder = home / name / category
        folder.mkdir(parents=True)
        for number in range(count):
            color = tuple(int(value) for value in rng.integers(256, size=3))
            Image.new("RGB", (16, 16), color).save(folder / f"{number:02d}.png")
    return home / name
