"""Detectors of a fixed set of classes: object detectors of transformers, and Mask2Former.

The two differ in how they find candidates in a group of images of one size. Boxes and scores of an
object detector are those of the checkpoint's own post-processing; it draws no masks.

The rules for Mask2Former are those by which GenEval's evaluator gets its objects (mmdet's
Mask2Former, instance segmentation): the 100 most probable pairs of query and class, scored by the
probability of the class times the mean probability of the mask where it is above one half; the box
is the tight box of those pixels. Masks are brought to the image's size as logits, without the
padding, before that. The numbers are close to those of the released evaluator, not equal: the image
is resized and padded as the checkpoint's processor says (transformers' reaches multiples of 32 by
stretching a little, mmdet pads), by Pillow instead of OpenCV, and the weights are a port or a
sibling. transformers' own post-processing is not used: it scores masks squeezed to 384 x 384,
padding and all, and returns no boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from PIL import Image

from pytest_cepbench.artifacts import Detections, Failure, Mask
from pytest_cepbench.errors import RoleError, unknown_name
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.checkpoints.binding import Adapter, LoadPlan
from pytest_cepbench.models.checkpoints.loading import input_device
from pytest_cepbench.models.detectors.transformers_detector import (
    CandidateBoxes,
    ClassesParams,
    keep,
    load_parts,
)
from pytest_cepbench.models.torch_runtime import by_kind, quiet

if TYPE_CHECKING:
    import torch

_TOP_PAIRS = 100

_SAME_CLASS = (
    # GenEval's prompts say which mouse is meant; COCO's names do not.
    ("mouse", "computer mouse"),
    ("remote", "tv remote"),
    ("keyboard", "computer keyboard"),
    # COCO's names, and those of Pascal VOC that some checkpoints carry for the same classes.
    ("airplane", "aeroplane"),
    ("motorcycle", "motorbike"),
    ("couch", "sofa"),
    ("tv", "tvmonitor"),
    ("potted plant", "pottedplant"),
    ("dining table", "diningtable"),
)


class ClassNames:
    """A checkpoint's classes (`id2label` of its configuration) by name; case does not matter."""

    def __init__(self, checkpoint: Checkpoint, labels: Mapping[Any, str]) -> None:
        self._checkpoint = checkpoint
        self._known: dict[str, int] = {}
        for index, name in labels.items():
            self._known.setdefault(_plain(name), int(index))
        own = dict(self._known)
        for names in _SAME_CLASS:
            index = next((own[name] for name in names if name in own), None)
            if index is not None:
                for name in names:
                    self._known.setdefault(name, index)

    def asked(self, queries: Sequence[str]) -> dict[int, tuple[str, ...]]:
        """Index of each class that is asked for -> the queries that mean it, word for word.

        Raises RoleError naming the classes for a query that is the name of none.
        """
        queries_of: dict[int, tuple[str, ...]] = {}
        for query in queries:
            index = self._known.get(_plain(query))
            if index is None:
                raise RoleError(
                    f"{self._checkpoint.path}: {self._checkpoint.what} finds its own classes only, "
                    f"asked for by their plain names: {unknown_name('class', query, self._known)}"
                )
            queries_of[index] = (*queries_of.get(index, ()), query)
        return queries_of


def _plain(name: str) -> str:
    return " ".join(name.lower().split())


Asked = Mapping[int, tuple[str, ...]]
"""The classes that one image is asked for, as `ClassNames.asked` gives them."""


@dataclass(frozen=True)
class ClassesDetector:
    """A loaded detector of fixed classes; satisfies the Detector Protocol.

    find: candidates of each image of one size, in order, given model, image processor, threshold,
        images and classes; those of other classes may be left out.
    """

    plan: LoadPlan[ClassesParams]
    model: Any
    processor: Any
    find: Callable[..., Iterable[CandidateBoxes | Failure]]

    @cached_property
    def _classes(self) -> ClassNames:
        return ClassNames(self.plan.checkpoint, self.model.config.id2label)

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self.model.to(device)

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> list[Detections | Failure]:
        """Objects of the classes that are asked for, with masks where the network draws them.

        Raises RoleError for a query that is no class of the checkpoint.
        """
        import torch

        params = self.plan.params
        asked = [self._classes.asked(wanted) for wanted in queries]
        # A batch needs no padding to a common size then. It would reach the features of these
        # networks: what is found in an image would depend on the sizes of its neighbours.
        sizes = [image.size for image in images]

        def detect(indices: Sequence[int]) -> list[Detections | Failure]:
            own, wanted = [images[i] for i in indices], [asked[i] for i in indices]
            proposed = self.find(self.model, self.processor, params.threshold, own, wanted)
            return [
                candidates
                if isinstance(candidates, Failure)
                else keep(
                    candidates,
                    classes,
                    threshold=params.threshold,
                    most_per_class=params.max_per_class,
                )
                for candidates, classes in zip(proposed, wanted, strict=True)
            ]

        with quiet(), torch.inference_mode():
            return by_kind(sizes, detect)


