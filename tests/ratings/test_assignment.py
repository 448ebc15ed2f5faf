"""Who is shown what: orders, sides, overlap, hidden checks, and where people go on."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.ratings.assignment import Assignment, Slot
from pytest_cepbench.ratings.items import make_item
from pytest_cepbench.ratings.records import Item, ItemKind, Part, Study, Task, Vote


def items_of(task: Task, count: int, options: int = 2, kind: ItemKind = "item") -> list[Item]:
    """Items of texts."""
    names = [[Part(text=f"option {number}")] for number in range(options)]
    return [make_item(task, [Part(text=f"{kind} {n}")], names, kind) for n in range(count)]


def study_of(people: int = 2, kind: Task = "pair", **settings: object) -> Study:
    """A study of so many people, without hidden items."""
    names = tuple(f"a{number + 1}" for number in range(people))
    own = {"attention": 0.0, "repeats": 0.0} | settings
    return Study(kind=kind, annotators=names, **own)  # type: ignore[arg-type]


def answered(slot: Slot, annotator: str, *, skip: str = "") -> Vote:
    """A vote for a slot."""
    return Vote(task="pair", item=slot.item, annotator=annotator, kind=slot.kind, skip=skip)


def work(assignment: Assignment, annotator: str, count: int) -> list[Slot]:
    """Let a person answer so many items, or all there are. Returns what was shown."""
    shown: list[Slot] = []
    while len(shown) < count and (upcoming := assignment.upcoming(annotator)):
        shown.append(upcoming[0])
        assignment.answer(answered(upcoming[0], annotator))
    return shown


@given(seed=st.integers(0, 10**6), count=st.integers(1, 25), people=st.integers(1, 5))
def test_sides_are_counterbalanced(seed: int, count: int, people: int) -> None:
    """Each person sees half of the items swapped, and neighbours see each item differently."""
    items = items_of("pair", count)
    study = study_of(people, seed=seed)
    order = Assignment(study, items)
    shown = {name: [order.shown(item, name, "item") for item in items] for name in study.annotators}
    for sides in shown.values():
        assert abs(2 * sides.count(("second", "first")) - count) <= 1
    for first, second in zip(study.annotators, study.annotators[1:], strict=False):
        assert all(a == b[::-1] for a, b in zip(shown[first], shown[second], strict=True))
    for item in items:
        assert order.shown(item, "a1", "repeat") == order.shown(item, "a1", "item")[::-1]


@given(seed=st.integers(0, 10**6), options=st.integers(2, 6))
def test_outputs_are_shuffled_as_in_a_latin_square(seed: int, options: int) -> None:
    """As many people as outputs see each output once at each place."""
    (item,) = items_of("grades", 1, options)
    study = study_of(options, "grades", seed=seed)
    rows = [Assignment(study, [item]).shown(item, name, "item") for name in study.annotators]
    assert all(sorted(row) == list(range(options)) for row in rows)
    assert all(len(set(column)) == options for column in zip(*rows, strict=True))


def test_everyone_has_an_order_of_their_own() -> None:
    """The same after a restart, another for another seed."""
    items = items_of("pair", 30)
    orders = [
        [slot.item for slot in work(Assignment(study_of(seed=seed), items), name, 30)]
        for seed, name in ((0, "a1"), (0, "a1"), (0, "a2"), (1, "a1"))
    ]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


@given(
    count=st.integers(1, 40),
    people=st.integers(1, 4),
    overlap=st.integers(1, 4),
    turns=st.lists(st.integers(0, 3), max_size=200),
)
def test_each_item_is_judged_by_as_many_as_it_needs(
    count: int, people: int, overlap: int, turns: list[int]
) -> None:
    """Whoever works when, one after the other: as many as are wanted."""
    items, wanted = items_of("pair", count), min(people, overlap)
    study = study_of(people, overlap=wanted)
    assignment = Assignment(study, items)
    judged: Counter[str] = Counter()
    for turn in [*turns, *(list(range(people)) * (count + 1))]:
        name = study.annotators[turn % people]
        judged.update(slot.item for slot in work(assignment, name, 1))
    assert judged == {item.item: wanted for item in items}
    assert not any(assignment.upcoming(name) for name in study.annotators)


def test_an_answer_to_what_others_have_judged_meanwhile_counts() -> None:
    """Two people can be shown the same item; who has not answered is shown it no longer.

    An answer that is taken back is shown again, before what was shown meanwhile; taken back twice,
    the one before it.
    """
    assignment = Assignment(study_of(), items_of("pair", 1))
    (slot,) = assignment.upcoming("a1")
    assert assignment.upcoming("a2") == [slot]
    assignment.answer(answered(slot, "a2"))
    assert assignment.upcoming("a1") == []
    assignment.answer(answered(slot, "a1"))
    assert assignment.progress("a1")[0] == 1
    # What one skips goes to the other, and not to the same one again.
    assignment = Assignment(study_of(), items_of("pair", 1))
    (slot,) = assignment.upcoming("a1")
    assignment.answer(answered(slot, "a1", skip="broken image"))
    assert assignment.upcoming("a1") == []
    assert assignment.upcoming("a2") == [slot]
    assignment = Assignment(study_of(1), items_of("pair", 6))
    done = work(assignment, "a1", 2)
    shown = assignment.upcoming("a1")
    assignment.withdraw("a1")
    assert assignment.upcoming("a1") == [done[1], shown[0]]
    assert assignment.last("a1") == done[0]
    assignment.withdraw("a1")
    assert assignment.upcoming("a1") == [done[0], done[1]]
    assert assignment.last("a1") is None
    assert len(work(assignment, "a1", 10)) == 6


@pytest.mark.parametrize("stop", [0, 1, 7, 30])
def test_people_go_on_where_they_stopped(stop: int) -> None:
    """A new server, which knows the votes alone, shows what the old one would have shown."""
    items = items_of("pair", 40) + items_of("pair", 10, kind="attention")
    study = study_of(1, attention=0.2, repeats=0.1)
    assignment = Assignment(study, items)
    done = work(assignment, "a1", stop)
    again = Assignment(study, items, [answered(slot, "a1") for slot in done])
    assert again.upcoming("a1")[:1] == assignment.upcoming("a1")[:1]


def test_checks_are_hidden_among_the_items() -> None:
    """5 % attention items and 5 % repeats, each once, repeats far apart; as many as were said."""
    study = study_of(1, attention=0.05, repeats=0.05)
    items = items_of("pair", 200) + items_of("pair", 20, kind="attention")
    assignment = Assignment(study, items)
    assert assignment.progress("a1") == (0, 220)
    shown = work(assignment, "a1", 1000)
    assert len(shown) == len(set(shown))
    kinds = Counter(slot.kind for slot in shown)
    assert kinds["item"] == 200
    assert 9 <= kinds["attention"] <= 12
    assert 9 <= kinds["repeat"] <= 12
    places = {slot: place for place, slot in enumerate(shown)}
    for slot in shown:
        if slot.kind == "repeat":
            assert places[slot] - places[Slot(slot.item, "item")] > 5


@given(seed=st.integers(0, 10**6), skips=st.lists(st.booleans(), min_size=1, max_size=7))
def test_what_was_skipped_does_not_come_again(seed: int, skips: list[bool]) -> None:
    """No skipped item is a repeat, nor an attention item; also after a restart."""
    study = study_of(1, attention=0.2, repeats=0.3, seed=seed)
    items = items_of("pair", 40) + items_of("pair", 8, kind="attention")
    kinds = {item.item: item.kind for item in items}
    assignment = Assignment(study, items)
    votes: list[Vote] = []
    for turn in range(1000):
        if turn == 30:
            assignment = Assignment(study, items, votes)
        upcoming = assignment.upcoming("a1")
        if not upcoming:
            break
        skip = "offensive or disturbing" if skips[turn % len(skips)] else ""
        votes.append(answered(upcoming[0], "a1", skip=skip))
        assignment.answer(votes[-1])
    skipped = {vote.item for vote in votes if vote.kind == "item" and vote.skip}
    repeated = [vote.item for vote in votes if vote.kind == "repeat"]
    assert not skipped & set(repeated)
    assert all(kinds[item] == "item" for item in repeated)
    assert bool(repeated) or all(skips)
