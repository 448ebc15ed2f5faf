"""Models with a fault for the doctor to find, over scenes of the shapes world and plain photos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import Scene, SceneObject, caption, parse_image
from pytest_cepbench.datasets.shapes.scene import COLORS, SHAPES, SIZES
from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.protocols import Reply, Usage

_CALLS = count()


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


class NoisyEncoder(GreyEncoder):
    """Never gives the same vector twice."""

    def encode_images(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float64]:
        """(n, 256) float64."""
        exact = super().encode_images(images)
        noise = np.random.default_rng(next(_CALLS)).normal(size=exact.shape)
        blurred: npt.NDArray[np.float64] = exact + 0.5 * exact.std() * noise
        return blurred


class RestlessGenerator(Faulty):
    """Draws what it reads as brightness, and something else each time."""

    seeded = True

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image]:
        """One image of noise for each text."""
        draws = [np.random.default_rng(next(_CALLS)) for _ in texts]
        return [Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)) for rng in draws]


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


class PricedDescriber(Faulty):
    """Reads scenes exactly, and counts tokens as a server does."""

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[Reply]:
        """A caption for each image, of 100 tokens in, 10 out, for 0.02."""
        usage = Usage(requests=1, input_tokens=100, output_tokens=10, cost=0.02)
        texts = [caption(parse_image(ImageArtifact.from_pil(image))) for image in images]
        return [Reply(text, usage) for text in texts]
