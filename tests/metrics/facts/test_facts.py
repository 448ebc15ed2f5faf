"""Facts and the score of their answers: bounds, invariances, and what is refused."""

from __future__ import annotations

from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cepbench.metrics.facts import (
    KINDS,
    Fact,
    FactAnswers,
    chance_f1,
    check_kinds,
    fact_f1,
    right_share,
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


def test_the_known_kinds_are_named() -> None:
    """The one line that refuses a kind lists all that there are."""
    with pytest.raises(ValueError, match="Known: ") as raised:
        check_kinds(["object", "smell"])
    assert "\n" not in str(raised.value)
    assert all(kind in str(raised.value) for kind in KINDS)


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
def test_the_score_is_a_share(checked: FactAnswers) -> None:
    """In [0, 1] wherever a fact was answered, and no number where none was."""
    scores = fact_f1(checked)
    for score, column in zip(scores, checked.answers.T, strict=True):
        assert isnan(score) == bool(np.isnan(column).all())
        assert isnan(score) or 0 <= score <= 1


@given(checked_facts(), st.randoms(use_true_random=False))
def test_the_order_of_facts_does_not_matter(checked: FactAnswers, random: object) -> None:
    """Facts are a set: any order of them has the same score."""
    order = list(range(len(checked.kinds)))
    random.shuffle(order)  # type: ignore[attr-defined] # hypothesis' random has no public type
    shuffled = FactAnswers(
        tuple(checked.kinds[i] for i in order), checked.answers[order], checked.surplus
    )
    assert fact_f1(shuffled) == pytest.approx(fact_f1(checked), nan_ok=True)


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


@given(checked_facts(), st.data())
def test_a_fact_that_turns_right_never_lowers_the_score(
    checked: FactAnswers, data: st.DataObject
) -> None:
    """Monotone in every answer."""
    row = data.draw(st.integers(0, len(checked.kinds) - 1))
    better = checked.answers.copy()
    better[row] = np.where(np.isnan(better[row]), nan, 1.0)
    raised = fact_f1(FactAnswers(checked.kinds, better, checked.surplus))
    before = fact_f1(checked)
    answered = ~np.isnan(before)
    assert (raised[answered] >= before[answered] - 1e-12).all()


@given(checked_facts())
def test_answers_of_other_kinds_do_not_change_a_share(checked: FactAnswers) -> None:
    """The share of a kind is the mean of its own answered facts."""
    for kind in set(checked.kinds):
        rows = [answers for own, answers in zip(checked.kinds, checked.answers, strict=True)
                if own == kind]  # fmt: skip
        for place, share in enumerate(right_share(checked, kind)):
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
    if surplus is not None:
        with pytest.raises(ValueError, match=message):
            FactAnswers(("object",), np.array(answers), {}, surplus)  # type: ignore[arg-type]


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
