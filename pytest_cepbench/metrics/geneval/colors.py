"""GenEval's color rule: the object cut out, and the nearest of ten colors by zero-shot vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import Detection

FloatArray = npt.NDArray[np.floating[Any]]

COLORS = (
    "red",
    "orange",
    "yellow",
    "green",
    "blue",
    "purple",
    "pink",
    "brown",
    "black",
    "white",
)
"""The ten colors, in the order of the released evaluator."""

TEMPLATES = (
    "a photo of a {color} {name}",
    "a photo of a {color}-colored {name}",
    "a photo of a {color} object",
)
"""Texts of each color and class."""

_CANVAS = (0x99, 0x99, 0x99)


def color_prompts(name: str) -> tuple[tuple[str, ...], ...]:
    """The texts for a class: one row for each of `COLORS`, one column for each of `TEMPLATES`."""
    return tuple(
        tuple(template.format(color=color, name=name) for template in TEMPLATES) for color in COLORS
    )


def zero_shot_color(image_vectors: FloatArray, text_vectors: FloatArray) -> list[str]:
    """The color of each cut-out object.

    image_vectors: (n, d) of the cut-outs (`crop_object`).
    text_vectors: (10, 3, d) of the texts of their class (`color_prompts`); any lengths. A color's
    vector is the mean of its texts' unit vectors, normalised again; the color of an object is the
    one of the largest cosine, the earlier in `COLORS` where two are equal.
    Source: the GenEval evaluator as released.
    Raises ValueError for other shapes and for vectors that are zero or not finite.
    """
    shape = (len(COLORS), len(TEMPLATES))
    if (
        image_vectors.ndim != 2
        or text_vectors.ndim != 3
        or text_vectors.shape != (*shape, image_vectors.shape[1])
    ):
        raise ValueError(
            f"expected (n, d) and ({shape[0]}, {shape[1]}, d), "
            f"got {image_vectors.shape} and {text_vectors.shape}"
        )
    names = _unit(_unit(text_vectors).mean(axis=1))
    return [COLORS[index] for index in np.argmax(_unit(image_vectors) @ names.T, axis=1)]


def crop_object(image: Image.Image, detection: Detection) -> Image.Image:
    """The RGB pixels that tell an object's color: its box, on a grey ground where there is a mask.

    Pixels outside the mask become #999. The box is rounded to whole pixels and cut at the image's
    edge, where the released evaluator would go on in black (its boxes, tight around masks, never
    get there); at least one pixel is left.
    Raises ValueError for a mask of another size than the image.
    """
    whole = image.convert("RGB")
    if detection.mask is not None:
        if (detection.mask.width, detection.mask.height) != whole.size:
            width, height = whole.size
            raise ValueError(
                f"a mask of {detection.mask.width} x {detection.mask.height} pixels does not fit "
                f"an image of {width} x {height}"
            )
        inside = Image.fromarray(detection.mask.to_array().astype(np.uint8) * 255)
        whole = Image.composite(whole, Image.new("RGB", whole.size, _CANVAS), inside)
    left, top, right, bottom = detection.box
    across = _span(left, right, whole.width)
    down = _span(top, bottom, whole.height)
    return whole.crop((across[0], down[0], across[1], down[1]))


def _span(low: float, high: float, side: int) -> tuple[int, int]:
    first = min(max(round(low), 0), side - 1)
    return first, max(min(round(high), side), first + 1)


def _unit(vectors: FloatArray) -> npt.NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    if not np.isfinite(lengths).all() or (lengths == 0.0).any():
        raise ValueError("a vector is zero or not finite: it has no direction and names no color")
    unit: npt.NDArray[np.float64] = wide / lengths
    return unit
