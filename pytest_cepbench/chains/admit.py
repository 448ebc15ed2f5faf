"""What a model returned, checked once where it enters: an artifact, or the failure it amounts to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import Failure, ImageArtifact
from pytest_cepbench.errors import ImageError, ModelError


def admit_text(value: object) -> str | Failure:
    """A description. Empty and blank ones are failures. Raises ModelError when it is no string."""
    if isinstance(value, Failure):
        return value
    if not isinstance(value, str):
        msg = f"a describer returns str for each image, this one returned {type(value).__name__}"
        raise ModelError(msg)
    if not value.strip():
        return Failure("empty-text", "nothing but white space" if value else "no text at all")
    return value


def admit_image(value: object) -> ImageArtifact | Failure:
    """A drawing. NaN pixels, an all-black picture and an impossible shape are failures.

    An all-black picture is what safety checkers and overflowing half-precision decoders give.
    Raises ModelError when it is neither a Pillow image nor an array.
    """
    if isinstance(value, Failure):
        return value
    try:
        if isinstance(value, Image.Image):
            image = ImageArtifact.from_pil(value)
        elif isinstance(value, np.ndarray):
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                return Failure("nan-image", "pixels are NaN or infinite")
            image = ImageArtifact(_to_bytes(value))
        else:
            msg = (
                f"a generator returns Pillow images or arrays, this one returned "
                f"{type(value).__name__}"
            )
            raise ModelError(msg)
    except ImageError as error:
        return Failure("bad-image", str(error))
    if not image.pixels.any():
        return Failure("blank-image", "every pixel is black")
    return image


def admit_vectors(value: object, expected: int) -> list[npt.NDArray[np.float32] | Failure]:
    """Features, one row per input. Rows that are zero or not finite have no direction: failures.

    Raises ModelError when it is not an (expected, dimension) array of numbers.
    """
    array = np.asarray(value)
    if (
        array.ndim != 2
        or len(array) != expected
        or not array.shape[1]
        or array.dtype.kind not in "fiu"
    ):
        msg = (
            f"an encoder returns ({expected}, dimension) numbers for {expected} inputs, this one "
            f"returned {array.shape} {array.dtype}"
        )
        raise ModelError(msg)
    with np.errstate(over="ignore"):  # what overflows float32 is infinite and counted below
        rows = array.astype(np.float32)
    return [_admit_vector(row) for row in rows]


def _admit_vector(row: npt.NDArray[np.float32]) -> npt.NDArray[np.float32] | Failure:
    if not np.isfinite(row).all():
        return Failure("nan-vector", "features are NaN or infinite")
    if not row.any():
        return Failure("nan-vector", "features are all zero")
    return row


def _to_bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Floats in [0, 1] as bytes, rounded as diffusers does; bytes as they are."""
    if array.dtype.kind != "f":
        return array
    scaled: npt.NDArray[np.uint8] = (array.clip(0.0, 1.0) * 255).round().astype(np.uint8)
    return scaled
