"""The draw: which battles are drawn follows from answers alone, and is fair to categories."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.errors import SpecError
from pytest_cepbench.gate.labels.draw import Battle, Contestant, draw_battles, population_digest
from tests.gate.labels.build import battles

SIZES = st.dictionaries(st.sampled_from("abcdef"), st.integers(2, 30), min_size=1, max_size=5)


@given(SIZES, st.data())
def test_so_many_are_drawn_and_at_least_two_of_each_category(
    sizes: dict[str, int], data: st.DataObject
) -> None:
    """Categories get shares by their sizes; probabilities are what was drawn by what there is."""
    count = data.draw(st.integers(2 * len(sizes), sum(sizes.values())))
    drawn = draw_battles(battles(sizes), count)
    per_category = Counter(sample.split("/")[0] for sample in drawn)
    assert len(drawn) == count
    for name, size in sizes.items():
        assert per_category[name] >= 2
        own = {drawn[s] for s in drawn if s.split("/")[0] == name}
        assert own == {round(per_category[name] / size, 9)}
    fair = {name: count * size / sum(sizes.values()) for name, size in sizes.items()}
    if all(share >= 2 for share in fair.values()):
        assert all(abs(per_category[name] - fair[name]) < 1 for name in sizes)


@given(st.permutations(battles({"a": 6, "b": 9})))
def test_the_order_of_the_battles_has_no_say(own: list[Contestant]) -> None:
    """The same battles give the same draw on every machine."""
    assert draw_battles(own, 7) == draw_battles(battles({"a": 6, "b": 9}), 7)


def test_other_answers_are_another_draw() -> None:
    """One other answer changes which battles are drawn: nothing can be kept for the next model."""
    sizes = {"a": 100}
    before, after = battles(sizes), battles(sizes)
    last = after[-1]
    after[-1] = Contestant(
        Battle(last.battle.question, "0" * 64, last.battle.opponent),
        last.sample,
        last.category,
        last.unit,
    )
    assert population_digest(before) != population_digest(after)
    assert draw_battles(before, 30).keys() != draw_battles(after, 30).keys()


def test_every_battle_is_as_likely() -> None:
    """Over many populations each battle of a category is drawn in its share of the draws."""
    counts: Counter[str] = Counter()
    for model in range(400):
        counts.update(draw_battles(battles({"a": 10}, f"model {model}"), 3).keys())
    assert all(80 <= counts[f"a/{i}"] <= 160 for i in range(10))


def test_a_unit_is_drawn_whole() -> None:
    """Seeds of one question come together."""
    own = [
        Contestant(contestant.battle, f"{contestant.sample}#{seed}", "a", contestant.sample)
        for contestant in battles({"a": 8})
        for seed in range(3)
    ]
    drawn = draw_battles(own, 4)
    per_unit = Counter(sample.split("#")[0] for sample in drawn)
    assert sorted(per_unit.values()) == [3, 3, 3, 3]


@pytest.mark.parametrize(("count", "why"), [(31, "there are 30"), (5, "give at least 6")])
def test_too_many_and_too_few_are_refused(count: int, why: str) -> None:
    """More than there are, and fewer than two of each category."""
    with pytest.raises(SpecError, match=why):
        draw_battles(battles({"a": 10, "b": 10, "c": 10}), count)
