"""What a person sees when, and on which side: derived from the study's seed, so never stored.

Each person has items in an order of their own. Sides are counterbalanced: of the items of a study
each person sees half with sides swapped, and of two people who are next to each other in the
study's list exactly one sees an item swapped. A repeat is swapped against the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from pytest_cepbench.files import digest_text
from pytest_cepbench.ratings.records import Item, Study, VoteKind

_SIDES = ("first", "second")


class Order:
    """Orders and sides of a study.

    items: all of it.
    """

    def __init__(self, study: Study, items: Sequence[Item]) -> None:
        self._study = study
        self._items = {item.item: item for item in items}

    @cached_property
    def _rank(self) -> dict[str, int]:
        """Item -> its place in one order of the whole study."""
        ordered = sorted(self._items, key=lambda item: self._draw("sides", item))
        return {item: place for place, item in enumerate(ordered)}

    def of(self, annotator: str, kind: str) -> list[str]:
        """The items of a kind, in the order of a person; practice is the same for all."""
        items = [item.item for item in self._items.values() if item.kind == kind]
        if kind == "practice":
            return items
        return sorted(items, key=lambda item: self._draw("order", annotator, item))

    def shown(self, item: Item, annotator: str, kind: VoteKind) -> tuple[str | int, ...]:
        """The options of an item in the order of a person's page.

        first and second of two sides, numbers from 0 of outputs to grade; empty for other tasks.
        """
        person = self._study.annotators.index(annotator)
        if self._study.kind in ("pair", "caption"):
            swapped = (self._rank[item.item] + person + (kind == "repeat")) % 2
            return _SIDES[::-1] if swapped else _SIDES
        if self._study.kind == "grades":
            numbers = range(len(item.options))
            shuffled = sorted(numbers, key=lambda n: self._draw("outputs", item.item, str(n)))
            turn = person % len(shuffled)  # as in a Latin square
            turned = (*shuffled[turn:], *shuffled[:turn])
            return turned[::-1] if kind == "repeat" else turned
        return ()

    def judges(self, item: str) -> int:
        """How many people judge an item."""
        share = int(self._draw("overlap", item)[:13], 16) / 16**13
        return self._study.overlap if share < self._study.share else 1

    def hidden(self, annotator: str, place: int) -> VoteKind | None:
        """Whether an attention item or a repeat is due at a place; None for an item as any.

        place: number of the person's answers before it, without practice.
        There is one of each kind in every stretch of 1 / share places, at a drawn place.
        """
        shares: tuple[tuple[VoteKind, float], ...] = (
            ("attention", self._study.attention),
            ("repeat", self._study.repeats),
        )
        for kind, share in shares:
            if not share:
                continue
            length = max(2, round(1 / share))
            stretch = place // length
            drawn = int(self._draw(kind, annotator, str(stretch))[:13], 16) * length // 16**13
            if place % length == drawn:
                return kind
        return None

    def _draw(self, *words: str) -> str:
        return digest_text("\0".join((str(self._study.seed), *words)))
