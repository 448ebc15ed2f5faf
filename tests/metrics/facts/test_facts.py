"""Facts: scores, half-lives, and losses by role."""

from __future__ import annotations

from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.fact_losses import (
    Role,
    attribute_losses,
)
from pytest_cepbench.metrics.facts import (
    KINDS,
    Fact,
    FactAnswers,
    chance_f1,
    fact_f1,
    half_life,
    mean_answered,
)

ANSWERS = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, nan]))


@st.composite
def checked_facts(draw: st.DrawFn) -> FactAnswers:
    """Answers, soft and missing ones among them, on up to eight facts in up to four artifacts."""
    artifacts = draw(st.integers(1, 4))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=8))
    answers = draw(
        st.lists(
            st.lists(ANSWERS, min_size=artifacts, max_size=artifacts),
            min_size=len(kinds),
            max_size=len(kinds),
        )
    )
    counts = st.lists(st.integers(0, 3), min_size=artifacts, max_size=artifacts)
    surplus = draw(st.none() | st.dictionaries(st.sampled_from(KINDS), counts.map(np.array)))
    return FactAnswers(tuple(kinds), np.array(answers), surplus)


@pytest.mark.parametrize(
    ("kind", "words", "nth", "message"),
    [
        ("colour", "red circle", 1, r"unknown kind of fact 'colour'. Did you mean 'color'"),
        ("color", " ", 1, "needs words"),
        ("color", "red circle", 0, "numbered from 1"),
    ],
)
def test_a_fact_that_cannot_be(kind: str, words: str, nth: int, message: str) -> None:
    """An unknown kind is refused with those that are known, and so are facts that say nothing."""
    with pytest.raises(ValueError, match=message):
        Fact(kind, words, nth)


def test_f1_by_hand() -> None:
    """Two of three objects right and one claimed too many: 2*2/(2+3+1); the count is wrong: 0."""
    answers = np.array([[1.0], [1.0], [0.0], [0.0]])
    kinds = ("object", "object", "object", "count")
    surplus = {"object": np.array([1]), "count": np.array([1])}
    assert fact_f1(FactAnswers(kinds, answers, surplus)) == pytest.approx([(4 / 6 + 0) / 2])
    assert fact_f1(FactAnswers(kinds, answers)) == pytest.approx([(2 / 3 + 0) / 2])


def test_a_kind_that_only_the_artifact_claims_counts_as_wrong() -> None:
    """A relation claimed of a scene of one object has no precision, and halves the score."""
    lone = FactAnswers(("object",), np.array([[1.0]]), {"relation": np.array([1])})
    assert fact_f1(lone) == pytest.approx([0.5])


@given(checked_facts())
def test_one_only_where_all_is_true_and_nothing_is_added(checked: FactAnswers) -> None:
    """The best score is that of an artifact that says the facts, all of them and no others."""
    scores = fact_f1(checked)
    for place, score in enumerate(scores):
        column = checked.answers[:, place]
        answered = column[~np.isnan(column)]
        added = sum(counts[place] for counts in (checked.surplus or {}).values())
        if len(answered):
            assert (score == 1) == bool((answered == 1).all() and added == 0) or score > 1 - 1e-9


@given(checked_facts())
def test_a_share_is_the_mean_of_answered_facts(checked: FactAnswers) -> None:
    """Of each kind, and of the facts that have an answer alone."""
    for kind in set(checked.kinds):
        rows = checked.answers[[own == kind for own in checked.kinds]]
        for place, share in enumerate(mean_answered(rows)):
            answered = [row[place] for row in rows if not isnan(row[place])]
            assert share == pytest.approx(np.mean(answered) if answered else nan, nan_ok=True)


@pytest.mark.parametrize(
    ("answers", "surplus", "message"),
    [
        ([[1.0], [0.0]], None, "expected answers on 1 facts"),
        ([[1.5]], None, r"lie in \[0, 1\]"),
        ([[1.0]], {"object": np.array([1, 2])}, "expected 1 counts"),
        ([[1.0]], {"smell": np.array([1])}, "unknown kind"),
    ],
)
def test_answers_that_do_not_fit(answers: object, surplus: object, message: str) -> None:
    """Shapes and ranges are checked before anything is computed."""
    with pytest.raises(ValueError, match=message):
        FactAnswers(("object",), np.array(answers), surplus)  # type: ignore[arg-type]


def _facts(*words: str) -> frozenset[Fact]:
    return frozenset(Fact("object", word) for word in words)


