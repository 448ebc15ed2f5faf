"""Models with a fault for the doctor to find, over scenes of the shapes world and plain photos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import Scene, SceneObject, caption
from pytest_cepbench.datasets.shapes.scene import COLORS, SHAPES, SIZES
from pytest_cepbench.errors import RoleError


class Faulty:
    """A model that says who it is."""

    seeded = False

    def __init__(self) -> None:
        self.fingerprint = f"{type(self).__name__}/1"


class GreyEncoder(Faulty):
    """Looks at how bright each part of an image is; exchanging channels changes nothing."""

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float64]:
        """(n, 256) float64."""
        small = [image.resize((16, 16), Image.Resampling.BOX) for image in images]
        return np.array(
            [np.asarray(pixels, np.float64).sum(axis=2).ravel() - 70 for pixels in small]
        )

    def encode_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Raise: it reads no texts."""
        raise RoleError("reads images only")


class BlindEncoder(GreyEncoder):
    """Has one vector for everything."""

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float64]:
        """(n, 2) float64."""
        return np.array([[1.0, 2.0]] * len(images))


class MonotoneDescriber(Faulty):
    """Has one answer for everything."""

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """The same scene for each image."""
        return ["one shape : small red circle top left"] * len(images)


class GuessingDescriber(Faulty):
    """Cannot read its images: what it says of each has nothing to do with what is there."""

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """A scene for each image, the same whenever it is asked."""
        digests = [ImageArtifact.from_pil(image).digest for image in images]
        draws = [np.random.default_rng(int(digest[:12], 16)) for digest in digests]
        return [caption(Scene(tuple(_objects(draw)))) for draw in draws]


def _objects(draw: np.random.Generator) -> Iterator[SceneObject]:
    for cell in sorted(draw.choice(9, size=3, replace=False).tolist()):
        size, color, shape = (int(draw.integers(len(words))) for words in (SIZES, COLORS, SHAPES))
        yield SceneObject(cell, SIZES[size], COLORS[color], SHAPES[shape])
