"""Atomic facts: one thing that is true of a sample, of one of the known kinds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_cepbench.errors import unknown_name

KINDS = (
    "object",
    "count",
    "color",
    "size",
    "position",
    "relation",
    "attribute",
    "action",
    "text",
)
"""Known kinds, in the order of tables. object: something is there; count: how many there are;
color, size, attribute: how it looks; position: where it stands; relation: where it stands to
another; action: what it does; text: what is written."""


@dataclass(frozen=True, order=True)
class Fact:
    """One atomic fact.

    kind: one of `KINDS`.
    words: what is true, for people, such as "red circle"; with `kind` and `nth` its identity.
    nth: which of several equal facts it is, 1 for the first: two red circles are two facts, and
    the second is false where only one is left.
    question: how it is asked of a model that answers questions; empty where no model is asked.
    Raises ValueError for an unknown kind, no words, or nth below 1.
    """

    kind: str
    words: str
    nth: int = 1
    question: str = ""

    def __post_init__(self) -> None:
        check_kinds([self.kind])
        if not self.words.strip():
            raise ValueError(f"a fact of kind {self.kind!r} needs words that say what is true")
        if self.nth < 1:
            raise ValueError(f"facts are numbered from 1, got {self.nth} for {self.words!r}")

    def __str__(self) -> str:
        return f"{self.words} #{self.nth}" if self.nth > 1 else self.words


def check_kinds(kinds: Iterable[str]) -> None:
    """Raise ValueError naming the first kind that is not known, and those that are."""
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(unknown_name("kind of fact", kind, KINDS))


def order_kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    """Each kind once, in the order of `KINDS`."""
    present = set(kinds)
    return tuple(kind for kind in KINDS if kind in present)
