"""The rule-based describer, generator, encoder and detector of scenes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Detection, Detections, ImageArtifact
from pytest_cepbench.datasets.shapes import (
    Degradation,
    caption,
    degrade_with_priors,
    features,
    is_blank,
    object_boxes,
    parse_caption,
    parse_image,
    render,
)
from pytest_cepbench.datasets.shapes.scene import SHAPES, SIDE
from pytest_cepbench.errors import RoleError, unknown_name
from pytest_cepbench.models.protocols import FloatArray, ImageLike
from pytest_cepbench.models.rule_based.pattern_models import DescriberKnobs, name_patterns


@dataclass(frozen=True)
class ShapesDescriber:
    """Describes the scene of an image, or names its patterns, degraded by its parameters."""

    knobs: Degradation

    def describe(
        self,
        images: Sequence[Image.Image],
        prompt: str,  # noqa: ARG002 - the Protocol's; there is one way to describe a scene
        seeds: Sequence[int],
    ) -> list[str]:
        """Caption of each image; the empty text where the answer is blank."""
        scenes = (parse_image(ImageArtifact.from_pil(image)) for image in images)
        return [
            ""
            if is_blank(self.knobs, seed)
            else caption(degrade_with_priors(scene, self.knobs, seed))
            for scene, seed in zip(scenes, seeds, strict=True)
        ]

    def describe_json(
        self,
        images: Sequence[Image.Image],
        prompts: Sequence[str],  # noqa: ARG002 - the Protocol's; the schema says what is asked for
        schema: Mapping[str, Any],
        seeds: Sequence[int],
    ) -> list[str]:
        """Caption and patterns of each image, as JSON; the empty text where the answer is blank."""
        scenes = (parse_image(ImageArtifact.from_pil(image)) for image in images)
        mislabel = self.knobs.mislabel if isinstance(self.knobs, DescriberKnobs) else 0.0
        return [
            ""
            if is_blank(self.knobs, seed)
            else name_patterns(degrade_with_priors(scene, self.knobs, seed), mislabel, schema, seed)
            for scene, seed in zip(scenes, seeds, strict=True)
        ]


@dataclass(frozen=True)
class ShapesGenerator:
    """Draws the scene of a text, degraded by its parameters; the seed also decides the jitter."""

    knobs: Degradation

    def generate(self, texts: Sequence[str], seeds: Sequence[int]) -> list[ImageLike]:
        """(64, 64, 3) uint8 for each text; all black where the answer is blank."""
        return [self._single(text, seed) for text, seed in zip(texts, seeds, strict=True)]

    def _single(self, text: str, seed: int) -> ImageLike:
        if is_blank(self.knobs, seed):
            return np.zeros((SIDE, SIDE, 3), np.uint8)
        return render(degrade_with_priors(parse_caption(text), self.knobs, seed), seed).pixels


@dataclass(frozen=True)
class ShapesEncoder:
    """Features of the scene that an image shows or a text tells of, in one space."""

    def encode_images(self, images: Sequence[Image.Image]) -> FloatArray:
        """(n, dimension) float64, non-negative, no row zero."""
        return np.array([features(parse_image(ImageArtifact.from_pil(image))) for image in images])

    def encode_texts(self, texts: Sequence[str]) -> FloatArray:
        """(n, dimension) float64, non-negative, no row zero."""
        return np.array([features(parse_caption(text)) for text in texts])


@dataclass(frozen=True)
class ShapesDetector:
    """Finds the shapes that are asked for by their names, and says their color."""

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> list[Detections]:
        """Every object of a shape that is asked for, with score 1.0, row by row from the top left.

        Raises RoleError for a query that is no shape of the world.
        """
        for query in {query for asked in queries for query in asked}:
            if query not in SHAPES:
                raise RoleError(
                    f"shapes: detects by plain name: {unknown_name('shape', query, SHAPES)}"
                )
        return [
            Detections(
                tuple(
                    Detection(box.what.shape, 1.0, box.box, color=box.what.color)
                    for box in object_boxes(ImageArtifact.from_pil(image))
                    if box.what.shape in asked
                )
            )
            for image, asked in zip(images, queries, strict=True)
        ]
