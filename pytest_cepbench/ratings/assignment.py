"""Who is shown which item next, with leases, so that two people do not judge the same one.

State in memory, rebuilt from the votes when a server starts. The order of items and of their sides
follows from the study's seed, so that a person who comes back is shown the item at which they
stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from pytest_cepbench.files import digest_text
from pytest_cepbench.ratings.records import Item, Study, Vote, VoteKind

# -- what a person sees when, and on which side: derived from the study's seed, so never stored ----
# Each person has items in an order of their own. Sides are counterbalanced: of the items of a
# study each person sees half with sides swapped, and of two people who are next to each other in
# the study's list exactly one sees an item swapped. A repeat is swapped against the first time.


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


LEASE = 1800.0
"""Seconds for which an item is a person's; a late answer still counts."""

AHEAD = 2
"""Items that a person has: the one that is shown, and the one that is loaded behind it."""

_APART = 5  # answers between an item and its repeat, at least


class Slot(NamedTuple):
    """An item at one place of a person's work. item: its digest."""

    item: str
    kind: VoteKind


@dataclass
class _Person:
    """practice, items, attention: in this person's order.

    answered: slots in the order of answers, and whether each was judged and not skipped.
    held: slots that are shown or loaded.
    first_open: number of the first items that are all answered, so that they are passed over.
    """

    practice: Sequence[str]
    items: Sequence[str]
    attention: Sequence[str]
    answered: dict[Slot, bool] = field(default_factory=dict)
    held: list[Slot] = field(default_factory=list)

    first_open: int = 0

    @property
    def answers(self) -> int:
        """Answers without practice."""
        practised = sum(Slot(name, "practice") in self.answered for name in self.practice)
        return len(self.answered) - practised

    def has(self, slot: Slot) -> bool:
        """Whether a slot is answered or held."""
        return slot in self.answered or slot in self.held


class Assignment:
    """The work of all people of a study.

    counted: the answers that count, of each person in the order in which they were given.
    """

    def __init__(self, study: Study, items: Sequence[Item], counted: Iterable[Vote]) -> None:
        self._order = Order(study, items)
        self._people = {
            name: _Person(
                self._order.of(name, "practice"),
                self._order.of(name, "item"),
                self._order.of(name, "attention"),
            )
            for name in study.annotators
        }
        self._judges = {item.item: self._order.judges(item.item) for item in items}
        self._voters: dict[str, set[str]] = {item.item: set() for item in items}
        self._leases: dict[str, dict[str, float]] = {item.item: {} for item in items}
        self._shares = {name: self._share(name) for name in study.annotators}
        for vote in counted:
            self.answer(vote)

    def upcoming(self, annotator: str, now: float) -> list[Slot]:
        """The slots that a person has, the first one being shown; none where nothing is left.

        now: seconds of a clock that only goes forward.
        """
        person = self._people[annotator]
        person.held = [slot for slot in person.held if self._is_free(slot, annotator, now)]
        while len(person.held) < AHEAD:
            slot = self._draw(person, annotator, now)
            if slot is None:
                break
            person.held.append(slot)
        for slot in person.held:
            if slot.kind == "item":
                self._leases[slot.item][annotator] = now + LEASE
        return list(person.held)

    def is_waiting(self, annotator: str) -> bool:
        """Whether items are left that others have on lease just now."""
        answered = self._people[annotator].answered
        return any(
            Slot(item, "item") not in answered and len(self._voters[item]) < self._judges[item]
            for item in self._people[annotator].items
        )

    def answer(self, vote: Vote) -> None:
        """Take note of an answer that is saved."""
        person = self._people[vote.annotator]
        slot = Slot(vote.item, vote.kind)
        person.held = [held for held in person.held if held != slot]
        person.answered.pop(slot, None)  # an answer that is changed is the last one
        person.answered[slot] = not vote.skip
        if vote.kind == "item":
            self._leases[vote.item].pop(vote.annotator, None)
            voters = self._voters[vote.item]
            (voters.discard if vote.skip else voters.add)(vote.annotator)

    def last(self, annotator: str) -> Slot | None:
        """The slot that was answered last."""
        return next(reversed(self._people[annotator].answered), None)

    def withdraw(self, annotator: str) -> None:
        """Take the last answer back: its slot is shown again."""
        person = self._people[annotator]
        slot, _ = person.answered.popitem()
        person.first_open = 0
        if slot.kind == "item":
            self._voters[slot.item].discard(annotator)
        dropped = person.held[AHEAD - 1 :]
        person.held = [slot, *person.held[: AHEAD - 1]]
        for left in dropped:
            self._leases[left.item].pop(annotator, None)

    def shown(self, item: Item, annotator: str, kind: VoteKind) -> tuple[str | int, ...]:
        """As `Order.shown`."""
        return self._order.shown(item, annotator, kind)

    def progress(self, annotator: str) -> tuple[int, int]:
        """Answers of a person so far, and about how many there will be; both without practice.

        The second one never changes: it is the person's work where all people do as much.
        """
        person = self._people[annotator]
        return person.answers, self._shares[annotator]

    def _share(self, annotator: str) -> int:
        """Answers of a person who judges an equal share of the items, hidden ones among them."""
        person = self._people[annotator]
        items = round(sum(self._judges[item] for item in person.items) / len(self._people))
        judged = checks = repeats = 0
        while judged < items:
            kind = self._order.hidden(annotator, judged + checks + repeats)
            if kind == "attention" and checks < len(person.attention):
                checks += 1
            elif kind == "repeat" and repeats < judged - _APART:
                repeats += 1
            else:
                judged += 1
        return judged + checks + repeats

    @property
    def wanted(self) -> Mapping[str, tuple[int, int]]:
        """Item -> people who have judged it, and people who are to."""
        items = next(iter(self._people.values())).items
        return {item: (len(self._voters[item]), self._judges[item]) for item in items}

    def leased(self, now: float) -> int:
        """Items that people have on lease."""
        return sum(any(until > now for until in held.values()) for held in self._leases.values())

    def _is_free(self, slot: Slot, annotator: str, now: float) -> bool:
        """Whether a person may have an item: people who judged it or have it leave room."""
        if slot.kind != "item":
            return True
        others = {name for name, until in self._leases[slot.item].items() if until > now}
        return len((others | self._voters[slot.item]) - {annotator}) < self._judges[slot.item]

    def _draw(self, person: _Person, annotator: str, now: float) -> Slot | None:
        for name in person.practice:
            if not person.has(Slot(name, "practice")):
                return Slot(name, "practice")
        while (
            person.first_open < len(person.items)
            and Slot(person.items[person.first_open], "item") in person.answered
        ):
            person.first_open += 1
        slots = (Slot(name, "item") for name in islice(person.items, person.first_open, None))
        free = (s for s in slots if not person.has(s) and self._is_free(s, annotator, now))
        item = next(free, None)
        if item is None:
            return None
        place = person.answers + sum(slot.kind != "practice" for slot in person.held)
        kind = self._order.hidden(annotator, place)
        if kind == "attention":
            names = person.attention
        elif kind == "repeat":  # of an item that was judged, and not skipped
            answers = [own for own in person.answered.items() if own[0].kind == "item"]
            names = [slot.item for slot, judged in answers[:-_APART] if judged]
        else:
            return item
        hidden = (Slot(name, kind) for name in names)
        return next((slot for slot in hidden if not person.has(slot)), item)
