"""Answers that stay as they are, and answers that follow an edit."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.datasets.edits import SCENE_EDITS, choose_edit, mirrored, scene_facts
from pytest_cepbench.datasets.shapes import Scene
from pytest_cepbench.metrics.constancy import (
    FAILED,
    SAME_VECTORS,
    EditedFacts,
    EditScore,
    MostFrequentAnswer,
    chance_level,
    edit_score,
    most_common,
    spread_of_directions,
    spread_of_vectors,
)
from tests.datasets.shapes.strategies import drawn_scenes, scenes


@given(st.integers(2, 40), st.integers(0, 2**32 - 1))
def test_the_spread_bounds_all_distances(n: int, seed: int) -> None:
    """Unit vectors lie at most twice the spread apart, and some as far as the spread."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, 6)) * rng.uniform(1e-3, 1e3, (n, 1))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    farthest = np.linalg.norm(unit[:, None] - unit[None], axis=2).max()
    spread = spread_of_directions(vectors)
    assert spread - 1e-12 <= farthest <= 2 * spread + 1e-12


def test_equal_vectors_have_no_spread() -> None:
    """Also in half precision, and for numbers that a mean would round."""
    for kind in (np.float16, np.float32, np.float64):
        rows = np.full((7, 5), 0.1, dtype=kind)
        assert spread_of_directions(rows) == pytest.approx(0.0, abs=1e-15)
        assert spread_of_vectors(rows) == 0.0


def test_every_row_is_looked_at() -> None:
    """Of thousands of vectors the last may be the one that differs."""
    rows = np.ones((2501, 4))
    rows[-1, 0] = 1.5
    assert spread_of_vectors(rows) == pytest.approx(0.25)
    assert spread_of_directions(rows) > 0.1


def test_length_is_seen_by_distances_alone() -> None:
    """A cosine cannot see that a vector is twice as long; a distance can."""
    rows = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    assert spread_of_directions(rows) < 1e-15
    assert spread_of_vectors(rows) == pytest.approx(2.0)


def test_the_threshold_lies_between_rounding_and_sight() -> None:
    """Rounding to float32 stays below it; below it, every cosine is 1 in the decimals kept."""
    rng = np.random.default_rng(1)
    base = rng.normal(size=256)
    rounded = np.stack([base * (1 + rng.normal(scale=1e-7, size=256)) for _ in range(50)])
    assert spread_of_directions(rounded.astype(np.float32)) < SAME_VECTORS / 100
    farthest_cosine = 1 - (2 * SAME_VECTORS) ** 2 / 2
    assert round(farthest_cosine, 6) == 1.0


def test_answers_are_counted_once_for_each_input() -> None:
    """An input that comes again adds nothing: 24 samples of one image are no 24 images."""
    common = most_common([("a", 1), ("a", 1), ("b", 1), ("c", 2)])
    assert common == MostFrequentAnswer(answer=1, count=2, of=3)
    assert most_common([]) is None


@pytest.mark.parametrize(
    ("alike", "of", "constant", "text"),
    [
        (24, 24, True, "all 24"),
        (23, 24, True, "23 of 24"),
        (22, 24, True, "22 of 24"),
        (21, 24, False, "21 of 24"),
        (4, 4, True, "all 4"),
        (3, 3, False, "all 3"),
    ],
)
def test_nearly_all_answers_alike_are_constant(
    alike: int, of: int, constant: bool, text: str
) -> None:
    """More than nine in ten, of four different inputs or more."""
    answers = [(i, "same" if i < alike else i) for i in range(of)]
    common = most_common(answers)
    assert common is not None
    assert common.constant is constant
    assert str(common) == text


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
