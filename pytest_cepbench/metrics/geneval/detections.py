"""Detections: what a detector is asked for a prompt, and which of its answers the rules look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from pytest_cepbench.artifacts import Detection, Detections
from pytest_cepbench.errors import unknown_name
from pytest_cepbench.metrics.geneval.requirements import Prompt

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels."""

QueryStyle = Literal["class", "photo", "colored photo"]

QUERY_STYLES: tuple[QueryStyle, ...] = get_args(QueryStyle)
"""class: "bench", for fixed-set detectors. photo: "a photo of a bench". colored photo: "a photo
of a red bench" where the clause has a color, as the Telephone Game's released code asks."""

Found = Mapping[str, Sequence[Detection]]
"""Class -> the detections of that class, in any order; a class without any may be left out."""

Variant = Literal["geneval", "mgg-code"]


@dataclass(frozen=True)
class DetectorQuery:
    """Meaning of a query: a class and, where the query names one, a color."""

    name: str
    color: str | None = None


def queries(prompt: Prompt, style: QueryStyle) -> dict[str, DetectorQuery]:
    """The queries of a prompt, none twice, in the order of its clauses, excluded classes last.

    A class that is only excluded is asked for too; the Telephone Game's released code does not, so
    that such an exclusion always passes there (no published prompt has one). The article is always
    "a", as in the released code. Raises ValueError for an unknown style.
    """
    if style not in QUERY_STYLES:
        raise ValueError(unknown_name("query style", style, QUERY_STYLES))
    colored = style == "colored photo"
    wanted = [
        DetectorQuery(clause.name, clause.color if colored else None) for clause in prompt.include
    ]
    included = {clause.name for clause in prompt.include}
    wanted += [
        DetectorQuery(clause.name) for clause in prompt.exclude if clause.name not in included
    ]
    return {_words(clause, style): clause for clause in wanted}


def objects_by_class(
    detections: Detections, asked: Mapping[str, DetectorQuery]
) -> dict[str, tuple[Detection, ...]]:
    """The detections of each class, in the order they came.

    asked: as `queries` gave it. Clauses of one class share its detections, whatever color each
    asked for. What answers a query that names a color has that color from then on.
    Raises ValueError for a detection that answers no query.
    """
    objects_of: dict[str, list[Detection]] = {}
    for detection in detections.found:
        if detection.query not in asked:
            known = ", ".join(map(repr, asked))
            raise ValueError(
                f"a detection answers {detection.query!r}, which was not asked (asked: {known})"
            )
        meant = asked[detection.query]
        colored = replace(detection, color=meant.color) if meant.color else detection
        objects_of.setdefault(meant.name, []).append(colored)
    return {name: tuple(objects) for name, objects in objects_of.items()}


def _words(asked: DetectorQuery, style: QueryStyle) -> str:
    if style == "class":
        return asked.name
    what = f"{asked.color} {asked.name}" if asked.color else asked.name
    return f"a photo of a {what}"


@dataclass(frozen=True)
class SelectionSettings:
    """Strictness of the rules; the defaults are those of GenEval's released evaluator.

    variant: "geneval", or "mgg-code" for the rules of the Telephone Game's released code, which
    differ from those that its paper refers to: every detection above `threshold` counts in every
    task, colors are not looked at (the query asked for them), each subject box must have the
    relation to some target box, and `min_offset` is in pixels; counting_threshold, max_objects and
    max_overlap have no effect.
    threshold: score that a detection must exceed.
    counting_threshold: the same in task counting.
    max_objects: most detections of a class that are looked at, the most confident ones.
    max_overlap: intersection over union from which on the less confident of two detections of a
    class is dropped; 1 drops none.
    position_threshold, min_offset: see `relations`.
    Raises ValueError for a value out of its range.
    """

    threshold: float = 0.3
    counting_threshold: float = 0.9
    max_objects: int = 16
    max_overlap: float = 1.0
    position_threshold: float = 0.1
    min_offset: float = 0.5
    variant: Variant = "geneval"

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            raise ValueError(unknown_name("variant", self.variant, get_args(Variant)))
        for name in ("threshold", "counting_threshold", "max_overlap"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} lies in [0, 1], got {getattr(self, name)}")
        for name in ("position_threshold", "min_offset"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name} is not negative, got {getattr(self, name)}")
        if self.max_objects < 1:
            raise ValueError(f"max_objects is at least 1, got {self.max_objects}")


GENEVAL = SelectionSettings()
"""GenEval's released evaluator."""

MGG_CODE = SelectionSettings(threshold=0.1, variant="mgg-code")
"""The Telephone Game's released `mgg.py`."""


def keep_objects(
    prompt: Prompt, found: Found, settings: SelectionSettings
) -> dict[str, list[Detection]]:
    """The detections that count, for each class that the prompt names, most confident first.

    Equally confident ones stay in the order given, on every machine. The released evaluator
    reverses `numpy.argsort`, which is not stable: of boxes that are all equally confident it takes
    the last first, but beside others their order depends on NumPy's version and the processor, also
    for a handful of boxes. There is no order of its own to follow, and a gate needs the same one
    everywhere.
    """
    named = [clause.name for clause in prompt.include] + [clause.name for clause in prompt.exclude]
    return {name: _keep(prompt, found.get(name, ()), settings) for name in named}


def _keep(
    prompt: Prompt, detections: Sequence[Detection], settings: SelectionSettings
) -> list[Detection]:
    if settings.variant == "mgg-code":
        return _above(detections, settings.threshold)
    counting = prompt.task == "counting"
    sure = _above(detections, settings.counting_threshold if counting else settings.threshold)
    sure = sure[: settings.max_objects]
    return sure if settings.max_overlap == 1.0 else _suppress(sure, settings.max_overlap)


def _above(detections: Sequence[Detection], threshold: float) -> list[Detection]:
    sure = [detection for detection in detections if detection.score > threshold]
    return sorted(sure, key=lambda detection: -detection.score)


def _suppress(detections: Sequence[Detection], max_overlap: float) -> list[Detection]:
    """Greedy non-maximum suppression of detections sorted by confidence."""
    kept: list[Detection] = []
    for detection in detections:
        if all(_overlap(better.box, detection.box) < max_overlap for better in kept):
            kept.append(detection)
    return kept


def _overlap(first: Box, second: Box) -> float:
    """Intersection over union of boxes that include their last pixel, as in GenEval's evaluator."""
    both = (
        max(first[0], second[0]),
        max(first[1], second[1]),
        min(first[2], second[2]),
        min(first[3], second[3]),
    )
    shared = _area(both)
    return shared / (_area(first) + _area(second) - shared)


def _area(box: Box) -> float:
    return max(box[2] - box[0] + 1, 0.0) * max(box[3] - box[1] + 1, 0.0)
