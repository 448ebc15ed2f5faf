"""What the detectors of transformers share: parameters, loading, and which boxes are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Detection, Detections, Failure, Mask
from pytest_cepbench.models.adapters import apply_adapters
from pytest_cepbench.models.load_plan import LoadPlan, TransformersParams
from pytest_cepbench.models.model_spec import check_at_least
from pytest_cepbench.models.protocols import FloatArray
from pytest_cepbench.models.safe_loading import (
    from_pretrained,
    loading,
    refuse_missing,
    take_weights,
)
from pytest_cepbench.models.versions import backend_option

Queries = Literal["free-text", "classes"]


@dataclass(frozen=True)
class DetectorParams(TransformersParams):
    """Parameters of every detector's spec, with those of `TransformersParams`.

    threshold: a box is kept when its score is above it.
    nms: of two boxes for one query that overlap by more than this (intersection over union, in
        (0, 1]) the less confident is dropped; None drops none.
    """

    threshold: float = 0.1
    nms: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.threshold <= 1.0:
            raise ValueError(f"threshold must lie in [0, 1], got {self.threshold}")
        if self.nms is not None and not 0.0 < self.nms <= 1.0:
            raise ValueError(f"nms must lie in (0, 1], or be none, got {self.nms}")

    @property
    def decisive(self) -> dict[str, Any]:
        """What decides which boxes are kept, besides how the model is run."""
        return {**super().decisive, "threshold": self.threshold, "nms": self.nms}


@dataclass(frozen=True)
class OwlParams(DetectorParams):
    """Parameters of a detector that is asked in free text.

    The defaults of threshold and nms are those of Semantic Drift's `mgg.py`.
    max_detections: most boxes of an image; None keeps all.
    """

    max_detections: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "max_detections")

    @property
    def decisive(self) -> dict[str, Any]:
        """With what may be asked, and how many boxes are left."""
        return {"queries": "free-text", **super().decisive, "most": self.max_detections}


@dataclass(frozen=True)
class ClassesParams(DetectorParams):
    """Parameters of a detector of a fixed set of classes.

    threshold: 0.3, the least score that GenEval's evaluator looks at. Lower scores are not even
        stored, so a rule with a lower threshold needs a lower one here.
    max_per_class: most objects of a class in an image; None keeps all (16: GenEval's evaluator).
    """

    threshold: float = 0.3
    max_per_class: int | None = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "max_per_class")

    @property
    def decisive(self) -> dict[str, Any]:
        """With what may be asked, and how many boxes of a class are left."""
        return {"queries": "classes", **super().decisive, "most_per_class": self.max_per_class}


def load_parts(
    plan: LoadPlan[OwlParams] | LoadPlan[ClassesParams], auto_class: str
) -> tuple[Any, Any]:
    """(model, image processor) of a checkpoint, on the plan's device and in its precision.

    auto_class: the class of transformers that knows the model's. Raises CheckpointError for files
    that cannot be loaded or lack a tensor, ModelError for a device that is not there.
    """
    import transformers

    with loading(plan):
        with plan.checkpoint.preparation_folder() as folder:
            processor = transformers.AutoImageProcessor.from_pretrained(
                folder, **backend_option(plan.params.backend)
            )
        model, info = from_pretrained(getattr(transformers, auto_class), plan)
        refuse_missing(plan.checkpoint, info["missing_keys"])
        model = apply_adapters(plan.checkpoint, model)
    take_weights(plan.checkpoint, {"": model})
    return model, processor


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
    nms: float | None = None,
    most: int | None = None,
    most_per_class: int | None = None,
) -> Detections | Failure:
    """The candidates that count, most confident first; ties as they were found.

    names: label -> the queries that it answers; others are passed over.
    threshold: kept is what scores above it.
    nms: a box is dropped when a more confident one of the same label overlaps it by more than this
        (intersection over union).
    most, most_per_class: how many are left at the end.
    A failure of kind "bad-boxes" where a score is NaN or a box is none.
    """
    if not _sound(candidates):
        return Failure("bad-boxes", "scores or boxes are NaN, infinite or turned inside out")
    order = np.argsort(-candidates.scores, kind="stable").tolist()
    order = [
        i for i in order if candidates.scores[i] > threshold and int(candidates.labels[i]) in names
    ]
    if nms is not None:
        order = _suppress(order, candidates, nms)
    if most_per_class is not None:
        order = _strongest_of_each(order, candidates, most_per_class)
    return Detections(
        tuple(
            _detection(candidates, i, query)
            for i in order[:most]
            for query in names[int(candidates.labels[i])]
        )
    )


def overlaps(box: FloatArray, others: FloatArray) -> FloatArray:
    """Intersection over union of a box (4,) with others (n, 4): (n,) in [0, 1], 0 where empty."""
    corner = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = corner.clip(min=0).prod(axis=1)
    union = (box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(axis=1) - shared
    shares: FloatArray = np.divide(shared, union, out=np.zeros_like(union), where=union > 0)
    return shares


def corners(boxes: FloatArray, width: float, height: float) -> FloatArray:
    """(n, 4) left, top, right, bottom in pixels, from relative center x, center y, width, height.

    width, height: the pixels that the relative 1 stands for.
    """
    center, half = boxes[:, :2], boxes[:, 2:] / 2
    relative = np.concatenate([center - half, center + half], axis=1)
    pixels: FloatArray = relative * np.array([width, height, width, height], boxes.dtype)
    return pixels


def _sound(candidates: CandidateBoxes) -> bool:
    boxes, scores = candidates.boxes, candidates.scores
    straight = (boxes[:, :2] <= boxes[:, 2:]).all()
    return bool(straight and np.isfinite(boxes).all() and np.isfinite(scores).all())


def _suppress(order: list[int], candidates: CandidateBoxes, nms: float) -> list[int]:
    boxes, labels = candidates.boxes.astype(np.float64), candidates.labels
    kept: list[int] = []
    for i in order:
        rivals = [j for j in kept if labels[j] == labels[i]]
        if not rivals or overlaps(boxes[i], boxes[rivals]).max() <= nms:
            kept.append(i)
    return kept


def _strongest_of_each(order: list[int], candidates: CandidateBoxes, most: int) -> list[int]:
    seen: Counter[int] = Counter()
    kept = []
    for i in order:
        label = int(candidates.labels[i])
        seen[label] += 1
        if seen[label] <= most:
            kept.append(i)
    return kept


def _detection(candidates: CandidateBoxes, index: int, query: str) -> Detection:
    left, top, right, bottom = candidates.boxes[index].tolist()
    mask = candidates.mask(index) if candidates.mask else None
    score = min(float(candidates.scores[index]), 1.0)  # a product of rounded means can pass 1
    return Detection(query, score, (left, top, right, bottom), mask)
