"""Equivariance of facts: exact answers have 1, constant ones 0, and chance is known."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.edits import SCENE_EDITS, choose_edit, mirrored, scene_facts
from pytest_cepbench.datasets.shapes import Scene
from pytest_cepbench.metrics.constancy import (
    FAILED,
    EditedFacts,
    EditScore,
    chance_level,
    edit_score,
)
from tests.datasets.shapes.strategies import drawn_scenes, scenes

FACTS = st.frozensets(st.integers(0, 12), max_size=8)


def both(score: EditScore) -> float:
    """The product."""
    return score.both


@given(FACTS, FACTS, FACTS, st.booleans())
def test_both_shares_lie_between_0_and_1(
    before: AbstractSet[int], expected: AbstractSet[int], after: AbstractSet[int], changes: bool
) -> None:
    """So does their product."""
    score = edit_score(before, expected, after, changes=changes)
    assert 0.0 <= score.followed <= 1.0
    assert 0.0 <= score.kept <= 1.0
    assert score.both == score.followed * score.kept


@given(FACTS, FACTS)
def test_the_edited_answer_itself_has_1(
    before: AbstractSet[int], expected: AbstractSet[int]
) -> None:
    """Unless the edit finds nothing to change in the answer, which follows nothing."""
    score = edit_score(before, expected, expected)
    assert score.kept == 1.0
    assert score.followed == float(before != expected)


@given(FACTS)
def test_the_identity_is_followed_by_the_same_answer(facts: AbstractSet[int]) -> None:
    """An edit that answers must not show gives 1 where the answer is the same."""
    assert edit_score(facts, facts, facts, changes=False) == EditScore(1.0, 1.0)


@given(FACTS, FACTS.filter(bool))
def test_an_answer_that_does_not_change_follows_nothing(
    expected: AbstractSet[int], before: AbstractSet[int]
) -> None:
    """Whatever is kept, a constant answer has 0."""
    score = edit_score(before, expected, before)
    assert score.followed == score.both == 0.0


@given(FACTS, FACTS, FACTS, st.permutations(range(13)))
def test_the_names_of_facts_do_not_matter(
    before: AbstractSet[int], expected: AbstractSet[int], after: AbstractSet[int], names: list[int]
) -> None:
    """Renaming all facts alike changes no score."""
    renamed = [frozenset(names[fact] for fact in facts) for facts in (before, expected, after)]
    assert edit_score(*renamed) == edit_score(before, expected, after)


@given(scenes(), scenes())
def test_a_mirrored_pair_has_the_score_of_the_pair(before: Scene, after: Scene) -> None:
    """From either side of the mirror: describe(m(x)) against m(describe(x)), and both mirrored."""
    score = edit_score(scene_facts(before), scene_facts(mirrored(before)), scene_facts(after))
    turned = edit_score(
        scene_facts(mirrored(before)), scene_facts(before), scene_facts(mirrored(after))
    )
    assert turned == score


@pytest.mark.parametrize("name", [name for name in SCENE_EDITS if name != "redraw"])
@given(scene=drawn_scenes(), sample_id=st.text(max_size=4))
def test_an_exact_model_has_1(name: str, scene: Scene, sample_id: str) -> None:
    """Of every scene that takes the edit."""
    edit = choose_edit(name, scene, sample_id)
    if edit is None:
        return
    edited = edit.apply(scene)
    assert edited is not None
    facts = scene_facts(edited)
    assert edit_score(scene_facts(scene), facts, facts) == EditScore(1.0, 1.0)


def test_known_shares() -> None:
    """Two facts of four changed as asked, one of two stayed, and a foreign one came."""
    score = edit_score({"a", "b", "x", "y"}, {"c", "d", "x", "y"}, {"a", "c", "x", "z"})
    assert score == EditScore(followed=0.5, kept=1 / 3)
    assert score.both == pytest.approx(1 / 6)
    assert edit_score({"a"}, None, {"a"}) == FAILED


def pairs(*numbers: int) -> list[EditedFacts]:
    """Exact pairs: an answer {n, "rest"} in which n becomes -n, each of its own unit."""
    return [
        EditedFacts(n, frozenset({n, "rest"}), frozenset({-n, "rest"}), frozenset({-n, "rest"}))
        for n in numbers
    ]


def test_chance_is_another_pairs_answer() -> None:
    """Half of what should change is gone there too, and the rest stays but for what is foreign."""
    level = chance_level(pairs(1, 2, 3), both)
    assert level == pytest.approx(0.5 * 0.5)
    assert chance_level(pairs(1, 1), both) is None
    assert chance_level([], both) is None


@given(st.permutations(list(range(1, 30))))
def test_chance_does_not_depend_on_the_order(numbers: list[int]) -> None:
    """Of fewer pairs than are taken at most, every one meets every other."""
    expected = chance_level(pairs(*range(1, 30)), both)
    assert chance_level(pairs(*numbers), both) == pytest.approx(expected)


def test_chance_of_many_pairs_is_quick_and_about_the_same() -> None:
    """Of 300 pairs each meets 64 others."""
    level = chance_level(pairs(*range(1, 301)), both)
    assert level == pytest.approx(0.25)
