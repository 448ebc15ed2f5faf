"""A describer that fails in passing, and an encoder in the user's own code."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from pytest_cepbench.artifacts import ImageArtifact
from pytest_cepbench.datasets.shapes import caption, parse_image
from pytest_cepbench.models.rule_based.scene_models import ShapesEncoder


class Stumbling:
    """A describer that raises at some pictures."""

    fingerprint = "stumbling/1"

    def describe(
        self, images: Sequence[Image.Image], prompt: str, seeds: Sequence[int]
    ) -> list[str]:
        """One caption per image. Raises ArithmeticError."""
        artifacts = [ImageArtifact.from_pil(image) for image in images]
        if any(artifact.digest < "8" for artifact in artifacts):
            raise ArithmeticError("in passing")
        return [caption(parse_image(artifact)) for artifact in artifacts]


class Plain(ShapesEncoder):
    """The embedded encoder under a name of its own."""

    fingerprint = "plain/1"
