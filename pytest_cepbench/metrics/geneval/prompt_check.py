"""GenEval's rules: is an image right for its prompt; if not, why; and the accuracies of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot

import numpy as np
import numpy.typing as npt

from pytest_cepbench.artifacts import Detection
from pytest_cepbench.metrics.gc import mean_of_categories
from pytest_cepbench.metrics.geneval.detections import (
    GENEVAL,
    Box,
    Found,
    SelectionSettings,
    keep_objects,
)
from pytest_cepbench.metrics.geneval.requirements import Clause, Prompt, Relation

_NOWHERE = 1e-3
"""An offset of less than this many pixels along both axes, net of the margin, is no relation."""


@dataclass(frozen=True)
class PromptResult:
    """Judgement of an image. reasons: one sentence for each demand that is not met."""

    correct: bool
    reasons: tuple[str, ...] = ()


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
    detections that carry a color are left out. None in the variant "mgg-code".
    """
    kept = keep_objects(prompt, found, settings)
    needed = [
        ToColor(clause.name, detection)
        for clause in prompt.include
        if _looks_at_color(clause, settings) and len(kept[clause.name]) >= clause.count
        for detection in kept[clause.name][: clause.count]
        if detection.color is None
    ]
    return tuple(dict.fromkeys(needed))


def judge(
    prompt: Prompt,
    found: Found,
    colors: Mapping[ToColor, str],
    settings: SelectionSettings = GENEVAL,
) -> PromptResult:
    """Judge an image: everything included must be there, and nothing excluded.

    found: class -> detections of that class (see `objects_by_class`).
    colors: the color of everything that `objects_to_color` names.
    Source: the GenEval evaluator as released, and for "mgg-code" the Telephone Game's; the latter's
    paper (section 3.2) refers to GenEval's rules and does not mention what its code changes. A
    clause is judged by its most confident `count` detections alone: a further one of the right
    color or in the right place does not help. A clause that fails in any way is no target for a
    later one.
    Raises ValueError where a color is needed that is neither in `colors` nor told by the detector.
    """
    kept = keep_objects(prompt, found, settings)
    reasons: list[str] = []
    groups: list[Sequence[Detection] | None] = []
    for clause in prompt.include:
        objects = kept[clause.name]
        if settings.variant == "geneval":
            objects = objects[: clause.count]
        wrong = (
            _miscounted(clause, objects)
            or _miscolored(clause, objects, colors, settings)
            or _misplaced(clause, objects, groups, settings)
        )
        groups.append(None if wrong else objects)
        reasons += [wrong] if wrong else []
    for exclusion in prompt.exclude:
        number = len(kept[exclusion.name])
        if number >= exclusion.count:
            reasons.append(
                f"fewer than {exclusion.count} {exclusion.name} expected, {number} found"
            )
    return PromptResult(not reasons, tuple(reasons))


def _miscounted(clause: Clause, objects: Sequence[Detection]) -> str | None:
    if len(objects) >= clause.count:
        return None
    return f"{clause.count} {clause.name} expected, {len(objects)} found"


def _looks_at_color(clause: Clause, settings: SelectionSettings) -> bool:
    return clause.color is not None and settings.variant == "geneval"


def _miscolored(
    clause: Clause,
    objects: Sequence[Detection],
    colors: Mapping[ToColor, str],
    settings: SelectionSettings,
) -> str | None:
    if not _looks_at_color(clause, settings):
        return None
    colored = [_color(ToColor(clause.name, detection), colors) for detection in objects]
    if colored.count(str(clause.color)) >= clause.count:
        return None
    return f"{clause.count} {clause.color} {clause.name} expected, found {', '.join(colored)}"


def _color(needed: ToColor, colors: Mapping[ToColor, str]) -> str:
    color = needed.detection.color or colors.get(needed)
    if color is None:
        raise ValueError(
            f"the color of {needed.name!r} at {needed.detection.box} is needed and was not told: "
            "pass the colors of all that objects_to_color names"
        )
    return color


def _misplaced(
    clause: Clause,
    objects: Sequence[Detection],
    groups: Sequence[Sequence[Detection] | None],
    settings: SelectionSettings,
) -> str | None:
    if clause.position is None:
        return None
    relation = clause.position.relation
    targets = groups[clause.position.target]
    if targets is None:
        return f"nothing that {clause.name} could be {relation}"
    of_targets = all if settings.variant == "geneval" else any
    for subject in objects:
        seen = [_relations(subject, target, settings) for target in targets]
        if not of_targets(relation in some for some in seen):
            actual = " or ".join(sorted({" and ".join(sorted(some)) or "neither" for some in seen}))
            return f"{clause.name} {relation} its target expected, found {actual}"
    return None


def _relations(
    subject: Detection, target: Detection, settings: SelectionSettings
) -> frozenset[str]:
    return relations(
        subject.box,
        target.box,
        position_threshold=settings.position_threshold,
        min_offset=settings.min_offset,
        in_pixels=settings.variant == "mgg-code",
    )


def relations(
    subject: Box,
    target: Box,
    *,
    position_threshold: float = 0.1,
    min_offset: float = 0.5,
    in_pixels: bool = False,
) -> frozenset[Relation]:
    """The relations of a box to another: none, one, or two on a diagonal.

    subject, target: left, top, right, bottom in pixels.
    position_threshold: share of the summed widths (heights) that is taken off the centers' offset.
    min_offset: what must be exceeded by the rest of the offset as a share of the centers' whole
    distance.
    Source: the GenEval evaluator as released.
    in_pixels: compare the rest in pixels with min_offset, as the Telephone Game's released code
    does: it never finds fewer relations between centers a pixel or more apart, and often finds more
    (a box 300 pixels above and 6 to the left is "left of" as well). Its paper means GenEval's rule.
    """
    across = _beyond(subject[0], subject[2], target[0], target[2], position_threshold)
    down = _beyond(subject[1], subject[3], target[1], target[3], position_threshold)
    if abs(across) < _NOWHERE and abs(down) < _NOWHERE:
        return frozenset()
    unit = 1.0 if in_pixels else _distance(subject, target)
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


def _distance(subject: Box, target: Box) -> float:
    across = (subject[0] + subject[2]) / 2 - (target[0] + target[2]) / 2
    down = (subject[1] + subject[3]) / 2 - (target[1] + target[3]) / 2
    return hypot(across, down)


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


def overall_by_generation(correct: BoolArray, tasks: Sequence[str]) -> npt.NDArray[np.float64]:
    """GenEval's overall score at each generation: (n, G) -> (G,), in [0, 1]; its mean is MGG."""
    if correct.ndim != 2 or correct.shape[1] == 0:
        raise ValueError(f"expected (n, G) with G at least 1, got {correct.shape}")
    return np.array([overall_accuracy(column, tasks) for column in correct.T])
