"""What the detectors of transformers share, and that of OWLv2 and OWL-ViT: queries in free text.

As in Semantic Drift's `mgg.py`, every box of OWL has the one query that fits it best, and is kept
when the sigmoid of that logit is above the threshold; objectness is not used. A box is in pixels of
the image as it was given, and may reach over its edge.

OWLv2 pads an image to a square at the right and the bottom, so 1 stands for the long edge in both
directions; OWL-ViT squeezes the image into the square. Released versions of transformers have
mapped OWLv2's boxes as if it squeezed too (huggingface/transformers#27205); the mapping here is our
own. The library also fills up ragged lists of queries with blanks that can win a box; here they
cannot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import Detection, Detections, Failure, Mask
from pytest_cepbench.errors import CheckpointError
from pytest_cepbench.models.checkpoints.binding import Adapter, LoadPlan
from pytest_cepbench.models.checkpoints.loaded_checks import (
    TruncationNotice,
    check_vocabulary,
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
from pytest_cepbench.models.spec import check_at_least, check_number
from pytest_cepbench.models.torch_runtime import backend_option, quiet


@dataclass(frozen=True)
class DetectorParams(TransformersParams):
    """Parameters of every detector's spec, with those of `TransformersParams`.

    threshold: a box is kept when its score is above it.
    """

    threshold: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "threshold", most=1)

    @property
    def decisive(self) -> dict[str, Any]:
        """What decides which boxes are kept; "nms" is in keys since boxes could be suppressed."""
        return {**super().decisive, "threshold": self.threshold, "nms": None}


@dataclass(frozen=True)
class OwlParams(DetectorParams):
    """Parameters of a detector that is asked in free text.

    The default of threshold is that of Semantic Drift's `mgg.py`.
    """

    @property
    def decisive(self) -> dict[str, Any]:
        """With what may be asked; "most" is in all keys since there was a limit of boxes."""
        return {"queries": "free-text", **super().decisive, "most": None}


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
    order = [
        i
        for i in np.argsort(-scores, kind="stable").tolist()
        if scores[i] > threshold and int(candidates.labels[i]) in names
    ]
    left: Counter[int] = Counter()
    detections: list[Detection] = []
    for i in order:
        label = int(candidates.labels[i])
        if most_per_class is None or left[label] < most_per_class:
            left[label] += 1
            x1, y1, x2, y2 = boxes[i].tolist()
            mask = candidates.mask(i) if candidates.mask else None
            score = min(float(scores[i]), 1.0)  # a product of rounded means can pass 1
            detections += [Detection(q, score, (x1, y1, x2, y2), mask) for q in names[label]]
    return Detections(tuple(detections))


def _load(plan: LoadPlan[OwlParams]) -> OwlDetector:
    from transformers import AutoTokenizer

    model, processor = load_parts(plan, "AutoModelForZeroShotObjectDetection")
    with explained(plan.checkpoint), quiet(), plan.checkpoint.preparation_folder() as folder:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        first = tokenizer("a")["input_ids"][0]
    check_vocabulary(plan.checkpoint.tokenizer_folder, type(tokenizer).__name__)
    if tokenizer.pad_token_id is None or first == 0:
        wrong = "begins a text with id 0" if first == 0 else "has no pad token"
        raise CheckpointError(
            f"{plan.checkpoint.path}: the tokenizer {wrong}. OWL needs texts of one length, and "
            "never finds a query whose first id is 0. Save the tokenizer that the model was "
            "trained with"
        )
    notice = TruncationNotice(plan.checkpoint.what)
    return OwlDetector(model, processor, tokenizer, plan.params, notice)


ADAPTER = Adapter(
    "owl-detector/1",
    ("torch", "torchvision", "transformers", "scipy"),  # OWLv2's own resizing is scipy's
    OwlParams,
    _load,
)


@dataclass(frozen=True)
class OwlDetector:
    """A loaded OWL model; satisfies the Detector Protocol.

    notice: says once that queries were cut.
    """

    model: Any
    processor: Any
    tokenizer: Any
    params: OwlParams
    notice: TruncationNotice

    def move(self, device: str) -> None:
        """Put the weights on a device; see `Movable`."""
        self.model.to(device)

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> list[Detections | Failure]:
        """Boxes for each image's queries; numbers of queries may differ.

        Queries longer than the model reads are cut, which is said once in a warning.
        """
        import torch

        device = input_device(self.model)
        config = self.model.config.text_config
        longest = min(int(self.tokenizer.model_max_length), int(config.max_position_embeddings))
        # Each image's queries are filled up with its first.
        most = max(len(asked) for asked in queries)
        texts = [text for asked in queries for text in [*asked, *[asked[0]] * (most - len(asked))]]
        distinct = {text: None for asked in queries for text in asked}
        with quiet(), torch.inference_mode():
            whole = self.tokenizer(list(distinct))["input_ids"]
            tokens = self.tokenizer(
                texts,
                padding="max_length",
                truncation=True,
                max_length=longest,
                return_tensors="pt",
            )
            pixels = self.processor(images=list(images), return_tensors="pt")
            output = self.model(
                **{name: tokens[name].to(device) for name in ("input_ids", "attention_mask")},
                pixel_values=pixels.to(device, dtype=self.model.dtype)["pixel_values"],
            )
            logits, boxes = output.logits.float().cpu(), output.pred_boxes.float().cpu()
            detections = [
                self._keep(logits[i, :, : len(asked)], boxes[i], image, asked)
                for i, (image, asked) in enumerate(zip(images, queries, strict=True))
            ]
        self.notice.check([len(ids) for ids in whole], longest)
        return detections

    def _keep(
        self, logits: Any, boxes: Any, image: Image.Image, asked: Sequence[str]
    ) -> Detections | Failure:
        import torch
        from torchvision.ops import box_convert

        best = logits.max(dim=-1)
        # Whether the image was padded or squeezed is what the image processor did, whatever the
        # model; OWL-ViT's has no such setting.
        padded = bool(getattr(self.processor, "do_pad", False))
        width, height = (max(image.size),) * 2 if padded else image.size
        corners = box_convert(boxes, "cxcywh", "xyxy") * torch.tensor([width, height] * 2)
        candidates = CandidateBoxes(
            boxes=corners.numpy(),
            scores=best.values.sigmoid().numpy(),
            labels=best.indices.numpy(),
        )
        return keep(
            candidates,
            {label: (query,) for label, query in enumerate(asked)},
            threshold=self.params.threshold,
        )
