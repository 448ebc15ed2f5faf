"""Detector of Mask2Former checkpoints: objects of fixed classes, with their masks.

The rules are those by which GenEval's evaluator gets its objects (mmdet's Mask2Former, instance
segmentation): the 100 most probable pairs of query and class, scored by the probability of the
class times the mean probability of the mask where it is above one half; the box is the tight box of
those pixels. Masks are brought to the image's size as logits, without the padding, before that.

The numbers are close to those of the released evaluator, not equal: the image is resized and padded
as the checkpoint's processor says (transformers' reaches multiples of 32 by stretching a little,
mmdet pads), by Pillow instead of OpenCV, and the weights are a port or a sibling. transformers' own
post-processing is not used: it scores masks squeezed to 384 x 384, padding and all, and returns no
boxes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Failure, Mask
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.detectors.box_filter import CandidateBoxes
from pytest_cepbench.models.detectors.classes_detector import Asked, ClassesDetector, ClassNames
from pytest_cepbench.models.detectors.transformers_detector import (
    ClassesParams,
    identity_params,
    load_parts,
)
from pytest_cepbench.models.load_plan import LoadPlan, bind_plan, make_plan
from pytest_cepbench.models.model_spec import ModelSpec
from pytest_cepbench.models.protocols import BindContext, BoundRole
from pytest_cepbench.models.torch_runtime import require

if TYPE_CHECKING:
    import torch

ADAPTER = "mask2former-detector/1"

_TOP_PAIRS = 100


def bind_mask2former(spec: ModelSpec, checkpoint: Checkpoint, context: BindContext) -> BoundRole:
    """Resolve a Mask2Former checkpoint as a detector, without importing torch.

    Errors as `bind_detector`.
    """
    require("torch", "transformers")
    plan = make_plan("detector", ClassesParams, spec, checkpoint, context)
    return bind_plan(plan, adapter=ADAPTER, load=lambda: _load(plan), params=identity_params(plan))


def _load(plan: LoadPlan[ClassesParams]) -> ClassesDetector:
    model, processor = load_parts(plan, "AutoModelForUniversalSegmentation")
    classes = ClassNames(plan.checkpoint, model.config.id2label)
    find_boxes = partial(_find_boxes, model, processor, plan.params.threshold)
    return ClassesDetector(classes, plan.params, find_boxes)


def _find_boxes(
    model: Any,
    processor: Any,
    threshold: float,
    images: Sequence[Image.Image],
    asked: Sequence[Asked],
) -> Iterator[CandidateBoxes | Failure]:
    inputs = processor(images=list(images), return_tensors="pt")
    inputs = inputs.to(model.device, dtype=model.dtype)
    output = model(**inputs)
    # One by one: the masks of all images at their full size would be much to hold at once.
    for row, (image, wanted) in enumerate(zip(images, asked, strict=True)):
        classes = output.class_queries_logits[row].float()
        masks = output.masks_queries_logits[row].float()
        yield _propose(classes, masks, inputs["pixel_mask"][row], image.size, wanted, threshold)


def _propose(
    class_logits: torch.Tensor,
    mask_logits: torch.Tensor,
    seen: torch.Tensor,
    size: tuple[int, int],
    asked: Asked,
    threshold: float,
) -> CandidateBoxes | Failure:
    """Objects of the classes asked for in one image; masks only of those above the threshold.

    class_logits: (queries, classes + 1), the last for no object. mask_logits: (queries, h, w).
    seen: (height, width) of the network's input, 1 where it is image and not padding.
    """
    import torch

    probabilities = class_logits.softmax(dim=-1)[:, :-1]
    if not (probabilities.isfinite().all() and mask_logits.isfinite().all()):
        return Failure("bad-boxes", "classes or masks are NaN or infinite")
    pairs = probabilities.flatten().topk(min(_TOP_PAIRS, probabilities.numel()))
    labels = pairs.indices % probabilities.shape[1]
    rows = pairs.indices // probabilities.shape[1]
    # A mask can only lower the score, so what is below the threshold already needs none.
    wanted = torch.isin(labels, torch.tensor(list(asked), device=labels.device))
    wanted &= pairs.values > threshold
    logits = _at_image_size(mask_logits[rows[wanted]], seen, size)
    inside = logits > 0
    area = inside.sum(dim=(1, 2))
    means = (logits.sigmoid() * inside).sum(dim=(1, 2)) / area.clamp(min=1)
    there = area > 0
    inside_array = inside[there].cpu().numpy()
    return CandidateBoxes(
        boxes=_tight_boxes(inside_array),
        scores=(pairs.values[wanted] * means)[there].cpu().numpy(),
        labels=labels[wanted][there].cpu().numpy(),
        mask=lambda index: Mask.from_array(inside_array[index]),
    )


def _at_image_size(logits: torch.Tensor, seen: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """(n, height, width) logits of the image's pixels, its padding cut off."""
    import torch

    def resize(masks: torch.Tensor, to: tuple[int, int]) -> torch.Tensor:
        return torch.nn.functional.interpolate(
            masks[:, None], size=to, mode="bilinear", align_corners=False
        )[:, 0]

    width, height = size
    if not len(logits):
        return logits.new_zeros((0, height, width))
    rows, columns = int(seen.any(dim=1).sum()), int(seen.any(dim=0).sum())
    padded = resize(logits, (seen.shape[0], seen.shape[1]))
    return resize(padded[:, :rows, :columns], (height, width))


def _tight_boxes(
    masks: np.ndarray[Any, np.dtype[np.bool_]],
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(n, 4) left, top, right, bottom of (n, height, width) masks, none of them empty."""
    boxes = np.zeros((len(masks), 4))
    for box, mask in zip(boxes, masks, strict=True):
        columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
        box[:] = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    return boxes
