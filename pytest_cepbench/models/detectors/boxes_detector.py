"""Detector of the object detectors of transformers that know a fixed set of classes (DETR, YOLOS ...).

Boxes and scores are those of the checkpoint's own post-processing; of the classes that are asked for
the ones above the threshold are kept. These detectors draw no masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from PIL import Image

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.detectors.box_filter import CandidateBoxes
from pytest_cepbench.models.detectors.class_names import ClassNames
from pytest_cepbench.models.detectors.classes_detector import Asked, ClassesDetector
from pytest_cepbench.models.detectors.detector_loader import load_parts
from pytest_cepbench.models.detectors.detector_params import ClassesParams, identity_params
from pytest_cepbench.models.load_plan import LoadPlan, bind_plan, make_plan
from pytest_cepbench.models.protocols import BindContext, BoundRole
from pytest_cepbench.models.spec import ModelSpec
from pytest_cepbench.models.torch_runtime import require

ADAPTER = "boxes-detector/1"


def bind_boxes(spec: ModelSpec, checkpoint: Checkpoint, context: BindContext) -> BoundRole:
    """Resolve an object detector's checkpoint, without importing torch. Errors as `bind_detector`."""
    require("torch", "transformers")
    plan = make_plan("detector", ClassesParams, spec, checkpoint, context)
    return bind_plan(plan, adapter=ADAPTER, load=lambda: _load(plan), params=identity_params(plan))


def _load(plan: LoadPlan[ClassesParams]) -> ClassesDetector:
    model, processor = load_parts(plan, "AutoModelForObjectDetection")
    if not hasattr(processor, "post_process_object_detection"):
        msg = (
            f"{plan.checkpoint.path}: {type(processor).__name__} cannot tell boxes from the outputs "
            f"of {plan.checkpoint.what}. Give an object detector (DETR, RT-DETR, YOLOS)"
        )
        raise RoleError(msg)
    classes = ClassNames(plan.checkpoint, model.config.id2label)
    look = partial(_look, model, processor, plan.params.threshold)
    return ClassesDetector(classes, plan.params, look)


def _look(
    model: Any,
    processor: Any,
    threshold: float,
    images: Sequence[Image.Image],
    asked: Sequence[Asked],  # noqa: ARG001 - of `Look`; the library gives all classes
) -> Iterator[CandidateBoxes | Failure]:
    inputs = processor(images=list(images), return_tensors="pt")
    output = model(**inputs.to(model.device, dtype=model.dtype))
    output.logits, output.pred_boxes = output.logits.float(), output.pred_boxes.float()
    # Looked at first: no NaN score is above a threshold, so it would pass for nothing found.
    finite = [
        bool(logits.isfinite().all() and boxes.isfinite().all())
        for logits, boxes in zip(output.logits, output.pred_boxes, strict=True)
    ]
    sizes = [(image.height, image.width) for image in images]
    rows = processor.post_process_object_detection(output, threshold=threshold, target_sizes=sizes)
    for row, sound in zip(rows, finite, strict=True):
        if sound:
            arrays = {name: row[name].cpu().numpy() for name in ("boxes", "scores", "labels")}
            yield CandidateBoxes(**arrays)
        else:
            yield Failure("bad-boxes", "logits or boxes are NaN")
