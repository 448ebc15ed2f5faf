"""Images in a store's folder: files named by the digest of their pixels, whole or not there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from pytest_cepbench.artifacts import ImageArtifact, decode_image
from pytest_cepbench.artifacts.image import MAX_PIXELS
from pytest_cepbench.errors import ImageError
from pytest_cepbench.files import read_regular

SUFFIX = ".webp"

FOLDER = "images"

MOST_BYTES = 3 * MAX_PIXELS + 2**20
"""Of an image's file: no lossless image that is decoded needs more."""

_NAME = re.compile(rf"([0-9a-f]{{64}}){re.escape(SUFFIX)}")


def image_path(root: Path, digest: str) -> Path:
    """Where the image of this digest lies in a store, if it is there."""
    return root / FOLDER / digest[:2] / f"{digest}{SUFFIX}"


def digest_of(path: Path) -> str | None:
    """The digest that a file is named by; None where it is not called as an image is."""
    match = _NAME.fullmatch(path.name)
    return match[1] if match is not None and path.parent.name == match[1][:2] else None


def list_files(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every file and link below the folder of images, with what the file system says of it."""
    for folder, _, names in os.walk(root / FOLDER):
        for name in names:
            path = Path(folder, name)
            with suppress(FileNotFoundError):  # another process dropped it
                yield path, path.lstat()


def read_image_of(root: Path, digest: str) -> ImageArtifact | None:
    """The image, or None when it is absent. Raises ImageError when it is not that of its digest."""
    try:
        return verified(read_regular(image_path(root, digest), MOST_BYTES), digest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ImageError(str(error)) from error


def verified(data: bytes, digest: str) -> ImageArtifact:
    """The image in these bytes. Raises ImageError when it is none or not that of the digest."""
    image = decode_image(data)
    if image.digest != digest:
        msg = "its pixels do not match its name"
        raise ImageError(msg)
    return image


def write_image(root: Path, digest: str, data: bytes) -> None:
    """Put a file in its place: it is there as a whole, or not at all. Raises OSError."""
    target = image_path(root, digest)
    fresh = root / "new" / uuid4().hex
    try:
        fresh.write_bytes(data)
        try:
            fresh.replace(target)
        except FileNotFoundError:  # the first of its folder
            target.parent.mkdir(exist_ok=True)
            fresh.replace(target)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
