"""The embedded world: generated scenes of a few shapes whose truth is known, without torch.

A scene has one exact caption and as many images as there are seeds; both can be read back exactly.
"""

from pytest_cepbench.datasets.shapes.degrade import Degradation as Degradation
from pytest_cepbench.datasets.shapes.degrade import degrade_scene as degrade_scene
from pytest_cepbench.datasets.shapes.degrade import is_blank as is_blank
from pytest_cepbench.datasets.shapes.parser import known_scene as known_scene
from pytest_cepbench.datasets.shapes.parser import object_boxes as object_boxes
from pytest_cepbench.datasets.shapes.parser import parse_image as parse_image
from pytest_cepbench.datasets.shapes.samples import load_shapes as load_shapes
from pytest_cepbench.datasets.shapes.samples import sample_scene as sample_scene
from pytest_cepbench.datasets.shapes.scene import WORLD_VERSION as WORLD_VERSION
from pytest_cepbench.datasets.shapes.scene import Scene as Scene
from pytest_cepbench.datasets.shapes.scene import SceneObject as SceneObject
from pytest_cepbench.datasets.shapes.scene import caption as caption
from pytest_cepbench.datasets.shapes.scene import features as features
from pytest_cepbench.datasets.shapes.scene import parse_caption as parse_caption
from pytest_cepbench.datasets.shapes.scene import render as render
