"""The embedded world: generated scenes of a few shapes whose truth is known, without torch.

A scene has one exact caption and as many images as there are seeds; both can be read back exactly.
"""

from pytest_cepbench.datasets.shapes.boxes import Located, locate
from pytest_cepbench.datasets.shapes.degrade import Knobs, distort, is_blank
from pytest_cepbench.datasets.shapes.families import sample_scene
from pytest_cepbench.datasets.shapes.features import features
from pytest_cepbench.datasets.shapes.grammar import caption, parse_caption
from pytest_cepbench.datasets.shapes.parser import perceive
from pytest_cepbench.datasets.shapes.render import render
from pytest_cepbench.datasets.shapes.samples import load_shapes
from pytest_cepbench.datasets.shapes.scene import WORLD_VERSION, Scene, SceneObject

__all__ = [
    "WORLD_VERSION",
    "Knobs",
    "Located",
    "Scene",
    "SceneObject",
    "caption",
    "distort",
    "features",
    "is_blank",
    "load_shapes",
    "locate",
    "parse_caption",
    "perceive",
    "render",
    "sample_scene",
]
