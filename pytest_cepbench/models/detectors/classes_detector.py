"""The detector of a fixed set of classes, whatever network finds them.

What differs between networks is how a group of images of one size is looked at; each adapter brings
that function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from PIL import Image

from pytest_cepbench.artifacts import Detections, Failure
from pytest_cepbench.models.detectors.box_filter import CandidateBoxes, keep
from pytest_cepbench.models.detectors.class_names import ClassNames
from pytest_cepbench.models.detectors.detector_params import ClassesParams
from pytest_cepbench.models.torch_runtime import quiet

Asked = Mapping[int, tuple[str, ...]]
"""The classes that one image is asked for, as `ClassNames.asked` gives them."""

Look = Callable[[Sequence[Image.Image], Sequence[Asked]], Iterable[CandidateBoxes | Failure]]
"""Candidates of each image, in order; the images have one size. May leave out what is not asked for."""


class ClassesDetector:
    """A loaded detector of fixed classes; satisfies the Detector Protocol."""

    def __init__(self, classes: ClassNames, params: ClassesParams, look: Look) -> None:
        self._classes = classes
        self._params = params
        self._look = look

    def detect(
        self, images: Sequence[Image.Image], queries: Sequence[Sequence[str]]
    ) -> list[Detections | Failure]:
        """Objects of the classes that are asked for, with masks where the network draws them.

        Raises RoleError for a query that is no class of the checkpoint.
        """
        import torch

        asked = [self._classes.asked(wanted) for wanted in queries]
        found: dict[int, Detections | Failure] = {}
        with quiet(), torch.inference_mode():
            for indices in _same_sizes(images):
                seen = self._look([images[i] for i in indices], [asked[i] for i in indices])
                for i, candidates in zip(indices, seen, strict=True):
                    found[i] = self._keep(candidates, asked[i])
        return [found[i] for i in range(len(images))]

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
