"""Encoders that see the same pictures differently, and a suite in which they have the word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tests.plugin import scored

HERE = "python:tests.evaluation.several_encoders:Eye"


class Eye:
    """Sees the level of a picture as 0.8 + gain * (level - 0.8); of level 1, a start's, as it is.

    gain: 1 sees what is lost, 0 nothing of it, -1 a gain. blind: one vector for all, where it is
    not empty. mark: tells encoders apart that see alike.
    """

    def __init__(self, gain: str = "1", blind: str = "", mark: str = "") -> None:
        self.fingerprint = f"eye/1 {gain} {blind} {mark}"
        self.gain, self.blind = float(gain), bool(blind)

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float64]:
        """(n, 98) float64."""
        if self.blind:
            return np.ones((len(images), 98))
        return scored._directions([self._seen(*scored._read(image)) for image in images])

    def encode_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """(n, 98) float64."""
        levels = [(int(text.split()[0]), float(text.split()[1])) for text in texts]
        return scored._directions([self._seen(*level) for level in levels])

    def _seen(self, number: int, level: float) -> tuple[int, float]:
        if level == 1.0:
            return number, level
        return number, min(0.999, max(0.0, scored.USUAL + self.gain * (level - scored.USUAL)))


def metrics(*gains: float, gate: str = "agree = 2\n", metric: str = "gc", **rest: Any) -> str:
    """The tables of a suite whose metric `gc` is judged by an encoder of each gain.

    The first of them is `encoder`, the suite's own. gate: of `[gate]`. rest: further encoders, name
    -> query.
    """
    queries = {f"eye{n}": f"gain={gain}&mark={n}" for n, gain in enumerate(gains[1:], 1)} | rest
    specs = "".join(f'{name} = "{HERE}?{query}"\n' for name, query in queries.items())
    names = ", ".join(f'"{name}"' for name in ("encoder", *queries))
    return f"[encoders]\n{specs}[metrics.{metric}]\nencoders = [{names}]\n[gate]\n{gate}"
