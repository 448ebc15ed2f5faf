"""GenEval's prompts: their clauses, the facts these demand, and what a detector is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec

from pytest_cepbench.artifacts import Detection, Detections

Task = Literal["single_object", "two_object", "counting", "colors", "position", "color_attr"]

TASKS: tuple[Task, ...] = get_args(Task)
"""The six tasks, in the order of the prompt suite."""

Relation = Literal["left of", "right of", "above", "below"]
"""Position of one object relative to another, as seen in the image."""

_Name = Annotated[str, msgspec.Meta(pattern=r"\S")]


class Position(NamedTuple):
    """Required position of an object.

    relation: of this object to its target.
    target: index of the target's clause, an earlier one.
    """

    relation: Relation
    target: Annotated[int, msgspec.Meta(ge=0)]


class Exclusion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Objects that must not be there: `count` or more of class `name`."""

    name: _Name = msgspec.field(name="class")
    count: Annotated[int, msgspec.Meta(ge=1)]


class Clause(Exclusion, frozen=True, omit_defaults=True):
    """Objects that must be there: at least `count` of the class, of that color, in that place."""

    color: _Name | None = None
    position: Position | None = None


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requirements of a right image: all that is included, nothing that is excluded.

    Raises ValueError for a position that points to its own or a later clause: a target is judged
    before what is placed by it.
    """

    task: Task = msgspec.field(name="tag")
    include: Annotated[tuple[Clause, ...], msgspec.Meta(min_length=1)]
    exclude: tuple[Exclusion, ...] = ()

    def __post_init__(self) -> None:
        for index, clause in enumerate(self.include):
            if clause.position is not None and clause.position.target >= index:
                raise ValueError(
                    f"include[{index}]: position: clause {clause.position.target} is not an "
                    "earlier one; the target stands before what is placed by it"
                )


def parse_prompt(metadata: Mapping[str, Any]) -> Prompt:
    """The clauses in a prompt's metadata.

    metadata: as in a line of GenEval's `evaluation_metadata.jsonl`: "tag", "include" and, where
    there is one, "exclude"; other fields are not read.
    Raises ValueError naming the field, also for one that no clause has: a misspelt one would be a
    demand that is never made.
    """
    try:
        return msgspec.convert(dict(metadata), Prompt)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def prompt_metadata(prompt: Prompt) -> dict[str, Any]:
    """A prompt's metadata as built-in types, fields in the order of the published file."""
    metadata: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(prompt))
    return metadata


@dataclass(frozen=True)
class PromptAtom:
    """One demand of a prompt.

    kind: of the fact, one of `metrics.facts.KINDS`.
    clause, target: the clauses that it is about; the target of a relation alone.
    """

    kind: str
    clause: Clause
    target: Clause | None = None


def prompt_atoms(prompt: Prompt) -> tuple[PromptAtom, ...]:
    """The demands of a prompt, each once, in the order of its clauses.

    object    one object of the class is there
    count     as many as the clause says, and no more where the prompt excludes more; left out of
              clauses of one object that exclude nothing
    color     as many as the clause says have its color
    relation  they stand where the clause says
    """
    atoms: dict[tuple[object, ...], PromptAtom] = {}
    for clause in prompt.include:
        name, count = clause.name, clause.count
        atoms["object", name] = PromptAtom("object", clause)
        if count > 1 or any(own.name == name for own in prompt.exclude):
            atoms["count", count, name] = PromptAtom("count", clause)
        if clause.color is not None:
            atoms["color", clause.color, name] = PromptAtom("color", clause)
        if clause.position is not None:
            target = prompt.include[clause.position.target]
            key = ("relation", name, clause.position.relation, target.name)
            atoms[key] = PromptAtom("relation", clause, target)
    return tuple(atoms.values())


Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels."""

QueryStyle = Literal["class", "photo"]
"""class: "bench", for fixed-set detectors. photo: "a photo of a bench"."""

Found = Mapping[str, Sequence[Detection]]
"""Class -> the detections of that class, in any order; a class without any may be left out."""


def queries(prompt: Prompt, style: QueryStyle) -> dict[str, str]:
    """Query -> class that it asks for, in the order of the clauses, excluded classes last.

    A class that is only excluded is asked for too; the Telephone Game's released code does not, so
    that such an exclusion always passes there (no published prompt has one). The article is always
    "a", as in the released code.
    """
    names = [*(own.name for own in prompt.include), *(own.name for own in prompt.exclude)]
    return {name if style == "class" else f"a photo of a {name}": name for name in names}


def objects_by_class(
    detections: Detections, asked: Mapping[str, str]
) -> dict[str, tuple[Detection, ...]]:
    """The detections of each class, in the order they came.

    asked: as `queries` gave it. Raises ValueError for a detection that answers no query.
    """
    objects_of: dict[str, list[Detection]] = {}
    for detection in detections.found:
        if detection.query not in asked:
            known = ", ".join(map(repr, asked))
            raise ValueError(
                f"a detection answers {detection.query!r}, which was not asked (asked: {known})"
            )
        objects_of.setdefault(asked[detection.query], []).append(detection)
    return {name: tuple(objects) for name, objects in objects_of.items()}


@dataclass(frozen=True)
class SelectionSettings:
    """Strictness of the rules; the defaults are those of GenEval's released evaluator.

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

    def __post_init__(self) -> None:
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
    counting = prompt.task == "counting"
    threshold = settings.counting_threshold if counting else settings.threshold
    objects: dict[str, list[Detection]] = {}
    for name in [*(own.name for own in prompt.include), *(own.name for own in prompt.exclude)]:
        sure = [own for own in found.get(name, ()) if own.score > threshold]
        sure.sort(key=lambda detection: -detection.score)
        sure = sure[: settings.max_objects]
        if settings.max_overlap < 1.0:  # greedy non-maximum suppression
            kept: list[Detection] = []
            for own in sure:
                if all(_overlap(better.box, own.box) < settings.max_overlap for better in kept):
                    kept.append(own)
            sure = kept
        objects[name] = sure
    return objects


def _overlap(first: Box, second: Box) -> float:
    """Intersection over union of boxes that include their last pixel, as in GenEval's evaluator."""
    both = (*map(max, first[:2], second[:2]), *map(min, first[2:], second[2:]))
    shared, *areas = (
        max(box[2] - box[0] + 1, 0.0) * max(box[3] - box[1] + 1, 0.0)
        for box in (both, first, second)
    )
    return shared / (sum(areas) - shared)
