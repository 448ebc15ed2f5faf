"""Images of a store: files named by the digest of their pixels, and a few of them in memory."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from uuid import uuid4

from pytest_cepbench.artifacts import ImageArtifact, decode_image
from pytest_cepbench.artifacts.image import MAX_PIXELS, reading_image
from pytest_cepbench.errors import ImageError
from pytest_cepbench.files import read_regular, tells_of_file

SUFFIX = ".webp"

FOLDER = "images"

MOST_BYTES = 3 * MAX_PIXELS + 2**20
"""Limit of an image's file in bytes: no lossless image that is decoded needs more."""

CACHE_BYTES = 16 << 20
"""Pixels that a cache keeps, in bytes: thousands of small images, or a few large ones, which
threads read ahead anyway."""

_NAME = re.compile(rf"([0-9a-f]{{64}}){re.escape(SUFFIX)}")


def artifact_path(root: Path, digest: str) -> Path:
    """Path that the image of this digest has in a store, whether or not it exists."""
    return root / FOLDER / digest[:2] / f"{digest}{SUFFIX}"


def digest_of(path: Path) -> str | None:
    """The digest in the name of an image's file; None for any other name."""
    match = _NAME.fullmatch(path.name)
    return match[1] if match is not None and path.parent.name == match[1][:2] else None


def list_files(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every file and link below the folder of images, with its status.

    Raises UnreadError where a folder cannot be listed: its images would count as lost.
    """

    def stop(error: OSError) -> None:
        if not tells_of_file(error):
            raise error

    with reading_image(root / FOLDER):
        for folder, _, names in os.walk(root / FOLDER, onerror=stop):
            for name in names:
                path = Path(folder, name)
                with suppress(FileNotFoundError):  # another process removed it
                    yield path, path.lstat()


def has_artifact(root: Path, digest: str) -> bool:
    """Whether the file of the image is there; see `is_there`."""
    return is_there(artifact_path(root, digest))


def is_there(path: Path) -> bool:
    """Whether a file is there. Raises UnreadError where that cannot be known.

    `Path.exists` says no to some errors of the file system, and to all of them from Python 3.14 on.
    """
    with reading_image(path):
        try:
            path.stat()
        except OSError as error:
            if tells_of_file(error):
                return False
            raise
    return True


def load_artifact(root: Path, digest: str) -> ImageArtifact | None:
    """The image, or None when it is absent.

    Raises ImageError when its pixels do not match, UnreadError when it could not be read.
    """
    path = artifact_path(root, digest)
    with reading_image(path):
        try:
            return verify_artifact(read_regular(path, MOST_BYTES), digest)
        except FileNotFoundError:
            return None


def verify_artifact(data: bytes, digest: str) -> ImageArtifact:
    """The image in these bytes.

    Raises ImageError when it is damaged or has another digest, UnreadError without memory.
    """
    image = decode_image(data)
    if image.digest != digest:
        raise ImageError("its pixels do not match its name")
    return image


def write_artifact(root: Path, digest: str, data: bytes) -> None:
    """Write an image's file, whole or not at all. Raises OSError."""
    target = artifact_path(root, digest)
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


class ArtifactCache:
    """Images in memory by digest, the oldest dropped first; any thread may use it.

    The chains of one step often need the same image one after another, and read it once so. The
    cache is cleared when the chains are grown, so that damage on the disk is noticed afterwards.

    most: limit in bytes of pixels.
    """

    def __init__(self, most: int = CACHE_BYTES) -> None:
        self._most = most
        self._bytes = 0
        self._images: OrderedDict[str, ImageArtifact] = OrderedDict()
        self._lock = Lock()

    def add(self, image: ImageArtifact) -> None:
        """Keep an image."""
        with self._lock:
            if image.digest in self._images:
                return
            self._images[image.digest] = image
            self._bytes += image.pixels.nbytes
            while self._bytes > self._most:
                _, oldest = self._images.popitem(last=False)
                self._bytes -= oldest.pixels.nbytes

    def get(self, digest: str) -> ImageArtifact | None:
        """The image, where it is in memory."""
        with self._lock:
            return self._images.get(digest)

    def clear(self) -> None:
        """Drop all images."""
        with self._lock:
            self._images.clear()
            self._bytes = 0
