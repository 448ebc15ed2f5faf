"""Detector of the object detectors of transformers that know a fixed set of classes (DETR, YOLOS ...).

Boxes and scores are those of the checkpoint's own post-processing; of the classes that are asked for
the ones above the threshold are kept. These detectors draw no masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image

from pytest_cepbench.artifacts import Detections, Failure
from pytest_cepbench.errors import RoleError
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.detectors.class_names import ClassNames
from pytest_cepbench.models.detectors.keeping import Candidates, keep
from pytest_cepbench.models.detectors.loading import load_parts, same_sizes
from pytest_cepbench.models.detectors.params import ClassesParams, identity_params
from pytest_cepbench.models.plan import LoadPlan, bind_plan, make_plan
from pytest_cepbench.models.roles import BindContext, BoundRole
from pytest_cepbench.models.spec import ModelSpec
from pytest_cepbench.models.torch_runtime import quiet, require

ADAPTER = "boxes-detector/1"


def bind_boxes(spec: ModelSpec, checkpoint: Checkpoint, context: BindContext) -> BoundRole:
    """Resolve an object detector's checkpoint, without importing torch. Errors as `bind_detector`."""
    require("torch", "transformers")
    plan = make_plan("detector", ClassesParams, spec, checkpoint, context)
    return bind_plan(plan, adapter=ADAPTER, load=lambda: _load(plan), params=identity_params(plan))


def _load(plan: LoadPlan[ClassesParams]) -> BoxesDetector:
    model, processor = load_parts(plan, "AutoModelForObjectDetection")
    if not hasattr(processor, "post_process_object_detection"):
        msg = (
            f"{plan.checkpoint.path}: {type(processor).__name__} cannot tell boxes from the outputs "
            f"of {plan.checkpoint.what}. Give an object detector (DETR, RT-DETR, YOLOS)"
        )
        raise RoleError(msg)
    classes = ClassNames(plan.checkpoint, model.config.id2label)
    return BoxesDetector(model, processor, classes, plan.params)


class BoxesDetector:
    """A loaded object detector of fixed classes; satisfies the Detector Protocol."""

    def __init__(
        self, model: Any, processor: Any, classes: ClassNames, params: ClassesParams
    ) -> None:
        self._model = model
        self._processor = processor
        self._classes = classes
        self._params = params

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> list[Detections | Failure]:
        """Objects of the classes that are asked for.

        Raises RoleError for a query that is no class of the checkpoint.
        """
        import torch

        asked = [self._classes.asked(wanted) for wanted in queries]
        found: dict[int, Detections | Failure] = {}
        with quiet(), torch.inference_mode():
            for indices in same_sizes(images):
                group = self._group([images[i] for i in indices], [asked[i] for i in indices])
                found |= zip(indices, group, strict=True)
        return [found[i] for i in range(len(images))]

    def _group(
        self, images: Sequence[Image.Image], asked: Sequence[dict[int, tuple[str, ...]]]
    ) -> list[Detections | Failure]:
        inputs = self._processor(images=list(images), return_tensors="pt")
        output = self._model(**inputs.to(self._model.device, dtype=self._model.dtype))
        output.logits, output.pred_boxes = output.logits.float(), output.pred_boxes.float()
        # Looked at first: no NaN score is above a threshold, so it would pass for nothing found.
        finite = [
            bool(logits.isfinite().all() and boxes.isfinite().all())
            for logits, boxes in zip(output.logits, output.pred_boxes, strict=True)
        ]
        sizes = [(image.height, image.width) for image in images]
        rows = self._processor.post_process_object_detection(
            output, threshold=self._params.threshold, target_sizes=sizes
        )
        return [
            self._keep(row, wanted) if sound else Failure("bad-boxes", "logits or boxes are NaN")
            for row, wanted, sound in zip(rows, asked, finite, strict=True)
        ]

    def _keep(self, row: Any, asked: dict[int, tuple[str, ...]]) -> Detections | Failure:
        candidates = Candidates(
            boxes=row["boxes"].cpu().numpy(),
            scores=row["scores"].cpu().numpy(),
            labels=row["labels"].cpu().numpy(),
        )
        params = self._params
        return keep(
            candidates,
            asked,
            threshold=params.threshold,
            nms=params.nms,
            most_per_class=params.max_per_class,
        )