def test_chance_is_the_score_of_others_artifacts() -> None:
    """Each sample against every other with other facts, in its category where there is one."""
    starts = [_facts("a"), _facts("b"), _facts("a", "b")]
    claims = [[_facts("a")], [_facts("b")], [_facts("a", "b")]]
    whole = chance_f1(starts, claims, ["x", "x", "x"])
    assert whole == pytest.approx([(0 + 2 / 3) / 2, (0 + 2 / 3) / 2, 2 / 3])
    apart = chance_f1(starts, claims, ["x", "x", "y"])
    assert apart == pytest.approx([0, 0, 2 / 3])


def test_no_chance_where_all_samples_are_alike() -> None:
    """No sample can stand for another."""
    assert chance_f1([_facts("a")] * 3, [[_facts("a")]] * 3, ["x"] * 3) is None


@given(st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=2, max_size=6))
def test_chance_agrees_with_the_score_of_each_pair(sets: list[set[str]]) -> None:
    """The table of all pairs holds what `fact_f1` says of each."""
    starts = [_facts(*words) for words in sets]
    chance = chance_f1(starts, [[facts] for facts in starts], ["x"] * len(starts))
    if chance is None:
        return
    for own, expected in zip(starts, chance, strict=True):
        scores = []
        for other in starts:
            if other != own:
                answers = np.array([[float(fact in other)] for fact in own])
                surplus = {"object": np.array([len(other - own)])}
                scores.append(fact_f1(FactAnswers(("object",) * len(own), answers, surplus))[0])
        assert expected == pytest.approx(np.mean(scores))


def test_a_known_decay_has_its_half_life() -> None:
    """A share of 0.8, 0.6, 0.4 crosses one half between generations 2 and 3, at 2.5."""
    found = half_life(np.tile([0.8, 0.6, 0.4], (500, 1)), [1, 2, 3])
    assert found.value == pytest.approx(2.5)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 2.5 < found.high
    assert str(found) == f"2.5 ({found.low:.1f} to {found.high:.1f})"


def test_nothing_is_extrapolated() -> None:
    """A share that never falls to one half has a half-life of more than the chain."""
    found = half_life(np.tile([0.99, 0.9], (400, 1)), [2, 4])
    assert (found.value, found.low, found.high) == (None, None, None)
    assert str(found) == "more than 4"


def test_few_samples_leave_the_bound_open() -> None:
    """Three samples that lost a third: the half-life may lie within the chain, and it may not."""
    found = half_life(np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), [1, 2])
    assert found.value is None
    assert found.low is not None
    assert str(found).startswith("more than 2 (from ")


def test_facts_without_an_answer_are_left_out() -> None:
    """Samples that were not answered at a generation do not stand for others there."""
    found = half_life(np.array([[1.0, nan], [0.0, nan], [nan, nan]]), [1, 2])
    assert found.units == 2
    assert found.last == 1
    assert found.value == pytest.approx(1.0)
    with pytest.raises(ValueError, match="no fact of the kind"):
        half_life(np.array([[nan]]), [1])


@pytest.mark.parametrize("generations", [[2, 1], [0, 1], [1]])
def test_generations_rise_from_one(generations: list[int]) -> None:
    """The start is no generation, and each column has one."""
    with pytest.raises(ValueError, match="rising generations"):
        half_life(np.ones((2, 2)), generations)


def test_the_interval_covers() -> None:
    """Of 400 studies of 30 chains whose share halves at 2.5, at least 95 % hold that."""
    rng = np.random.default_rng(21)
    level = np.array([0.8, 0.6, 0.4])
    covered = 0
    for _ in range(400):
        alive = rng.random((30, 1)) < level  # each chain loses all its facts at one moment
        found = half_life(alive.astype(float), [1, 2, 3])
        covered += (found.low or 9) <= 2.5 <= (found.high or 9)
    assert covered >= 0.95 * 400


def test_the_role_that_loses_is_known() -> None:
    """Every loss at a describing step is the describer's; what comes back is counted apart."""
    answers = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    roles: tuple[Role, ...] = ("describer", "generator", "describer", "generator")
    describer, generator = attribute_losses([answers], roles)
    assert (describer.role, describer.steps, describer.right, describer.lost) == (
        "describer", 2, 5, 2,
    )  # fmt: skip
    assert (generator.right, generator.lost, generator.wrong, generator.regained) == (3, 0, 3, 1)


def test_tables_of_other_lengths_are_refused() -> None:
    """Each column belongs to a step."""
    with pytest.raises(ValueError, match="expected answers after 2 steps"):
        attribute_losses([np.ones((1, 3))], ("describer", "generator"))
