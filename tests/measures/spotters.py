"""Detectors of the world's shapes that tell no colors, as a user writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PIL import Image

from pytest_cepbench.artifacts import Detection, Detections, Failure, ImageArtifact, Mask
from pytest_cepbench.datasets.shapes import object_boxes


class Spotter:
    """Finds shapes. queries: what it may be asked. score: its confidence in everything."""

    what = "a spotter"

    def __init__(self, queries: str = "classes", score: str = "1.0") -> None:
        self.fingerprint = f"{type(self).__name__}/1/{queries}/{score}"
        self.queries = queries
        self.score = float(score)

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> list[Detections | Failure]:
        """The shapes that answer a query: by name, or in words, with a color or without."""
        return [self._one(*pair) for pair in zip(images, queries, strict=True)]

    def _one(self, image: Image.Image, asked: Sequence[str]) -> Detections | Failure:
        seen = object_boxes(ImageArtifact.from_pil(image))
        detections = [
            Detection(query, self.score, each.box)
            for each in seen
            for query in asked
            if query in _answers(each.what.shape, each.what.color)
        ]
        return Detections(tuple(detections))


class Weak(Spotter):
    """Cannot bear pictures with a circle."""

    def _one(self, image: Image.Image, asked: Sequence[str]) -> Detections | Failure:
        seen = object_boxes(ImageArtifact.from_pil(image))
        if any(thing.what.shape == "circle" for thing in seen):
            return Failure("bad-boxes", "a circle")
        detections = [Detection(s.what.shape, 1.0, s.box, color=s.what.color) for s in seen]
        return Detections(tuple(detection for detection in detections if detection.query in asked))


class Masked(Spotter):
    """Draws masks of another size than the picture's."""

    def _one(self, image: Image.Image, asked: Sequence[str]) -> Detections | Failure:
        detections = super()._one(image, asked)
        assert isinstance(detections, Detections)
        mask = Mask(2, 2, (4,))
        return Detections(tuple(replace(detection, mask=mask) for detection in detections.found))


class Blind(Spotter):
    """Finds each object that it is asked for in the middle, whatever is shown."""

    def _one(self, image: Image.Image, asked: Sequence[str]) -> Detections | Failure:
        return Detections(tuple(Detection(q, 1.0, (8, 8, 16, 16), color="red") for q in asked[:1]))


def _answers(shape: str, color: str) -> tuple[str, ...]:
    return shape, f"a photo of a {shape}", f"a photo of a {color} {shape}"
