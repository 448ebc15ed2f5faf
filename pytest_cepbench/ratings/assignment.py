"""Who is shown which item next, and on which side.

State in memory, rebuilt from the votes when a server starts. Orders and sides follow from the
study's seed, so that a person who comes back is shown the item at which they stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_cepbench.files import digest_text
from pytest_cepbench.ratings.records import Item, Study, Vote, VoteKind

AHEAD = 2
"""Items that a person has: the one that is shown, and the one that is loaded behind it."""

_APART = 5  # answers between an item and its repeat, at least

_SIDES = ("first", "second")


class Slot(NamedTuple):
    """An item at one place of a person's work. item: its digest."""

    item: str
    kind: VoteKind


@dataclass
class _Person:
    """items, attention: in this person's order.

    answered: slots in the order of answers, and whether each was judged and not skipped.
    held: slots that are shown or loaded.
    """

    items: Sequence[str]
    attention: Sequence[str]
    answered: dict[Slot, bool] = field(default_factory=dict)
    held: list[Slot] = field(default_factory=list)

    def has(self, slot: Slot) -> bool:
        """Whether a slot is answered or held."""
        return slot in self.answered or slot in self.held


class Assignment:
    """The work of all people of a study.

    items: all of it.
    counted: the answers that count, of each person in the order in which they were given.
    """

    def __init__(self, study: Study, items: Iterable[Item], counted: Iterable[Vote] = ()) -> None:
        self._study = study
        kinds = {item.item: item.kind for item in items}
        ordered = sorted(kinds, key=lambda item: self._draw("sides", item))
        self._rank = {item: place for place, item in enumerate(ordered)}
        self._people: dict[str, _Person] = {}
        for name in study.annotators:
            own = sorted(kinds, key=lambda item: self._draw("order", name, item))
            self._people[name] = _Person(
                [item for item in own if kinds[item] == "item"],
                [item for item in own if kinds[item] == "attention"],
            )
        self._voters: dict[str, set[str]] = {item: set() for item in kinds}
        for vote in counted:
            self.answer(vote)

    def shown(self, item: Item, annotator: str, kind: VoteKind) -> tuple[str | int, ...]:
        """The options of an item in the order of a person's page.

        first and second of two sides, numbers from 0 of outputs to grade; empty for other tasks.
        Sides are counterbalanced: each person sees half of the items swapped, and of two people who
        are next to each other in the study's list exactly one sees an item swapped. A repeat is
        swapped against the first time.
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

    def upcoming(self, annotator: str) -> list[Slot]:
        """The slots that a person has, the first one being shown; none where nothing is left.

        What two people are shown at once, both may answer: then it has a vote more than it needs.
        """
        person = self._people[annotator]
        person.held = [slot for slot in person.held if self._is_open(slot, annotator)]
        while len(person.held) < AHEAD:
            slot = self._next(person, annotator)
            if slot is None:
                break
            person.held.append(slot)
        return list(person.held)

    def answer(self, vote: Vote) -> None:
        """Take note of an answer that is saved."""
        person = self._people[vote.annotator]
        slot = Slot(vote.item, vote.kind)
        person.held = [held for held in person.held if held != slot]
        person.answered.pop(slot, None)  # an answer that is changed is the last one
        person.answered[slot] = not vote.skip
        if vote.kind == "item":
            voters = self._voters[vote.item]
            (voters.discard if vote.skip else voters.add)(vote.annotator)

    def last(self, annotator: str) -> Slot | None:
        """The slot that was answered last."""
        return next(reversed(self._people[annotator].answered), None)

    def withdraw(self, annotator: str) -> None:
        """Take the last answer back: its slot is shown again."""
        person = self._people[annotator]
        slot, _ = person.answered.popitem()
        if slot.kind == "item":
            self._voters[slot.item].discard(annotator)
        person.held = [slot, *person.held[: AHEAD - 1]]

    def progress(self, annotator: str) -> tuple[int, int]:
        """Answers of a person so far, and about how many there will be, repeats and checks among
        them, where all people do as much.
        """
        person, study = self._people[annotator], self._study
        items = len(person.items) * study.overlap / len(self._people)
        return len(person.answered), round(items * (1 + study.attention + study.repeats))

    def _draw(self, *words: str) -> str:
        return digest_text("\0".join((str(self._study.seed), *words)))

    def _is_open(self, slot: Slot, annotator: str) -> bool:
        """Whether fewer others have judged an item than are wanted."""
        others = self._voters[slot.item] - {annotator}
        return slot.kind != "item" or len(others) < self._study.overlap

    def _next(self, person: _Person, annotator: str) -> Slot | None:
        slots = (Slot(name, "item") for name in person.items)
        open_ = (s for s in slots if not person.has(s) and self._is_open(s, annotator))
        item = next(open_, None)
        if item is None:
            return None
        answers = [own for own in person.answered.items() if own[0].kind == "item"]
        judged = [slot.item for slot, judged in answers[:-_APART] if judged]
        place = len(person.answered) + len(person.held)
        checks: tuple[tuple[VoteKind, float, Sequence[str]], ...] = (
            ("attention", self._study.attention, person.attention),
            ("repeat", self._study.repeats, judged),
        )
        for kind, share, names in checks:
            # There is one of each kind in every stretch of 1 / share places, at a drawn place.
            length = max(2, round(1 / share)) if share else 1
            drawn = self._draw(kind, annotator, str(place // length))[:13]
            if share and place % length == int(drawn, 16) * length // 16**13:
                hidden = (Slot(name, kind) for name in names)
                return next((slot for slot in hidden if not person.has(slot)), item)
        return item
