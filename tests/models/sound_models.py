"""Models of a user's own that hear and make sounds, and some that say so in a wrong way."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pytest_cepbench.artifacts import Sound


@dataclass
class Ears:
    """A describer that says how long a sound is."""

    reads: Any = field(default_factory=lambda: {"sound", "text"})
    fingerprint: str = "ears/1"

    def describe(self, images: Sequence[Sound], prompt: str, seeds: Sequence[int]) -> list[str]:
        """The length of each."""
        return [
            f"{prompt}: {own.seconds:.2f} s, {seed}"
            for own, seed in zip(images, seeds, strict=True)
        ]


@dataclass
class Mouth:
    """A generator of steady sounds, as long as their texts."""

    makes: Any = "sound"
    fingerprint: str = "mouth/1"

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[tuple[Any, int]]:
        """Samples with their rate."""
        assert len(texts) == len(seeds)
        return [(np.full(100 * len(text), 0.25), 8_000) for text in texts]


@dataclass
class Ear:
    """An encoder of sounds and texts by their length."""

    fingerprint: str = "ear/1"

    def encode_sounds(self, sounds: Sequence[Sound]) -> np.ndarray[Any, Any]:
        """(n, 2)."""
        return np.array([[1.0, own.seconds] for own in sounds])

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """(n, 2)."""
        return np.array([[1.0, len(text)] for text in texts])

    def encode_images(self, images: Collection[object]) -> np.ndarray[Any, Any]:
        """(n, 2)."""
        return np.ones((len(images), 2))


def ears() -> Ears:
    """Hears."""
    return Ears()


def mouth() -> Mouth:
    """Speaks."""
    return Mouth()


def ear() -> Ear:
    """Hears and reads."""
    return Ear()


def one_word() -> Ears:
    """Names its kinds in one text."""
    return Ears("sound")


def nose() -> Ears:
    """Reads what nothing is made of."""
    return Ears({"smell"})


def writer() -> Mouth:
    """Makes texts, as describers do."""
    return Mouth("text")
