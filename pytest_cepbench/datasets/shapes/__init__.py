"""The embedded world: generated scenes of a few shapes whose truth is known, without torch.

A scene has one exact caption and as many images as there are seeds; both can be read back exactly.
"""

from pytest_cepbench.datasets.shapes.degrade import Degradation, degrade_scene, is_blank
from pytest_cepbench.datasets.shapes.parser import (
    known_scene,
    object_boxes,
    parse_image,
)
from pytest_cepbench.datasets.shapes.samples import load_shapes, sample_scene
from pytest_cepbench.datasets.shapes.scene import (
    WORLD_VERSION,
    Scene,
    SceneObject,
    caption,
    features,
    parse_caption,
    render,
)

__all__ = [
    "WORLD_VERSION",
    "Degradation",
    "Scene",
    "SceneObject",
    "caption",
    "degrade_scene",
    "features",
    "is_blank",
    "known_scene",
    "load_shapes",
    "object_boxes",
    "parse_caption",
    "parse_image",
    "render",
    "sample_scene",
]
