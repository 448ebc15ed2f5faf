"""A data set and models whose scores are set by hand, copied into the tests' projects.

A picture tells a sample's number and a level; the encoder turns both into a direction whose cosine
to that of level 1, which every start has, is the level, and to those of most other samples 0. So
what the describer says is the score, and chance gives next to nothing.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.sample import Dataset, DrawnImage, Sample

USUAL = 0.8
"""The level of a sample where no knob is turned."""

_FULL = 2**24 - 1
_MOST = 1000  # samples of a category
_PLACES = 97  # directions of samples; those whose numbers are so far apart share one
_GOLDEN = (5**0.5 - 1) / 2  # its multiples, modulo 1, fill [0, 1) evenly


def _draw(number: int, level: float) -> npt.NDArray[np.uint8]:
    """(2, 2, 3) uint8: the number, the level, and white, so that no picture is black."""
    values = (number, round(level * _FULL))
    row = [[value >> 16, value >> 8 & 255, value & 255] for value in values]
    return np.array([row, [[255] * 3] * 2], np.uint8)


def _read(image: Image.Image) -> tuple[int, float]:
    pixels = np.asarray(image.convert("RGB")).astype(int)
    number, level = ((p[0] << 16) + (p[1] << 8) + p[2] for p in pixels[0])
    return int(number), int(level) / _FULL


def load(n: int = 40, categories: Sequence[str] = ("one",)) -> Dataset:
    """So many samples of each category."""

    def start(number: int) -> ImageArtifact:
        return ImageArtifact(_draw(number, 1.0))

    samples = [
        Sample(f"{name}/{k:03}", (name,), image=DrawnImage(partial(start, place * _MOST + k)))
        for place, name in enumerate(categories)
        for k in range(n)
    ]
    ordered = tuple(sorted(samples, key=lambda sample: sample.id))
    return Dataset("scored", {"loader": "scored", "n": n}, ordered)


class Describer:
    """Says number and level of a sample: what the level was, times 0.8, less what is lost.

    drop: lost by every sample; or, as numbers with commas, by those of each category in order.
    spread: standard deviation of what is lost besides, given alike; evenly, so that the mean of
    many samples is not moved. chance: another draw of that; "seed" for another one with every seed.
    The file that CALLS in the environment names gets one letter for each input.
    """

    batch_size = 8

    def __init__(self, drop: str = "0", spread: str = "0", chance: str = "0") -> None:
        self.fingerprint = f"scored/1 {drop} {spread} {chance}"
        self.seeded = chance == "seed"
        self.drops = [float(part) for part in drop.split(",")]
        self.spreads = [float(part) for part in spread.split(",")]
        self.chance = chance

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """One text for each image."""
        if "CALLS" in os.environ:
            with Path(os.environ["CALLS"]).open("a") as log:
                log.write("x" * len(images))
        return [self._one(image, seed) for image, seed in zip(images, seeds, strict=True)]

    def _one(self, image: Image.Image, seed: int) -> str:
        number, level = _read(image)
        shift = random.Random(seed if self.seeded else self.chance).random()
        drop, spread = (
            every[min(number // _MOST, len(every) - 1)] for every in (self.drops, self.spreads)
        )
        score = level * USUAL - drop - spread * _even(number * _GOLDEN + shift)
        return f"{number} {min(1.0, max(0.0, score))!r}"


class Generator:
    """Draws the number and the level."""

    fingerprint, seeded = "scored/1", False

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Any]:
        """(2, 2, 3) uint8 for each text."""
        return [_draw(int(text.split()[0]), float(text.split()[1])) for text in texts]


class Encoder:
    """A direction whose cosine to that of level 1 of the same number is the level."""

    fingerprint = "scored/1"

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float64]:
        """(n, 98) float64."""
        return _directions([_read(image) for image in images])

    def encode_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """(n, 98) float64."""
        return _directions([(int(text.split()[0]), float(text.split()[1])) for text in texts])


def _even(turns: float) -> float:
    """The normal quantile of the turns' fraction."""
    return NormalDist().inv_cdf(min(max(turns % 1, 1e-6), 1 - 1e-6))


def _directions(pictures: Sequence[tuple[int, float]]) -> npt.NDArray[np.float64]:
    rows = np.zeros((len(pictures), _PLACES + 1))
    for row, (number, level) in zip(rows, pictures, strict=True):
        row[number % _PLACES] = level
        row[_PLACES] = (1 - level**2) ** 0.5
    return rows
