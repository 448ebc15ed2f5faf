"""Detectors of transformers: OWLv2 and OWL-ViT, asked in free text, and those of fixed classes.

As in Semantic Drift's `mgg.py`, every box of OWL has the one query that fits it best, and is kept
when the sigmoid of that logit is above the threshold; objectness is not used. A box is in pixels of
the image as it was given, and may reach over its edge. OWLv2 pads an image to a square at the right
and the bottom, so 1 stands for the long edge in both directions; OWL-ViT squeezes the image into
the square. Released versions of transformers have mapped OWLv2's boxes as if it squeezed too
(huggingface/transformers#27205); the mapping here is our own. The library also fills up ragged
lists of queries with blanks that can win a box; here they cannot.

Boxes and scores of an object detector of fixed classes are those of the checkpoint's own
post-processing; it draws no masks. The rules for Mask2Former are those by which GenEval's evaluator
gets its objects (mmdet's Mask2Former, instance segmentation): the 100 most probable pairs of query
and class, scored by the probability of the class times the mean probability of the mask where it is
above one half; the box is the tight box of those pixels. Masks are brought to the image's size as
logits, without the padding, before that. The numbers are close to those of the released evaluator,
not equal: the image is resized and padded as the checkpoint's processor says (transformers' reaches
multiples of 32 by stretching a little, mmdet pads), by Pillow instead of OpenCV, and the weights
are a port or a sibling. transformers' own post-processing is not used: it scores masks squeezed to
384 x 384, padding and all, and returns no boxes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import Detection, Detections, Failure, Mask
from pytest_cepbench.errors import CheckpointError, RoleError, unknown_name
from pytest_cepbench.models.checkpoints.binding import LoadPlan, adapter
from pytest_cepbench.models.checkpoints.checkpoint import Checkpoint
from pytest_cepbench.models.checkpoints.loaded_checks import (
    TruncationNotice,
    check_vocabulary,
    refuse_cut_off,
    refuse_missing,
    take_weights,
)
from pytest_cepbench.models.checkpoints.loading import (
    explained,
    from_pretrained,
    input_device,
    loading,
)
from pytest_cepbench.models.checkpoints.parameters import TransformersParams
from pytest_cepbench.models.protocols import FloatArray
from pytest_cepbench.models.spec import Bounds, Positive
from pytest_cepbench.models.torch_runtime import backend_option, by_kind, quiet

if TYPE_CHECKING:
    import torch


Probability = Annotated[float, Bounds(0, most=1)]


@dataclass(frozen=True)
class DetectorParams(TransformersParams):
    """Parameters of a detector that is asked in free text, with those of `TransformersParams`.

    threshold: a box is kept when its score is above it; the default is that of Semantic Drift's
        `mgg.py`.
    """

    threshold: Probability = 0.1

    @property
    def decisive(self) -> dict[str, Any]:
        """What may be asked and which boxes are kept; "nms" and "most" are in keys since boxes
        could be suppressed, or limited in number.
        """
        kept = {"threshold": self.threshold, "nms": None, "most": None}
        return {**super().decisive, "queries": "free-text", **kept}


@dataclass(frozen=True)
class ClassesParams(DetectorParams):
    """Parameters of a detector of a fixed set of classes.

    threshold: 0.3, the least score that GenEval's evaluator looks at. Lower scores are not even
        stored, so a rule with a lower threshold needs a lower one here.
    max_per_class: most objects of a class in an image; None keeps all (16: GenEval's evaluator).
    """

    threshold: Probability = 0.3
    max_per_class: Positive | None = 16

    @property
    def decisive(self) -> dict[str, Any]:
        """With how many boxes of a class are left."""
        decisive = super().decisive | {"queries": "classes", "most_per_class": self.max_per_class}
        del decisive["most"]
        return decisive


@dataclass(frozen=True)
class CandidateBoxes:
    """The boxes that a detector proposes for one image.

    boxes: (n, 4) left, top, right, bottom in pixels of the image.
    scores: (n,) in [0, 1].
    labels: (n,) which query or class each answers.
    mask: the mask of a candidate by its index, where the detector draws masks.
    """

    boxes: FloatArray
    scores: FloatArray
    labels: npt.NDArray[np.integer[Any]]
    mask: Callable[[int], Mask] | None = None


def keep(
    candidates: CandidateBoxes,
    names: Mapping[int, tuple[str, ...]],
    *,
    threshold: float,
    most_per_class: int | None = None,
) -> Detections | Failure:
    """The candidates that count, most confident first; ties as they were found.

    names: label -> the queries that it answers; others are passed over.
    threshold: kept is what scores above it.
    most_per_class: how many of a label are left at the end.
    A failure of kind "bad-boxes" where a score is NaN or a box is none.
    """
    boxes, scores = candidates.boxes, candidates.scores
    straight = (boxes[:, :2] <= boxes[:, 2:]).all()
    if not (straight and np.isfinite(boxes).all() and np.isfinite(scores).all()):
        return Failure("bad-boxes", "scores or boxes are NaN, infinite or turned inside out")
    left: Counter[int] = Counter()
    detections: list[Detection] = []
    for i in np.argsort(-scores, kind="stable").tolist():
        label = int(candidates.labels[i])
        wanted = scores[i] > threshold and label in names
        if wanted and (most_per_class is None or left[label] < most_per_class):
            left[label] += 1
            x1, y1, x2, y2 = boxes[i].tolist()
            mask = candidates.mask(i) if candidates.mask else None
            score = min(float(scores[i]), 1.0)  # a product of rounded means can pass 1
            detections += [Detection(q, score, (x1, y1, x2, y2), mask) for q in names[label]]
    return Detections(tuple(detections))


@dataclass(frozen=True)
class LoadedDetector:
    """A detector on the plan's device and in its precision."""

    plan: LoadPlan[Any]
    model: Any
    processor: Any

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self.model.to(device)


def _load_parts(plan: LoadPlan[Any], auto_class: str) -> tuple[Any, Any]:
    """(model, image processor) of a checkpoint.

    auto_class: the class of transformers that knows the model's. Raises CheckpointError for files
    that cannot be loaded or lack a tensor, ModelError for a device that is not there.
    """
    import transformers

    with loading(plan):
        with plan.checkpoint.preparation_folder() as folder:
            processor = transformers.AutoImageProcessor.from_pretrained(
                folder, **backend_option(plan.params.backend), **plan.checkpoint.options.code
            )
        model, info = from_pretrained(getattr(transformers, auto_class), plan)
        refuse_missing(plan.checkpoint, info["missing_keys"])
        refuse_cut_off(plan.checkpoint, model, info["unexpected_keys"])
    take_weights(plan.checkpoint, {"": model})
    return model, processor


# -- queries in free text --------------------------------------------------------------------------


@dataclass(frozen=True)
class OwlDetector(LoadedDetector):
    """A loaded OWL model; satisfies the Detector Protocol.

    notice: says once that queries were cut.
    """

    tokenizer: Any
    notice: TruncationNotice

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> list[Detections | Failure]:
        """Boxes for each image's queries; numbers of queries may differ.

        Queries longer than the model reads are cut, which is said once in a warning.
        """
        import torch
        from torchvision.ops import box_convert

        device = input_device(self.model)
        config = self.model.config.text_config
        longest = min(int(self.tokenizer.model_max_length), int(config.max_position_embeddings))
        # Each image's queries are filled up with its first.
        most = max(len(asked) for asked in queries)
        texts = [text for asked in queries for text in [*asked, *[asked[0]] * (most - len(asked))]]
        with quiet(), torch.inference_mode():
            whole = self.tokenizer(list(dict.fromkeys(texts)))["input_ids"]
            options = {"padding": "max_length", "truncation": True, "max_length": longest}
            tokens = self.tokenizer(texts, return_tensors="pt", **options)
            pixels = self.processor(images=list(images), return_tensors="pt")
            output = self.model(
                **{name: tokens[name].to(device) for name in ("input_ids", "attention_mask")},
                pixel_values=pixels.to(device, dtype=self.model.dtype)["pixel_values"],
            )
            logits, boxes = output.logits.float().cpu(), output.pred_boxes.float().cpu()
        self.notice.check([len(ids) for ids in whole], longest)
        # Whether images were padded or squeezed is what the image processor did, whatever the
        # model; OWL-ViT's has no such setting.
        padded = bool(getattr(self.processor, "do_pad", False))
        detections = []
        for i, (image, asked) in enumerate(zip(images, queries, strict=True)):
            best = logits[i, :, : len(asked)].max(dim=-1)
            size = [max(image.size)] * 4 if padded else [*image.size] * 2
            corners = box_convert(boxes[i], "cxcywh", "xyxy") * torch.tensor(size)
            arrays = (corners, best.values.sigmoid(), best.indices)
            candidates = CandidateBoxes(*(array.numpy() for array in arrays))
            names = {label: (query,) for label, query in enumerate(asked)}
            detections.append(keep(candidates, names, threshold=self.plan.params.threshold))
        return detections


def _load_owl(plan: LoadPlan[DetectorParams]) -> OwlDetector:
    from transformers import AutoTokenizer

    model, processor = _load_parts(plan, "AutoModelForZeroShotObjectDetection")
    with explained(plan.checkpoint), quiet(), plan.checkpoint.preparation_folder() as folder:
        tokenizer = AutoTokenizer.from_pretrained(folder, **plan.checkpoint.options.code)
        first = tokenizer("a")["input_ids"][0]
    check_vocabulary(plan.checkpoint.tokenizer_folder, type(tokenizer).__name__)
    if tokenizer.pad_token_id is None or first == 0:
        wrong = "begins a text with id 0" if first == 0 else "has no pad token"
        raise CheckpointError(
            f"{plan.checkpoint.path}: the tokenizer {wrong}. OWL needs texts of one length, and "
            "never finds a query whose first id is 0. Save the tokenizer that the model was "
            "trained with"
        )
    return OwlDetector(plan, model, processor, tokenizer, TruncationNotice(plan.checkpoint.what))


# OWLv2's own resizing is scipy's.
OWL = adapter("owl-detector/1", DetectorParams, _load_owl, packages=("torchvision", "scipy"))


# -- fixed classes ---------------------------------------------------------------------------------

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


Asked = Mapping[int, tuple[str, ...]]
"""The classes that one image is asked for -> the queries that mean each, word for word."""


def asked_classes(
    checkpoint: Checkpoint, labels: Mapping[Any, str], queries: Sequence[Sequence[str]]
) -> list[Asked]:
    """The classes of a checkpoint that the queries of each image name; case does not matter.

    labels: `id2label` of its configuration. Raises RoleError naming the classes for a query that is
    the name of none.
    """
    own: dict[str, int] = {}
    for index, name in labels.items():
        own.setdefault(_plain(name), int(index))
    known = own
    for names in _SAME_CLASS:
        index = next((own[name] for name in names if name in own), None)
        if index is not None:
            known = dict.fromkeys(names, index) | known
    asked: list[dict[int, tuple[str, ...]]] = [{} for _ in queries]
    for queries_of, wanted in zip(asked, queries, strict=True):
        for query in wanted:
            index = known.get(_plain(query))
            if index is None:
                raise RoleError(
                    f"{checkpoint.path}: {checkpoint.what} finds its own classes only, asked for "
                    f"by their plain names: {unknown_name('class', query, known)}"
                )
            queries_of[index] = (*queries_of.get(index, ()), query)
    return [*asked]


def _plain(name: str) -> str:
    return " ".join(name.lower().split())


@dataclass(frozen=True)
class ClassesDetector(LoadedDetector):
    """A loaded detector of fixed classes; satisfies the Detector Protocol.

    draws_masks: whether it is a Mask2Former; the library gives the boxes of any other.
    """

    draws_masks: bool

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> list[Detections | Failure]:
        """Objects of the classes that are asked for, with masks where the network draws them.

        Raises RoleError for a query that is no class of the checkpoint.
        """
        import torch

        params, checkpoint = self.plan.params, self.plan.checkpoint
        rules = {"threshold": params.threshold, "most_per_class": params.max_per_class}
        labels = self.model.config.id2label
        asked = asked_classes(checkpoint, labels, queries)

        def detect(indices: Sequence[int]) -> list[Detections | Failure]:
            inputs = self.processor(images=[images[i] for i in indices], return_tensors="pt")
            inputs = inputs.to(input_device(self.model), dtype=self.model.dtype)
            output = self.model(**inputs)
            boxes = [] if self.draws_masks else self._library_boxes(output, images[indices[0]].size)
            kept: list[Detections | Failure] = []
            for row, i in enumerate(indices):
                if self.draws_masks:
                    # One by one: all masks at the full size of the images would be much to hold.
                    logits = output.class_queries_logits[row].float()
                    masks = output.masks_queries_logits[row].float()
                    seen, threshold = inputs["pixel_mask"][row], params.threshold
                    own = propose_masks(logits, masks, seen, images[i].size, asked[i], threshold)
                else:
                    own = boxes[row]
                kept.append(own if isinstance(own, Failure) else keep(own, asked[i], **rules))
            return kept

        with quiet(), torch.inference_mode():
            # A batch needs no padding to a common size then. It would reach the features of these
            # networks: what is found in an image would depend on the sizes of its neighbours.
            return by_kind([image.size for image in images], detect)

    def _library_boxes(self, output: Any, size: tuple[int, int]) -> list[CandidateBoxes | Failure]:
        """Boxes of all classes in each image of one size, (width, height)."""
        output.logits, output.pred_boxes = output.logits.float(), output.pred_boxes.float()
        # Looked at first: no NaN score is above a threshold, so it would pass for nothing found.
        finite = output.logits.isfinite().flatten(1).all(1)
        finite &= output.pred_boxes.isfinite().flatten(1).all(1)
        rows = self.processor.post_process_object_detection(
            output,
            threshold=self.plan.params.threshold,
            target_sizes=[size[::-1]] * len(output.logits),
        )
        return [
            CandidateBoxes(*(row[name].cpu().numpy() for name in ("boxes", "scores", "labels")))
            if is_finite
            else Failure("bad-boxes", "logits or boxes are NaN")
            for row, is_finite in zip(rows, finite.tolist(), strict=True)
        ]


def propose_masks(
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

    def resize(logits: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
        return torch.nn.functional.interpolate(
            logits[:, None], size=size, mode="bilinear", align_corners=False
        )[:, 0]

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
        padded = resize(logits, (seen.shape[0], seen.shape[1]))
        logits = resize(padded[:, : used[0], : used[1]], (height, width))
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


def _load_boxes(plan: LoadPlan[ClassesParams]) -> ClassesDetector:
    model, processor = _load_parts(plan, "AutoModelForObjectDetection")
    if not hasattr(processor, "post_process_object_detection"):
        raise RoleError(
            f"{plan.checkpoint.path}: {type(processor).__name__} cannot tell boxes from the "
            f"outputs of {plan.checkpoint.what}. Give an object detector (DETR, RT-DETR, YOLOS)"
        )
    return ClassesDetector(plan, model, processor, draws_masks=False)


def _load_masks(plan: LoadPlan[ClassesParams]) -> ClassesDetector:
    parts = _load_parts(plan, "AutoModelForUniversalSegmentation")
    return ClassesDetector(plan, *parts, draws_masks=True)


BOXES = adapter("boxes-detector/1", ClassesParams, _load_boxes, packages=("torchvision",))
MASKS = adapter("mask2former-detector/1", ClassesParams, _load_masks, packages=("torchvision",))
