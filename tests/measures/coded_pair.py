"""A pair that is wrong and true to itself: it calls every color by another's name, and draws back.

Texts never name the right color, pictures always show it: what compares pictures sees no loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import Scene, caption, parse_caption, parse_image, render
from pytest_cepbench.datasets.shapes.scene import COLORS, Color


class Coded:
    """A describer and a generator with a code of their own."""

    fingerprint = "coded/1"
    seeded = False

    def describe(
        self,
        images: Sequence[Image.Image],
        prompt: str,
        seeds: Sequence[int],
    ) -> list[str]:
        """The caption with every color's name replaced by the next one's."""
        scenes = (parse_image(ImageArtifact.from_pil(image)) for image in images)
        return [caption(_shifted(scene, 1)) for scene in scenes]

    def generate(
        self,
        texts: Sequence[str],
        seeds: Sequence[int],
    ) -> list[npt.NDArray[np.uint8]]:
        """The picture of what the code means, always with the same jitter."""
        return [render(_shifted(parse_caption(text), -1), 0).pixels for text in texts]


def _shifted(scene: Scene, by: int) -> Scene:
    def color(name: Color) -> Color:
        return COLORS[(COLORS.index(name) + by) % len(COLORS)]

    return Scene(tuple(replace(thing, color=color(thing.color)) for thing in scene.objects))


def pair() -> Coded:
    """The model in either role."""
    return Coded()