def _load_boxes(plan: LoadPlan[ClassesParams]) -> ClassesDetector:
    model, processor = load_parts(plan, "AutoModelForObjectDetection")
    if not hasattr(processor, "post_process_object_detection"):
        raise RoleError(
            f"{plan.checkpoint.path}: {type(processor).__name__} cannot tell boxes from the "
            f"outputs of {plan.checkpoint.what}. Give an object detector (DETR, RT-DETR, YOLOS)"
        )
    return ClassesDetector(plan, model, processor, _find_boxes)


def _load_masks(plan: LoadPlan[ClassesParams]) -> ClassesDetector:
    model, processor = load_parts(plan, "AutoModelForUniversalSegmentation")
    return ClassesDetector(plan, model, processor, _find_masks)


_PACKAGES = ("torch", "torchvision", "transformers")
BOXES = Adapter("boxes-detector/1", _PACKAGES, ClassesParams, _load_boxes)
MASKS = Adapter("mask2former-detector/1", _PACKAGES, ClassesParams, _load_masks)


def _find_boxes(
    model: Any,
    processor: Any,
    threshold: float,
    images: Sequence[Image.Image],
    asked: Sequence[Asked],  # noqa: ARG001 - the library gives all classes
) -> Iterator[CandidateBoxes | Failure]:
    inputs = processor(images=list(images), return_tensors="pt")
    output = model(**inputs.to(input_device(model), dtype=model.dtype))
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


def _find_masks(
    model: Any,
    processor: Any,
    threshold: float,
    images: Sequence[Image.Image],
    asked: Sequence[Asked],
) -> Iterator[CandidateBoxes | Failure]:
    inputs = processor(images=list(images), return_tensors="pt")
    inputs = inputs.to(input_device(model), dtype=model.dtype)
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
    from torchvision.ops import masks_to_boxes

    probabilities = class_logits.softmax(dim=-1)[:, :-1]
    if not (probabilities.isfinite().all() and mask_logits.isfinite().all()):
        return Failure("bad-boxes", "classes or masks are NaN or infinite")
    pairs = probabilities.flatten().topk(min(_TOP_PAIRS, probabilities.numel()))
    labels = pairs.indices % probabilities.shape[1]
    rows = pairs.indices // probabilities.shape[1]
    # A mask can only lower the score, so what is below the threshold already needs none.
    wanted = torch.isin(labels, torch.tensor(list(asked), device=labels.device))
    wanted &= pairs.values > threshold
    width, height = size
    logits = mask_logits[rows[wanted]]
    if len(logits):  # the image's pixels, its padding cut off
        used = int(seen.any(dim=1).sum()), int(seen.any(dim=0).sum())
        padded = _resize(logits, (seen.shape[0], seen.shape[1]))
        logits = _resize(padded[:, : used[0], : used[1]], (height, width))
    else:
        logits = logits.new_zeros((0, height, width))
    inside = logits > 0
    area = inside.sum(dim=(1, 2))
    means = (logits.sigmoid() * inside).sum(dim=(1, 2)) / area.clamp(min=1)
    there = area > 0
    inside = inside[there].cpu()
    boxes = masks_to_boxes(inside)
    boxes[:, 2:] += 1  # to the far edge of the last pixel
    inside_array = inside.numpy()
    return CandidateBoxes(
        boxes=boxes.double().numpy(),
        scores=(pairs.values[wanted] * means)[there].cpu().numpy(),
        labels=labels[wanted][there].cpu().numpy(),
        mask=lambda index: Mask.from_array(inside_array[index]),
    )


def _resize(logits: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """(n, height, width) logits at another height and width."""
    import torch

    return torch.nn.functional.interpolate(
        logits[:, None], size=size, mode="bilinear", align_corners=False
    )[:, 0]
