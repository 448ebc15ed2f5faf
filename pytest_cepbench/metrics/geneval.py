"""GenEval and MGG: whether images show what their prompts ask for, from what a detector found.

In order: `queries` for the detector, `objects_by_class` of its answers, `objects_to_color` for the
color rule, `judge`; then the accuracies over all images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_cepbench.artifacts import Detection
from pytest_cepbench.metrics.gc import FloatArray, directed, mean_of_categories, unit_vectors
from pytest_cepbench.metrics.geneval_prompts import (
    GENEVAL,
    Box,
    Clause,
    Found,
    Prompt,
    Relation,
    SelectionSettings,
    keep_objects,
)

COLORS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white")
"""The ten colors, in the order of the released evaluator."""

TEMPLATES = (
    "a photo of a {color} {name}",
    "a photo of a {color}-colored {name}",
    "a photo of a {color} object",
)
"""Texts of each color and class."""

_CANVAS = (0x99, 0x99, 0x99)


def color_prompts(name: str) -> tuple[tuple[str, ...], ...]:
    """The texts for a class: one row for each of `COLORS`, one column for each of `TEMPLATES`."""
    return tuple(
        tuple(template.format(color=color, name=name) for template in TEMPLATES) for color in COLORS
    )


def zero_shot_color(image_vectors: FloatArray, text_vectors: FloatArray) -> list[str]:
    """The color of each cut-out object.

    image_vectors: (n, d) of the cut-outs (`crop_object`).
    text_vectors: (10, 3, d) of the texts of their class (`color_prompts`); any lengths. A color's
    vector is the mean of its texts' unit vectors, normalised again; the color of an object is the
    one of the largest cosine, the earlier in `COLORS` where two are equal.
    Source: the GenEval evaluator as released.
    Raises ValueError for other shapes and for vectors that are zero or not finite.
    """
    shape = (len(COLORS), len(TEMPLATES))
    if (
        image_vectors.ndim != 2
        or text_vectors.ndim != 3
        or text_vectors.shape != (*shape, image_vectors.shape[1])
    ):
        raise ValueError(
            f"expected (n, d) and ({shape[0]}, {shape[1]}, d), "
            f"got {image_vectors.shape} and {text_vectors.shape}"
        )
    names = unit_vectors(directed(unit_vectors(directed(text_vectors)).mean(axis=1)))
    cosines = unit_vectors(directed(image_vectors)) @ names.T
    return [COLORS[index] for index in np.argmax(cosines, axis=1)]


def crop_object(image: Image.Image, detection: Detection) -> Image.Image:
    """The RGB pixels that tell an object's color: its box, on a grey ground where there is a mask.

    Pixels outside the mask become #999. The box is rounded to whole pixels and cut at the image's
    edge, where the released evaluator would go on in black (its boxes, tight around masks, never
    get there); at least one pixel is left.
    Raises ValueError for a mask of another size than the image.
    """
    whole = image.convert("RGB")
    if detection.mask is not None:
        if (detection.mask.width, detection.mask.height) != whole.size:
            width, height = whole.size
            raise ValueError(
                f"a mask of {detection.mask.width} x {detection.mask.height} pixels does not fit "
                f"an image of {width} x {height}"
            )
        inside = Image.fromarray(detection.mask.to_array().astype(np.uint8) * 255)
        whole = Image.composite(whole, Image.new("RGB", whole.size, _CANVAS), inside)
    box = detection.box
    left = min(max(round(box[0]), 0), whole.width - 1)
    top = min(max(round(box[1]), 0), whole.height - 1)
    right = max(min(round(box[2]), whole.width), left + 1)
    bottom = max(min(round(box[3]), whole.height), top + 1)
    return whole.crop((left, top, right, bottom))


_NOWHERE = 1e-3
"""An offset of less than this many pixels along both axes, net of the margin, is no relation."""


@dataclass(frozen=True)
class ToColor:
    """A detection whose color decides, and the class that it was taken for."""

    name: str
    detection: Detection


def objects_to_color(
    prompt: Prompt, found: Found, settings: SelectionSettings = GENEVAL
) -> tuple[ToColor, ...]:
    """The detections whose color `judge` needs and does not have yet, none twice.

    These are the most confident `count` of each clause that has a color, where there are as many;
    detections that carry a color are left out.
    """
    kept = keep_objects(prompt, found, settings)
    needed = [
        ToColor(clause.name, detection)
        for clause in prompt.include
        if clause.color is not None and len(kept[clause.name]) >= clause.count
        for detection in kept[clause.name][: clause.count]
        if detection.color is None
    ]
    return tuple(dict.fromkeys(needed))


def judge(
    prompt: Prompt,
    found: Found,
    colors: Mapping[ToColor, str],
    settings: SelectionSettings = GENEVAL,
) -> tuple[str, ...]:
    """What is wrong with an image: what is included and not there, and what is excluded and there.

    found: class -> detections of that class (see `objects_by_class`).
    colors: the color of everything that `objects_to_color` names.
    Returns a sentence for each demand that is not met; none of a right image.
    Source: the GenEval evaluator as released, to whose rules the Telephone Game's paper refers too
    (section 3.2). A clause is judged by its most confident `count` detections alone: a further one
    of the right color or in the right place does not help. A clause that fails in any way is no
    target for a later one.
    Raises ValueError where a color is needed that is neither in `colors` nor told by the detector.
    """
    kept = keep_objects(prompt, found, settings)
    reasons: list[str] = []
    groups: list[Sequence[Detection] | None] = []
    for clause in prompt.include:
        objects = kept[clause.name][: clause.count]
        wrong = _what_is_wrong(clause, objects, groups, colors, settings)
        groups.append(None if wrong else objects)
        reasons += [wrong] if wrong else []
    for exclusion in prompt.exclude:
        number = len(kept[exclusion.name])
        if number >= exclusion.count:
            reasons.append(
                f"fewer than {exclusion.count} {exclusion.name} expected, {number} found"
            )
    return tuple(reasons)


def _what_is_wrong(
    clause: Clause,
    objects: Sequence[Detection],
    groups: Sequence[Sequence[Detection] | None],
    colors: Mapping[ToColor, str],
    settings: SelectionSettings,
) -> str | None:
    """The first demand of a clause that its objects do not meet: number, color, place."""
    if len(objects) < clause.count:
        return f"{clause.count} {clause.name} expected, {len(objects)} found"
    if clause.color is not None:
        colored = []
        for detection in objects:
            color = detection.color or colors.get(ToColor(clause.name, detection))
            if color is None:
                raise ValueError(
                    f"the color of {clause.name!r} at {detection.box} is needed and was not told: "
                    "pass the colors of all that objects_to_color names"
                )
            colored.append(color)
        if colored.count(clause.color) < clause.count:
            wanted = f"{clause.count} {clause.color} {clause.name}"
            return f"{wanted} expected, found {', '.join(colored)}"
    if clause.position is None:
        return None
    relation, targets = clause.position.relation, groups[clause.position.target]
    if targets is None:
        return f"nothing that {clause.name} could be {relation}"
    for subject in objects:
        seen = [
            relations(
                subject.box,
                target.box,
                position_threshold=settings.position_threshold,
                min_offset=settings.min_offset,
            )
            for target in targets
        ]
        if not all(relation in some for some in seen):
            actual = " or ".join(sorted({" and ".join(sorted(some)) or "neither" for some in seen}))
            return f"{clause.name} {relation} its target expected, found {actual}"
    return None


def relations(
    subject: Box, target: Box, *, position_threshold: float = 0.1, min_offset: float = 0.5
) -> frozenset[Relation]:
    """The relations of a box to another: none, one, or two on a diagonal.

    subject, target: left, top, right, bottom in pixels.
    position_threshold: share of the summed widths (heights) that is taken off the centers' offset.
    min_offset: what must be exceeded by the rest of the offset as a share of the centers' whole
    distance.
    Source: the GenEval evaluator as released.
    """
    across = _beyond(subject[0], subject[2], target[0], target[2], position_threshold)
    down = _beyond(subject[1], subject[3], target[1], target[3], position_threshold)
    if abs(across) < _NOWHERE and abs(down) < _NOWHERE:
        return frozenset()
    unit = hypot(
        (subject[0] + subject[2]) / 2 - (target[0] + target[2]) / 2,
        (subject[1] + subject[3]) / 2 - (target[1] + target[3]) / 2,
    )
    judged: tuple[tuple[Relation, float], ...] = (
        ("left of", -across),
        ("right of", across),
        ("above", -down),
        ("below", down),
    )
    return frozenset(relation for relation, offset in judged if offset / unit > min_offset)


def _beyond(low: float, high: float, target_low: float, target_high: float, share: float) -> float:
    """Offset of the centers along one axis, less the margin; 0 within it."""
    offset = (low + high) / 2 - (target_low + target_high) / 2
    rest = max(abs(offset) - share * ((high - low) + (target_high - target_low)), 0.0)
    return rest if offset > 0 else -rest


BoolArray = npt.NDArray[np.bool_]


def overall_accuracy(correct: BoolArray, tasks: Sequence[str]) -> float:
    """GenEval's overall score: unweighted mean of the accuracies of the tasks that are there.

    correct: (n,), one for every image that was to be made, or (n, G) for G generations, which are
    pooled. An image that is missing is wrong; the released evaluators of GenEval and MGG leave it
    out of the number of images instead.
    tasks: the n images' tasks.
    Returns a share in [0, 1].
    Source: GenEval's released summary; the Telephone Game, section 3.2. For (n, G) it is MGG, as
    every prompt has as many generations; the Telephone Game's released code pools images over
    tasks as well.
    Raises ValueError where there is no image or the lengths differ.
    """
    if len(correct) != len(tasks) or not correct.size:
        raise ValueError(
            f"expected one task per image and an image, got {correct.shape} and {len(tasks)} tasks"
        )
    names = np.array(tasks)
    scores = correct.astype(np.float64)
    return mean_of_categories({task: scores[names == task].ravel() for task in set(tasks)})
