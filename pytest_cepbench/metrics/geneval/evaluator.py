"""Whether an image shows what its prompt asks for: GenEval's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_cepbench.artifacts import Detection
from pytest_cepbench.metrics.geneval.relations import relations
from pytest_cepbench.metrics.geneval.requirements import Clause, Prompt
from pytest_cepbench.metrics.geneval.selection import (
    GENEVAL,
    Found,
    SelectionSettings,
    keep_objects,
)


@dataclass(frozen=True)
class PromptResult:
    """How an image was judged. reasons: one sentence for each demand that is not met."""

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
    """The detections whose color `judge` needs and nobody has told yet, none twice.

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
    """Whether everything included is there and nothing excluded.

    found: class -> detections of that class (see `objects_by_class`).
    colors: the color of everything that `objects_to_color` names.
    Source: the GenEval evaluator as released, and for "mgg-code" the Telephone Game's; the latter's
    paper (section 3.2) refers to GenEval's rules and does not mention what its code changes. A
    clause is judged by its most confident `count` detections alone: a further one of the right color
    or in the right place does not help. A clause that fails in any way is no target for a later one.
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
    for one in prompt.exclude:
        number = len(kept[one.name])
        if number >= one.count:
            reasons.append(f"fewer than {one.count} {one.name} expected, {number} found")
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
    told = [_color(ToColor(clause.name, detection), colors) for detection in objects]
    if told.count(str(clause.color)) >= clause.count:
        return None
    return f"{clause.count} {clause.color} {clause.name} expected, found {', '.join(told)}"


def _color(needed: ToColor, colors: Mapping[ToColor, str]) -> str:
    color = needed.detection.color or colors.get(needed)
    if color is None:
        msg = (
            f"the color of {needed.name!r} at {needed.detection.box} is needed and was not told: "
            "pass the colors of all that objects_to_color names"
        )
        raise ValueError(msg)
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
            found = " or ".join(sorted({" and ".join(sorted(some)) or "neither" for some in seen}))
            return f"{clause.name} {relation} its target expected, found {found}"
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
