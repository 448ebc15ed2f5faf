"""Detectors of a fixed set of classes: class names, and object detectors of transformers.

Networks differ in how they find candidates in a group of images of one size; each adapter brings
that function. Boxes and scores of an object detector are those of the checkpoint's own
post-processing; kept are those of the requested classes above the threshold. These detectors draw
no masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from PIL import Image

from pytest_cepbench.artifacts import Detections, Failure
from pytest_cepbench.errors import RoleError, unknown_name
from pytest_cepbench.models.checkpoints import Checkpoint
from pytest_cepbench.models.detectors.box_filter import CandidateBoxes, keep
from pytest_cepbench.models.detectors.transformers_detector import (
    ClassesParams,
    identity_params,
    load_parts,
)
from pytest_cepbench.models.load_plan import LoadPlan, bind_plan, make_plan
from pytest_cepbench.models.model_spec import ModelSpec
from pytest_cepbench.models.protocols import BindContext, BoundRole
from pytest_cepbench.models.torch_runtime import quiet, require

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
                msg = (
                    f"{self._checkpoint.path}: {self._checkpoint.what} finds its own classes only, "
                    f"asked for by their plain names: {unknown_name('class', query, self._known)}"
                )
                raise RoleError(msg)
            queries_of[index] = (*queries_of.get(index, ()), query)
        return queries_of


def _plain(name: str) -> str:
    return " ".join(name.lower().split())


Asked = Mapping[int, tuple[str, ...]]
"""The classes that one image is asked for, as `ClassNames.asked` gives them."""

FindBoxes = Callable[[Sequence[Image.Image], Sequence[Asked]], Iterable[CandidateBoxes | Failure]]
"""Candidates of each image of one size, in order; those of other classes may be left out."""


class ClassesDetector:
    """A loaded detector of fixed classes; satisfies the Detector Protocol."""

    def __init__(self, classes: ClassNames, params: ClassesParams, find_boxes: FindBoxes) -> None:
        self._classes = classes
        self._params = params
        self._find = find_boxes

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> list[Detections | Failure]:
        """Objects of the classes that are asked for, with masks where the network draws them.

        Raises RoleError for a query that is no class of the checkpoint.
        """
        import torch

        asked = [self._classes.asked(wanted) for wanted in queries]
        results: dict[int, Detections | Failure] = {}
        with quiet(), torch.inference_mode():
            for indices in _same_sizes(images):
                proposed = self._find([images[i] for i in indices], [asked[i] for i in indices])
                for i, candidates in zip(indices, proposed, strict=True):
                    results[i] = self._keep(candidates, asked[i])
        return [results[i] for i in range(len(images))]

    def _keep(self, candidates: CandidateBoxes | Failure, asked: Asked) -> Detections | Failure:
        if isinstance(candidates, Failure):
            return candidates
        return keep(
            candidates,
            asked,
            threshold=self._params.threshold,
            nms=self._params.nms,
            most_per_class=self._params.max_per_class,
        )


def _same_sizes(images: Sequence[Image.Image]) -> Iterator[list[int]]:
    """Indices of the images of each size, so that a batch needs no padding to a common one.

    Padding reaches the features of these networks: what is found in an image would depend on the
    sizes of its neighbours.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for index, image in enumerate(images):
        groups.setdefault(image.size, []).append(index)
    yield from groups.values()


ADAPTER = "boxes-detector/1"


def bind_boxes(spec: ModelSpec, checkpoint: Checkpoint, context: BindContext) -> BoundRole:
    """Resolve an object detector without importing torch. Raises as `bind_detector`."""
    require("torch", "transformers")
    plan = make_plan("detector", ClassesParams, spec, checkpoint, context)
    return bind_plan(plan, adapter=ADAPTER, load=lambda: _load(plan), params=identity_params(plan))


def _load(plan: LoadPlan[ClassesParams]) -> ClassesDetector:
    model, processor = load_parts(plan, "AutoModelForObjectDetection")
    if not hasattr(processor, "post_process_object_detection"):
        msg = (
            f"{plan.checkpoint.path}: {type(processor).__name__} cannot tell boxes from the "
            f"outputs of {plan.checkpoint.what}. Give an object detector (DETR, RT-DETR, YOLOS)"
        )
        raise RoleError(msg)
    classes = ClassNames(plan.checkpoint, model.config.id2label)
    find_boxes = partial(_find_boxes, model, processor, plan.params.threshold)
    return ClassesDetector(classes, plan.params, find_boxes)


def _find_boxes(
    model: Any,
    processor: Any,
    threshold: float,
    images: Sequence[Image.Image],
    asked: Sequence[Asked],  # noqa: ARG001 - of `FindBoxes`; the library gives all classes
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
