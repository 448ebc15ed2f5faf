"""Inputs of a batch that must not share a call, since they would change each other's results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")


def by_kind(kinds: Sequence[Hashable], answer: Callable[[Sequence[int]], Sequence[T]]) -> list[T]:
    """The results of `answer` in order, which is called with the indices of one kind at a time."""
    groups: dict[Hashable, list[int]] = {}
    for index, kind in enumerate(kinds):
        groups.setdefault(kind, []).append(index)
    results: dict[int, T] = {}
    for indices in groups.values():
        results.update(zip(indices, answer(indices), strict=True))
    return [results[index] for index in range(len(kinds))]
