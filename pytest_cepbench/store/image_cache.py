"""Images in memory: those that a few chains look at in one step after the other are read once."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from pytest_cepbench.artifacts import ImageArtifact

MOST_BYTES = 16 << 20
"""Of pixels: thousands of small images, or a few large ones, which threads read ahead anyway."""


class ImageCache:
    """Images by digest, the oldest let go of first; any thread may ask.

    Whoever grows chains clears it in the end: what is damaged on disk must be noticed by the next.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._held = 0
        self._images: OrderedDict[str, ImageArtifact] = OrderedDict()
        self._lock = Lock()

    def add(self, image: ImageArtifact) -> None:
        """Keep an image."""
        with self._lock:
            if image.digest in self._images:
                return
            self._images[image.digest] = image
            self._held += image.pixels.nbytes
            while self._held > self._most:
                _, oldest = self._images.popitem(last=False)
                self._held -= oldest.pixels.nbytes

    def get(self, digest: str) -> ImageArtifact | None:
        """The image, while it is there."""
        with self._lock:
            return self._images.get(digest)

    def clear(self) -> None:
        """Let go of all of them."""
        with self._lock:
            self._images.clear()
            self._held = 0
