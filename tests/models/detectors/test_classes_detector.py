"""Object detectors of fixed classes: the library's boxes, of the classes that are asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import CheckpointError, RoleError
from pytest_cepbench.models.binding import BindContext, bind
from pytest_cepbench.models.spec import parse_spec
from tests.models.detectors.conftest import assert_same, detect, load
from tests.tiny import detectors as tiny
from tests.tiny import encoders as tiny_encoders

pytestmark = pytest.mark.models

ALL = list(tiny.CLASSES)
EVERYTHING = "?threshold=0&max_per_class=none"


def test_boxes_are_those_of_the_library(
    folders: dict[str, Path], images: list[Image.Image]
) -> None:
    """In the image's own pixels, most confident first; asked for one class, only that one's."""
    import torch
    from transformers import AutoImageProcessor, YolosForObjectDetection

    folder, image = folders["yolos"], images[1]
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    with torch.inference_mode():
        output = YolosForObjectDetection.from_pretrained(folder).eval()(
            **processor(image, return_tensors="pt")
        )
    (expected,) = processor.post_process_object_detection(
        output, threshold=0.0, target_sizes=[(image.height, image.width)]
    )
    order = expected["scores"].argsort(descending=True, stable=True)
    model = load(f"{folder}{EVERYTHING}")
    (detections,) = detect(model, [image], [ALL])
    assert [detection.query for detection in detections.found] == [
        ALL[i] for i in expected["labels"][order]
    ]
    boxes = np.array([detection.box for detection in detections.found])
    assert np.abs(boxes - expected["boxes"][order].numpy()).max() < 1e-4
    name = detections.found[0].query
    (only,) = detect(model, [image], [[name]])
    assert only.found == tuple(
        detection for detection in detections.found if detection.query == name
    )
    assert all(detection.mask is None for detection in detections.found)


def test_an_image_is_found_the_same_alone_and_in_a_batch(
    folders: dict[str, Path], images: list[Image.Image]
) -> None:
    """Other shapes in the batch change nothing: YOLOS sees padding as part of the image."""
    model = load(f"{folders['yolos']}{EVERYTHING}")
    for image, detections in zip(images, detect(model, images, [ALL] * 4), strict=True):
        assert len(detections.found) == 10
        (alone,) = detect(model, [image], [ALL])
        assert_same(detections, alone)


def test_a_class_that_it_does_not_know_is_refused(
    folders: dict[str, Path], images: list[Image.Image]
) -> None:
    """The message lists the classes."""
    with pytest.raises(RoleError, match=r"unknown class 'triangle'.*Known: circle, "):
        load(str(folders["yolos"])).detect(images[:1], [["triangle"]])


def test_numbers_that_are_none_fail_the_image(
    folders: dict[str, Path], images: list[Image.Image], tmp_path: Path
) -> None:
    """NaN is above no threshold, so it would pass for an image with nothing in it."""
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(folders["yolos"], tmp_path / "m"))
    tensors = load_file(folder / "model.safetensors")
    (name,) = [name for name in tensors if name.startswith("class") and name.endswith("2.weight")]
    tensors[name][:] = 3e38
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    answers = load(str(folder)).detect(images, [ALL] * 4)
    assert [answer.kind for answer in answers if isinstance(answer, Failure)] == ["bad-boxes"] * 4


def test_an_encoder_forced_to_detect_is_explained(tmp_path: Path, context: BindContext) -> None:
    """Force reaches the library, whose refusal is passed on in words."""
    folder = tiny_encoders.build_vit(tmp_path / "vit", pooler=True)
    bound = bind(parse_spec(str(folder)), "detector", context, force=True)
    with pytest.raises(CheckpointError, match="ViTModel could not be loaded"):
        bound.load()
