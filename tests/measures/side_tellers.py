"""Describers of a spot in a photograph, and encoders of the words that they use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

_WORDS = ("left", "right", "row", *"01234567")


class Teller:
    """Says in which row and on which side the brightest pixel is.

    sides: the words for the sides; none where it does not tell them.
    """

    def __init__(self, sides: Sequence[str]) -> None:
        self._sides = sides
        self.fingerprint = f"teller of {sides}"

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """A text for each image."""
        return [self._single(np.asarray(image.convert("L"), float)) for image in images]

    def _single(self, levels: Any) -> str:
        row, column = divmod(int(levels.argmax()), levels.shape[1])
        if not self._sides:
            return f"a spot in row {row}"
        return f"a spot on the {self._sides[int(column >= levels.shape[1] / 2)]} in row {row}"


class WordEncoder:
    """Counts of words, or one vector for every text."""

    def __init__(self, *, numb: bool) -> None:
        self._numb = numb
        self.fingerprint = f"words, numb: {numb}"

    def encode_texts(self, texts: Sequence[str]) -> Any:
        """(n, 11) float64."""
        if self._numb:
            return np.ones((len(texts), len(_WORDS)))
        return np.array([[text.split().count(word) for word in _WORDS] for text in texts], float)

    def encode_images(self, images: Sequence[Image.Image]) -> Any:
        """None of its images are compared."""
        raise NotImplementedError


def exact() -> Teller:
    """Tells both sides."""
    return Teller(("left", "right"))


def blind() -> Teller:
    """Takes right for left."""
    return Teller(("left", "left"))


def vague() -> Teller:
    """Tells no side."""
    return Teller(())


def words() -> WordEncoder:
    """Sees the words."""
    return WordEncoder(numb=False)


def numb() -> WordEncoder:
    """Sees nothing."""
    return WordEncoder(numb=True)
