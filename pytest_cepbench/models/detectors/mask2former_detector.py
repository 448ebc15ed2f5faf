"""Detector of Mask2Former checkpoints: objects of fixed classes, with their masks.

The rules are those by which GenEval's evaluator gets its objects (mmdet's Mask2Former, instance
segmentation): the 100 most probable pairs of query and class, scored by the probability of the class
times the mean probability of the mask where it is above one half; the box is the tight box of those
pixels. Masks are brought to the image's size as logits, without the padding, before that.

The numbers are close to those of the released evaluator, not equal: the image is resized and padded
as the checkpoint's processor says (transformers' reaches multiples of 32 by stretching a little,
mmdet pads), by Pillow instead of OpenCV, and the weights are a port or a sibling. transformers' own
post-processing is not used: it scores masks squeezed to 384 x 384, padding and all, and returns no
boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from pytest_cepbench.artifacts import Detections, Failure, Mask
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.detectors.class_names import ClassNames
from pytest_cepbench.models.detectors.keeping import Candidates, keep
from pytest_cepbench.models.detectors.loading import load_parts, same_sizes
from pytest_cepbench.models.detectors.params import ClassesParams, identity_params
from pytest_cepbench.models.plan import LoadPlan, bind_plan, make_plan
from pytest_cepbench.models.roles import BindContext, BoundRole
from pytest_cepbench.models.spec import ModelSpec
from pytest_cepbench.models.torch_runtime import quiet, require

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


def _load(plan: LoadPlan[ClassesParams]) -> Mask2FormerDetector:
    model, processor = load_parts(plan, "AutoModelForUniversalSegmentation")
    classes = ClassNames(plan.checkpoint, model.config.id2label)
    return Mask2FormerDetector(model, processor, classes, plan.params)


class Mask2FormerDetector:
    """A loaded Mask2Former; satisfies the Detector Protocol."""

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
        """Objects of the classes that are asked for, with masks of the image's size.

        Raises RoleError for a query that is no class of the checkpoint.
        """
        import torch

        asked = [self._classes.asked(wanted) for wanted in queries]
        found: dict[int, Detections | Failure] = {}
        with quiet(), torch.inference_mode():
            for indices in same_sizes(images):
                inputs = self._processor(images=[images[i] for i in indices], return_tensors="pt")
                inputs = inputs.to(self._model.device, dtype=self._model.dtype)
                output = self._model(**inputs)
                for row, i in enumerate(indices):
                    classes = output.class_queries_logits[row].float()
                    masks = output.masks_queries_logits[row].float()
                    seen = inputs["pixel_mask"][row]
                    found[i] = self._one(classes, masks, seen, images[i].size, asked[i])
        return [found[i] for i in range(len(images))]

    def _one(
        self,
        class_logits: torch.Tensor,
        mask_logits: torch.Tensor,
        seen: torch.Tensor,
        size: tuple[int, int],
        asked: dict[int, tuple[str, ...]],
    ) -> Detections | Failure:
        """Objects of one image.

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
        wanted &= pairs.values > self._params.threshold
        logits = _at_image_size(mask_logits[rows[wanted]], seen, size)
        inside = logits > 0
        area = inside.sum(dim=(1, 2))
        means = (logits.sigmoid() * inside).sum(dim=(1, 2)) / area.clamp(min=1)
        there = area > 0
        inside_array = inside[there].cpu().numpy()
        candidates = Candidates(
            boxes=_tight_boxes(inside_array),
            scores=(pairs.values[wanted] * means)[there].cpu().numpy(),
            labels=labels[wanted][there].cpu().numpy(),
            mask=lambda index: Mask.from_array(inside_array[index]),
        )
        params = self._params
        return keep(
            candidates,
            asked,
            threshold=params.threshold,
            nms=params.nms,
            most_per_class=params.max_per_class,
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
