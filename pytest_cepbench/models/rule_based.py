"""The embedded world's own models: `shapes:`, perfect, or worse by a known amount.

shapes:                                  an exact describer, generator, encoder and detector
shapes:?miss=0.1&recolor=0.05&swap=0.1   a describer or generator with its knobs turned
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Detection, Detections, ImageArtifact, digest_json
from pytest_cepbench.datasets.shapes import (
    WORLD_VERSION,
    Degradation,
    caption,
    degrade_scene,
    features,
    is_blank,
    object_boxes,
    parse_caption,
    parse_image,
    render,
)
from pytest_cepbench.datasets.shapes.render import SIDE
from pytest_cepbench.datasets.shapes.scene import SHAPES
from pytest_cepbench.errors import RoleError, SpecError, unknown_name
from pytest_cepbench.models.model_spec import ModelSpec, parse_params
from pytest_cepbench.models.protocols import (
    BoundRole,
    FloatArray,
    ImageLike,
    Model,
    RoleName,
)
from pytest_cepbench.models.registry import SCHEMES, DetectedModel, Provider

ADAPTER = "shapes/1"

_ROLES = SCHEMES["shapes"].roles

_BATCH = 64


@dataclass(frozen=True)
class ShapesDescriber:
    """Describes the scene of an image, degraded by its parameters."""

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
            "" if is_blank(self.knobs, seed) else caption(degrade_scene(scene, self.knobs, seed))
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
        return render(degrade_scene(parse_caption(text), self.knobs, seed), seed).pixels


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
                msg = f"shapes: detects by plain name: {unknown_name('shape', query, SHAPES)}"
                raise RoleError(msg)
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


@dataclass(frozen=True)
class _NoKnobs:
    """The parameters of encoder and detector: none."""


def bind_shapes(spec: ModelSpec, role: RoleName) -> BoundRole:
    """`shapes:` in one role.

    Raises SpecError when something follows the colon but knobs, or a knob is unknown, not a
    number, out of [0, 1], or given to the encoder or the detector, which have none; RoleError for a
    role that this world does not have.
    """
    if role not in _ROLES:
        msg = f"{spec.text!r}: the shapes world has no {role}; it has {', '.join(_ROLES)}"
        raise RoleError(msg)
    if spec.target:
        msg = (
            f"model spec {spec.text!r}: nothing but knobs can follow 'shapes:', "
            f"got {spec.target!r}; write shapes: or shapes:?miss=0.1"
        )
        raise SpecError(msg)
    what = f"the shapes {role}"
    if role in ("describer", "generator"):
        knobs = parse_params(spec, Degradation, what)
    else:
        parse_params(spec, _NoKnobs, what)
        knobs = Degradation()
    loaders: dict[RoleName, Callable[[], Model]] = {
        "describer": lambda: ShapesDescriber(knobs),
        "generator": lambda: ShapesGenerator(knobs),
        "encoder": ShapesEncoder,
        "detector": ShapesDetector,
    }
    return BoundRole(
        role=role,
        spec=spec.text,
        what=f"the shapes world's own {role}",
        fingerprint=digest_json({"world": WORLD_VERSION, "role": role}),
        adapter=ADAPTER,
        load=loaders[role],
        params={"queries": "classes"} if role == "detector" else knobs.turned,
        # The generator's jitter comes from the seed, whatever its knobs.
        seeded=role == "generator" or (role == "describer" and bool(knobs.turned)),
        batch_size=_BATCH,
    )


PROVIDER = Provider(
    detect=lambda _: DetectedModel("the built-in world of shapes", _ROLES),
    bind=lambda spec, role, _: bind_shapes(spec, role),
)
