"""Known distortions of images and texts: what an encoder has to notice, as pure functions.

Each gives the same result for the same input on every machine, up to the resampling of Pillow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from pytest_cepbench.artifacts import ImageArtifact

A = TypeVar("A", ImageArtifact, str)

Pixels = npt.NDArray[np.uint8]

FAINT_BLUR, MIDDLE_BLUR, STRONG_BLUR = 1 / 256, 1 / 64, 1 / 16
"""Standard deviations of the blurs, as shares of the image's shorter side."""

CROP_SIDE = 0.7
"""Of each side: what the crop keeps, about half of the area, brought back to the image's size."""

COVERED_SIDE = 1 / 3
"""Of each side: what the covered region takes, a ninth of the area."""

_WORD = re.compile(r"\w[\w'-]*")


@dataclass(frozen=True)
class Distortion(Generic[A]):
    """One distortion.

    name: in tables.
    unnoticed: what it is that an encoder does not notice it; "pass" for a change that does not
    matter.
    apply: does it.
    """

    name: str
    unnoticed: Literal["pass", "remark", "problem"]
    apply: Callable[[A], A]


def blurred(image: ImageArtifact, share: float) -> ImageArtifact:
    """The image under a Gaussian blur. share: its standard deviation, of the shorter side."""
    radius = share * min(image.size)
    return ImageArtifact.from_pil(image.to_pil().filter(ImageFilter.GaussianBlur(radius)))


def cropped(image: ImageArtifact) -> ImageArtifact:
    """The middle of the image, at the size of the whole."""
    width, height = image.size
    across, down = width * (1 - CROP_SIDE) / 2, height * (1 - CROP_SIDE) / 2
    box = (across, down, width - across, height - down)
    made = image.to_pil().resize((width, height), Image.Resampling.BILINEAR, box=box)
    return ImageArtifact.from_pil(made)


def recolored(image: ImageArtifact) -> ImageArtifact:
    """The image with its channels exchanged in turn: red becomes green, green blue, blue red."""
    return ImageArtifact(image.pixels[:, :, [2, 0, 1]])


def region_covered(image: ImageArtifact) -> ImageArtifact:
    """The image without its most detailed region, over which the surroundings are drawn.

    The region is the one of its size with the largest sum of differences between neighboring
    pixels; it is filled by the mean of two interpolations, between the rows above and below it and
    between the columns beside it.
    """
    pixels = image.pixels.astype(np.float64)
    height, width = pixels.shape[:2]
    tall, wide = max(1, round(height * COVERED_SIDE)), max(1, round(width * COVERED_SIDE))
    if tall >= height or wide >= width:
        return image
    top, left = _busiest(pixels, tall, wide)
    filled = pixels.copy()
    region = (slice(top, top + tall), slice(left, left + wide))
    down = _between(
        pixels[top - 1, region[1]] if top else None,
        pixels[top + tall, region[1]] if top + tall < height else None,
        tall,
    )
    across = _between(
        pixels[region[0], left - 1] if left else None,
        pixels[region[0], left + wide] if left + wide < width else None,
        wide,
    ).transpose(1, 0, 2)
    filled[region] = (down + across) / 2
    return ImageArtifact(np.rint(filled).astype(np.uint8))


def _busiest(pixels: npt.NDArray[np.float64], tall: int, wide: int) -> tuple[int, int]:
    """Top and left of the region that holds most detail, the first of equals."""
    height, width = pixels.shape[:2]
    detail = np.zeros((height + 1, width + 1))
    detail[1:height, 1:] += np.abs(np.diff(pixels, axis=0)).sum(axis=2)
    detail[1:, 1:width] += np.abs(np.diff(pixels, axis=1)).sum(axis=2)
    sums = detail.cumsum(axis=0).cumsum(axis=1)
    detail_sums = (
        sums[tall:, wide:] - sums[:-tall, wide:] - sums[tall:, :-wide] + sums[:-tall, :-wide]
    )
    top, left = np.unravel_index(int(detail_sums.round(6).argmax()), detail_sums.shape)
    return int(top), int(left)


def _between(
    first: npt.NDArray[np.float64] | None, last: npt.NDArray[np.float64] | None, steps: int
) -> npt.NDArray[np.float64]:
    """(steps, n, 3) from one line of pixels to another; one alone is repeated."""
    start, end = (last if first is None else first), (first if last is None else last)
    assert start is not None
    assert end is not None
    weight = (np.arange(1, steps + 1) / (steps + 1))[:, None, None]
    mixed: npt.NDArray[np.float64] = (1 - weight) * start + weight * end
    return mixed


def word_dropped(text: str) -> str:
    """The text without its longest word, the first of equals."""
    words = list(_WORD.finditer(text))
    if len(words) < 2:
        return text
    longest = max(words, key=lambda word: len(word[0]))
    return " ".join((text[: longest.start()] + text[longest.end() :]).split())


def words_swapped(text: str) -> str:
    """The text with its two longest different words exchanged, the first of equals."""
    words = sorted(_WORD.finditer(text), key=lambda word: -len(word[0]))
    others = [word for word in words if word[0].lower() != words[0][0].lower()]
    if not others:
        return text
    first, second = sorted((words[0], others[0]), key=lambda word: word.start())
    return (
        text[: first.start()]
        + second[0]
        + text[first.end() : second.start()]
        + first[0]
        + text[second.end() :]
    )


def negated(text: str) -> str:
    """The text denied as a whole."""
    return f"It is not true that {text[:1].lower()}{text[1:]}"


IMAGE_DISTORTIONS: tuple[Distortion[ImageArtifact], ...] = (
    Distortion("faint blur", "pass", lambda image: blurred(image, FAINT_BLUR)),
    Distortion("middle blur", "pass", lambda image: blurred(image, MIDDLE_BLUR)),
    Distortion("strong blur", "problem", lambda image: blurred(image, STRONG_BLUR)),
    Distortion("crop", "problem", cropped),
    Distortion("colors exchanged", "problem", recolored),
    Distortion("region covered", "problem", region_covered),
)
"""Of image starts. Two faint ones, which an encoder may or may not notice, come first."""

TEXT_DISTORTIONS: tuple[Distortion[str], ...] = (
    Distortion("word dropped", "problem", word_dropped),
    Distortion("words swapped", "problem", words_swapped),
    Distortion("negation", "remark", negated),
)
"""Of text starts. Few encoders of texts notice a negation, and captions hold few."""
