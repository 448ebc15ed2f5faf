"""GenEval's prompts: their clauses, the facts these demand, and what a detector is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard, get_args

from pytest_cepbench.artifacts import Detection, Detections
from pytest_cepbench.errors import unknown_name

Task = Literal["single_object", "two_object", "counting", "colors", "position", "color_attr"]

TASKS: tuple[Task, ...] = get_args(Task)
"""The six tasks, in the order of the prompt suite."""

Relation = Literal["left of", "right of", "above", "below"]

RELATIONS: tuple[Relation, ...] = get_args(Relation)
"""Position of one object relative to another, as seen in the image."""

_CLAUSE_FIELDS = {"class", "count", "color", "position"}
_EXCLUSION_FIELDS = {"class", "count"}


@dataclass(frozen=True)
class Position:
    """Required position of an object.

    relation: of this object to its target.
    target: index of the target's clause, an earlier one.
    Raises ValueError for an unknown relation or an index that is not a whole number from 0.
    """

    relation: Relation
    target: int

    def __post_init__(self) -> None:
        if self.relation not in RELATIONS:
            raise ValueError(f"position: {unknown_name('relation', str(self.relation), RELATIONS)}")
        if not _is_whole(self.target) or self.target < 0:
            raise ValueError(
                f"position: the index of a clause is a whole number from 0, got {self.target!r}"
            )


@dataclass(frozen=True)
class Clause:
    """Objects that must be there: at least `count` of class `name`, of that color, in that place.

    Raises ValueError when the name or the color is empty or the count is not a positive integer.
    """

    name: str
    count: int = 1
    color: str | None = None
    position: Position | None = None

    def __post_init__(self) -> None:
        _check_named_count(self.name, self.count)
        if self.color is not None and not _is_text(self.color):
            raise ValueError(f"color: the name of a color is expected, got {self.color!r}")


@dataclass(frozen=True)
class Exclusion:
    """Objects that must not be there: `count` or more of class `name`.

    Raises ValueError when the name is empty or the count is not a positive integer.
    """

    name: str
    count: int

    def __post_init__(self) -> None:
        _check_named_count(self.name, self.count)


@dataclass(frozen=True)
class Prompt:
    """Requirements of a right image: all that is included, nothing that is excluded.

    Raises ValueError for an unknown task, for no included clause, and for a position that points to
    its own or a later clause: a target is judged before what is placed by it.
    """

    task: Task
    include: tuple[Clause, ...]
    exclude: tuple[Exclusion, ...] = ()

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(f"tag: {unknown_name('task', str(self.task), TASKS)}")
        if not self.include:
            raise ValueError("include: at least one clause is expected, got none")
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
    Raises ValueError naming the field.
    """
    if "tag" not in metadata:
        raise ValueError(f"tag: missing; one of {', '.join(TASKS)} is expected")
    parsed: dict[str, list[Any]] = {"include": [], "exclude": []}
    given = {"include": metadata.get("include"), "exclude": metadata.get("exclude", [])}
    for key, clauses in given.items():
        if not isinstance(clauses, list | tuple):
            actual = "missing" if clauses is None else f"got {clauses!r}"
            raise ValueError(f"{key}: a list of clauses is expected, {actual}")  # noqa: TRY004 - every wrong prompt is a ValueError to the caller
        for index, fields in enumerate(clauses):
            try:
                parsed[key].append(_parse_clause(fields, excluded=key == "exclude"))
            except ValueError as error:
                raise ValueError(f"{key}[{index}]: {error}") from error
    return Prompt(metadata["tag"], tuple(parsed["include"]), tuple(parsed["exclude"]))


def _parse_clause(fields: object, *, excluded: bool) -> Clause | Exclusion:
    if not isinstance(fields, Mapping):
        raise ValueError(  # noqa: TRY004 - as above
            f"an object with the fields class and count is expected, got {fields!r}"
        )
    for name in ("class", "count"):
        if name not in fields:
            raise ValueError(f"{name}: missing")
    allowed = _EXCLUSION_FIELDS if excluded else _CLAUSE_FIELDS
    for name in fields:  # a misspelt one would be a demand that is never made
        if name not in allowed:
            raise ValueError(unknown_name("field", str(name), allowed))
    if excluded:
        return Exclusion(fields["class"], fields["count"])
    position = fields.get("position")
    if position is not None and not (isinstance(position, Sequence) and len(position) == 2):
        raise ValueError(f"position: [relation, index of a clause] is expected, got {position!r}")
    relation = None if position is None else Position(*position)
    return Clause(fields["class"], fields["count"], fields.get("color"), relation)


def prompt_metadata(prompt: Prompt) -> dict[str, Any]:
    """A prompt's metadata as built-in types, fields in the order of the published file."""
    include: list[dict[str, Any]] = []
    for clause in prompt.include:
        fields: dict[str, Any] = {"class": clause.name, "count": clause.count}
        if clause.color is not None:
            fields["color"] = clause.color
        if clause.position is not None:
            fields["position"] = [clause.position.relation, clause.position.target]
        include.append(fields)
    metadata: dict[str, Any] = {"tag": prompt.task, "include": include}
    if prompt.exclude:
        metadata["exclude"] = [
            {"class": clause.name, "count": clause.count} for clause in prompt.exclude
        ]
    return metadata


def _check_named_count(name: object, count: object) -> None:
    if not _is_text(name):
        raise ValueError(f"class: the name of a class is expected, got {name!r}")
    if not _is_whole(count) or count < 1:
        raise ValueError(f"count: a whole number from 1 is expected, got {count!r}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True)
class PromptAtom:
    """One demand of a prompt.

    kind: of the fact, one of `metrics.facts.KINDS`.
    words: for people, such as "red bench"; with the kind unique within a prompt.
    demand: a prompt that an image is right for where it meets this demand; see `judge`.
    clause, target: the clauses that it is about; the target of a relation alone.
    """

    kind: str
    words: str
    demand: Prompt
    clause: Clause
    target: Clause | None = None


def prompt_atoms(prompt: Prompt) -> tuple[PromptAtom, ...]:
    """The demands of a prompt, each once, in the order of its clauses.

    object    one object of the class is there
    count     as many as the clause says, and no more where the prompt excludes more; left out of
              clauses of one object that exclude nothing
    color     as many as the clause says have its color
    relation  they stand where the clause says

    An image that is right for the prompt meets all of them. One that meets all of them may still be
    wrong, where a relation holds to a target that lacks its color.
    """
    atoms: dict[tuple[str, str], PromptAtom] = {}

    def add(kind: str, words: str, demand: Prompt, target: Clause | None = None) -> None:
        atoms[kind, words] = PromptAtom(kind, words, demand, clause, target)

    for clause in prompt.include:
        name, count = clause.name, clause.count
        excluded = tuple(own for own in prompt.exclude if own.name == name)
        add("object", name, Prompt(prompt.task, (Clause(name),)))
        if count > 1 or excluded:
            add("count", f"{count} {name}", Prompt(prompt.task, (Clause(name, count),), excluded))
        if clause.color is not None:
            colored = Prompt(prompt.task, (Clause(name, count, clause.color),))
            add("color", f"{clause.color} {name}", colored)
        if clause.position is not None:
            target, relation = prompt.include[clause.position.target], clause.position.relation
            placed = Clause(name, count, position=Position(relation, 0))
            demand = Prompt(prompt.task, (Clause(target.name, target.count), placed))
            add("relation", f"{name} {relation} {target.name}", demand, target)
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
