"""Images of the page: thumbnails, each once, inside of the page or as files beside it."""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact

THUMBNAIL = 256
"""Pixels of the longer side of a thumbnail; a smaller image is shown as it is, enlarged."""

IMAGES = "images"
"""Folder of image files beside a page."""

_QUALITY = 75  # of WebP, for what is made smaller anyway

# A failing run of suites/shapes shows 323 small images of some noise: without loss they take 970 kB
# of its page, so 190 kB.
_LOSSLESS, _QUALITY_OF_SMALL = 1024, 90

ImageSource = Callable[[str], ImageArtifact | None]
"""Gives a stored image by digest, or None when it is gone."""

FileSource = Callable[[str], Path | None]
"""Gives the file that a store has of an image, by digest, or None where there is none."""


class PageImage(NamedTuple):
    """An image as the page shows it.

    name: unique in the page.
    width, height: of the thumbnail in pixels.
    address: of the thumbnail: a data URI, or a path relative to the page.
    original: path of the whole image relative to the page; empty where there is none.
    enlarged: whether it is smaller than a thumbnail, and shown pixel by pixel.
    """

    name: str
    width: int
    height: int
    address: str
    original: str
    enlarged: bool


@dataclass
class PageImages:
    """The images of a page, each made once, when it is first asked for.

    source: where they come from.
    folder: of the page, where thumbnails and originals become files; None: the page holds the
    thumbnails itself, and shows all of `shown` at its end.
    file: where originals are copied from; others are written as PNG.
    """

    source: ImageSource
    folder: Path | None = None
    file: FileSource = lambda _: None
    _images: dict[str, PageImage | None] = field(default_factory=dict)

    @property
    def inside(self) -> bool:
        """Whether the page holds the images itself."""
        return self.folder is None

    @property
    def shown(self) -> list[PageImage]:
        """All images that were asked for and are there."""
        return [image for image in self._images.values() if image is not None]

    def get(self, digest: str) -> PageImage | None:
        """The image of a digest; None when it is gone. Raises OSError where a file cannot be
        written.
        """
        if digest not in self._images:
            artifact = self.source(digest)
            self._images[digest] = None if artifact is None else self._page_image(digest, artifact)
        return self._images[digest]

    def _page_image(self, digest: str, image: ImageArtifact) -> PageImage:
        thumbnail = image.to_pil()
        whole = max(thumbnail.size) <= THUMBNAIL
        thumbnail.thumbnail((THUMBNAIL, THUMBNAIL))
        data = _webp(thumbnail, lossless=whole, quality=100 if whole else _QUALITY)
        name, enlarged = f"image-{image.digest[:16]}", max(image.size) < THUMBNAIL
        if self.folder is None:
            if whole and len(data) > _LOSSLESS:
                small = _webp(thumbnail, lossless=False, quality=_QUALITY_OF_SMALL)
                data = min(data, small, key=len)
            address = f"data:image/webp;base64,{base64.b64encode(data).decode()}"
            return PageImage(name, *thumbnail.size, address, "", enlarged)
        address = original = f"{IMAGES}/{name}.webp"
        (self.folder / IMAGES).mkdir(parents=True, exist_ok=True)
        (self.folder / address).write_bytes(data)
        if not whole:
            stored = self.file(digest)
            original = f"{IMAGES}/{name}-original{'.png' if stored is None else stored.suffix}"
            if stored is None:
                image.to_pil().save(self.folder / original, "PNG", compress_level=1)
            else:
                shutil.copyfile(stored, self.folder / original)
        return PageImage(name, *thumbnail.size, address, original, enlarged)


def _webp(image: Image.Image, *, lossless: bool, quality: int) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "WEBP", lossless=lossless, quality=quality)
    return stream.getvalue()
