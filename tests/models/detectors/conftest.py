"""Fixtures of the detector tests: tiny checkpoints of each kind built once, binding, loading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import Detections
from pytest_cepbench.models.binding import BoundRole
from pytest_cepbench.models.protocols import Detector
from tests.models.binding import bind_text, load_once
from tests.tiny import detectors as tiny

Folders = dict[str, Path]
"""Name -> the folder of a tiny checkpoint."""

Images = list[Image.Image]

BUILDERS: dict[str, Callable[[Path], Path]] = {
    "owlv2": partial(tiny.build_owl, version=2),
    "owlvit": partial(tiny.build_owl, version=1),
    "mask2former": tiny.build_mask2former,
    "yolos": tiny.build_yolos,
}


def bind_detector(text: str) -> BoundRole:
    """Bind as the plugin does, every file hashed."""
    return bind_text(text, "detector")


def load(text: str) -> Detector:
    """Bind and load, once; not to be changed."""
    model = load_once(text, "detector")
    assert isinstance(model, Detector)
    return model


def detect(
    model: Detector, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
) -> list[Detections]:
    """What is found where no image fails."""
    answers = model.detect(images, queries)
    assert len(answers) == len(images)
    kept = [answer for answer in answers if isinstance(answer, Detections)]
    assert len(kept) == len(answers)
    return kept


def assert_same(first: Detections, second: Detections) -> None:
    """The same objects in the same order, within float noise; masks up to 1 pixel in 500."""
    assert [detection.query for detection in first.found] == [
        detection.query for detection in second.found
    ]
    for detection, twin in zip(first.found, second.found, strict=True):
        assert detection.score == pytest.approx(twin.score, abs=1e-4)
        if detection.mask is None or twin.mask is None:
            assert detection.box == pytest.approx(twin.box, abs=1e-2)
            assert detection.mask is twin.mask
        else:
            assert (detection.mask.to_array() != twin.mask.to_array()).mean() <= 0.002


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """One tiny checkpoint of each kind."""
    root = tmp_path_factory.mktemp("detectors")
    return {name: build(root / name) for name, build in BUILDERS.items()}


@pytest.fixture(scope="session")
def images() -> Images:
    """Noise images (width, height): square, tall, wide, and another of the tall one's size."""
    random = np.random.default_rng(7)
    sizes = [(64, 64), (48, 80), (96, 40), (48, 80)]
    return [
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for width, height in sizes
    ]
