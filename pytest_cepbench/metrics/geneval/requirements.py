"""Requirements of a GenEval prompt: its clauses, as the suite's metadata states them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard, get_args

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
    include = [
        _parse_clause(fields, f"include[{index}]")
        for index, fields in enumerate(_list(metadata.get("include"), "include"))
    ]
    exclude = [
        _parse_exclusion(fields, f"exclude[{index}]")
        for index, fields in enumerate(_list(metadata.get("exclude", []), "exclude"))
    ]
    return Prompt(metadata["tag"], tuple(include), tuple(exclude))


def prompt_metadata(prompt: Prompt) -> dict[str, Any]:
    """A prompt's metadata as built-in types, fields in the order of the published file."""
    metadata: dict[str, Any] = {"tag": prompt.task, "include": [*map(_clause, prompt.include)]}
    if prompt.exclude:
        metadata["exclude"] = [
            {"class": clause.name, "count": clause.count} for clause in prompt.exclude
        ]
    return metadata


def _clause(clause: Clause) -> dict[str, Any]:
    fields: dict[str, Any] = {"class": clause.name, "count": clause.count}
    if clause.color is not None:
        fields["color"] = clause.color
    if clause.position is not None:
        fields["position"] = [clause.position.relation, clause.position.target]
    return fields


def _parse_clause(fields: object, where: str) -> Clause:
    known = _fields(fields, _CLAUSE_FIELDS, where)
    position = known.get("position")
    if position is not None and not (isinstance(position, Sequence) and len(position) == 2):
        raise ValueError(
            f"{where}: position: [relation, index of a clause] is expected, got {position!r}"
        )
    try:
        relation = None if position is None else Position(*position)
        return Clause(known["class"], known["count"], known.get("color"), relation)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _parse_exclusion(fields: object, where: str) -> Exclusion:
    known = _fields(fields, _EXCLUSION_FIELDS, where)
    try:
        return Exclusion(known["class"], known["count"])
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _fields(fields: object, allowed: set[str], where: str) -> Mapping[str, Any]:
    """The fields of a clause; a misspelt one would be a demand that is never made."""
    if not isinstance(fields, Mapping):
        raise ValueError(  # noqa: TRY004 - every wrong prompt is a ValueError to the caller
            f"{where}: an object with the fields class and count is expected, got {fields!r}"
        )
    for name in ("class", "count"):
        if name not in fields:
            raise ValueError(f"{where}: {name}: missing")
    for name in fields:
        if name not in allowed:
            raise ValueError(f"{where}: {unknown_name('field', str(name), allowed)}")
    return fields


def _list(value: object, where: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        actual = "missing" if value is None else f"got {value!r}"
        raise ValueError(f"{where}: a list of clauses is expected, {actual}")  # noqa: TRY004 - as above
    return value


def _check_named_count(name: object, count: object) -> None:
    if not _is_text(name):
        raise ValueError(f"class: the name of a class is expected, got {name!r}")
    if not _is_whole(count) or count < 1:
        raise ValueError(f"count: a whole number from 1 is expected, got {count!r}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
