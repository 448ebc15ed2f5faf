"""Facts: scores, half-lives, losses by role; Soft-TIFA's means of answers, and its controls."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gmean

from pytest_cepbench.metrics.facts import (
    KINDS,
    ControlAccuracy,
    Fact,
    FactAnswers,
    MeanName,
    Role,
    attribute_losses,
    chance_f1,
    fact_f1,
    fail_descendants,
    half_life,
    means_by_kind,
    soft_tifa,
    summarize_facts,
)
from tests.optional import known


@st.composite
def checked_facts(draw: st.DrawFn) -> FactAnswers:
    """Answers on up to eight facts in up to four artifacts."""
    artifacts = draw(st.integers(1, 4))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=8))
    rows = st.lists(st.floats(0, 1), min_size=artifacts, max_size=artifacts)
    answers = draw(st.lists(rows, min_size=len(kinds), max_size=len(kinds)))
    counts = st.lists(st.integers(0, 3), min_size=artifacts, max_size=artifacts)
    surplus = draw(st.dictionaries(st.sampled_from(KINDS), counts.map(np.array)))
    return FactAnswers(tuple(kinds), np.array(answers), surplus)


def test_f1_by_hand() -> None:
    """Two of three objects right and one claimed too many: 2*2/(2+3+1); the count is wrong: 0."""
    answers = np.array([[1.0], [1.0], [0.0], [0.0]])
    kinds = ("object", "object", "object", "count")
    surplus = {"object": np.array([1]), "count": np.array([1])}
    assert fact_f1(FactAnswers(kinds, answers, surplus)) == pytest.approx([(4 / 6 + 0) / 2])
    lone = FactAnswers(("object",), np.array([[1.0]]), {"relation": np.array([1])})
    assert fact_f1(lone) == pytest.approx([0.5])  # a kind that only the artifact claims


@given(checked_facts())
def test_one_only_where_all_is_true_and_nothing_is_added(checked: FactAnswers) -> None:
    """The best score is that of an artifact that says the facts, all of them and no others."""
    scores = fact_f1(checked)
    for place, score in enumerate(scores):
        column = checked.answers[:, place]
        added = sum(counts[place] for counts in checked.surplus.values())
        assert (score == 1) == bool((column == 1).all() and added == 0) or score > 1 - 1e-9


@pytest.mark.parametrize(
    ("answers", "surplus", "message"),
    [
        ([[1.0], [0.0]], {}, "expected answers on 1 facts"),
        ([1.0], {}, "expected answers on 1 facts"),
        ([[[1.0]]], {}, "expected answers on 1 facts"),
        ([[1.5]], {}, r"lie in \[0, 1\]"),
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
    many = chance_f1(starts * 100, claims * 100, ["x", "x", "y"] * 100)
    assert many == pytest.approx(np.tile(known(apart), 100))
    # Where all are alike no sample can stand for another.
    assert chance_f1([_facts("a")] * 3, [[_facts("a")]] * 3, ["x"] * 3) is None


FACTS = st.sampled_from(
    [Fact(kind, word) for kind in ("object", "count", "color") for word in "ab"]
)


@given(
    st.lists(
        st.tuples(st.frozensets(FACTS, min_size=1), st.frozensets(FACTS), st.sampled_from("xy")),
        min_size=2,
        max_size=8,
    )
)
def test_chance_agrees_with_the_score_of_each_pair(
    samples: list[tuple[frozenset[Fact], frozenset[Fact], str]],
) -> None:
    """The groups of claims hold what `fact_f1` says of each pair: start, claim and category."""
    starts, claims, homes = zip(*samples, strict=True)
    chance = chance_f1(starts, [[claim] for claim in claims], homes)
    if chance is None:
        return
    for own, home, expected in zip(starts, homes, chance, strict=True):
        others = [(claim, place) for start, claim, place in samples if start != own]
        near = [claim for claim, place in others if place == home]
        scores = []
        for claim in near or [claim for claim, _ in others]:
            answers = np.array([[float(fact in claim)] for fact in own])
            surplus = Counter(fact.kind for fact in claim - own)
            extra = {kind: np.array([count]) for kind, count in surplus.items()}
            kinds = tuple(fact.kind for fact in own)
            scores.append(fact_f1(FactAnswers(kinds, answers, extra))[0])
        assert expected == pytest.approx(np.mean(scores))


def test_a_known_decay_has_its_half_life() -> None:
    """A share of 0.8, 0.6, 0.4 crosses one half at 2.5; nothing is extrapolated."""
    value, low, high = half_life(np.tile([0.8, 0.6, 0.4], (500, 1)), [1, 2, 3])
    assert value == pytest.approx(2.5)
    assert known(low) < 2.5 < known(high)
    assert half_life(np.tile([0.99, 0.9], (400, 1)), [2, 4]) == (None, None, None)
    with pytest.raises(ValueError, match="rising generations"):
        half_life(np.ones((2, 2)), [2, 1])
    # Three samples that lost a third: the half-life may lie within the chain, and it may not.
    value, low, _ = half_life(np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), [1, 2])
    assert (value, known(low) > 0) == (None, True)


def test_the_interval_covers() -> None:
    """Of 400 studies of 30 chains whose share halves at 2.5, at least 95 % hold that."""
    rng = np.random.default_rng(21)
    level = np.array([0.8, 0.6, 0.4])
    covered = 0
    for _ in range(400):
        alive = rng.random((30, 1)) < level  # each chain loses all its facts at one moment
        _, low, high = half_life(alive.astype(float), [1, 2, 3])
        covered += (low or 9) <= 2.5 <= (high or 9)
    assert covered >= 0.95 * 400


def test_samples_of_a_unit_count_as_one_in_a_summary() -> None:
    """And samples without facts of a kind are none of its units; each kind has its own curve."""
    both = FactAnswers(("count", "color"), np.array([[1.0, 0.0], [1.0, 1.0]]), {})
    color = FactAnswers(("color",), np.array([[0.0, 0.0]]), {})
    roles: tuple[Role, ...] = ("describer", "generator")
    summary = summarize_facts([both, color, color], ["a", "b", "b"], (1, 2), roles)
    count, colors = summary.kinds
    assert (count.kind, count.facts, count.curve) == ("count", 1, (1.0, 0.0))
    assert (colors.kind, colors.facts, colors.curve) == ("color", 3, (0.5, 0.5))
    assert (summary.every.facts, summary.every.curve) == (4, (0.5, 0.25))
    assert (summary.every.half_life, summary.every.last) == (1.0, 2)
    with pytest.raises(ValueError, match="expected answers of at least one sample"):
        summarize_facts([], [], (1, 2), roles)


def test_the_role_that_loses_is_known() -> None:
    """Every loss at a describing step is the describer's; what comes back is counted apart."""
    answers = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    describer, generator = attribute_losses(answers, ("describer", "generator") * 2)
    assert (describer.role, describer.steps, describer.right, describer.lost) == (
        "describer", 2, 5, 2,
    )  # fmt: skip
    assert (generator.right, generator.lost, generator.wrong, generator.regained) == (3, 0, 3, 1)
    with pytest.raises(ValueError, match="expected answers after 2 steps"):
        attribute_losses(np.ones((1, 3)), ("describer", "generator"))


PROBABILITIES = st.lists(st.floats(0, 1), min_size=1, max_size=12)

MEANS: tuple[MeanName, ...] = ("geometric", "arithmetic")


@given(PROBABILITIES)
def test_scores_are_those_of_the_released_code(atoms: list[float]) -> None:
    """GenEval 2's script takes SciPy's gmean for GM, and the plain mean for AM."""
    with np.errstate(divide="ignore"):
        expected = float(gmean(atoms))
    assert soft_tifa(atoms) == pytest.approx(expected, abs=1e-12)
    assert soft_tifa(atoms, "arithmetic") == pytest.approx(sum(atoms) / len(atoms), abs=1e-12)


@given(st.floats(0, 1), st.integers(1, 12), st.sampled_from(MEANS))
def test_chance_is_the_answerers_own(p: float, atoms: int, mean: MeanName) -> None:
    """A model that gives each right answer p, whatever it sees, scores p. What is no probability is
    refused, and so is no atom at all: a prompt that asks nothing is not met.
    """
    assert soft_tifa([p] * atoms, mean) == pytest.approx(p, abs=1e-12)
    wrong: list[Any] = [[], [1.5], [-0.1], [math.nan], [[0.5]]]
    for own in wrong:
        with pytest.raises(ValueError, match="expected"):
            soft_tifa(own)


def test_descendants_of_a_failed_atom_have_failed() -> None:
    """A color of a dog that is not there, and what stands beside it, however sure the model is."""
    parents = [(), (0,), (1,), (), (3,)]
    assert fail_descendants([0.4, 0.9, 0.9, 0.5, 0.2], parents) == (0.4, 0.0, 0.0, 0.5, 0.2)
    with pytest.raises(ValueError, match="places before its own"):
        fail_descendants([1.0, 1.0], [(1,), ()])
    # Means by kind are as GenEval 2 sums up skills: of all atoms, whatever their prompts.
    kinds = ["object", "count", "object", "object"]
    assert means_by_kind(kinds, [1.0, 0.5, 0.0, 0.5]) == {"count": (0.5, 1), "object": (0.5, 3)}


@given(st.integers(10, 60), st.integers(10, 60), st.floats(0.51, 1.0))
def test_an_answer_that_is_always_the_same_shows(yes: int, no: int, least: float) -> None:
    """One that says yes to all has no absent right, one that says no to all no present one."""
    assert ControlAccuracy.of([1.0] * yes, [0.0] * no).below(least)
    assert ControlAccuracy.of([0.0] * yes, [1.0] * no).below(least)
    assert not ControlAccuracy.of([1.0] * yes, [1.0] * no).below(least)
    assert not ControlAccuracy.of((), [1.0] * no).below(least)
    # One half to every answer is no answer, and nothing below it is.
    assert ControlAccuracy.of([0.5] * yes, [0.5] * no) == ControlAccuracy((0, yes), (0, no))
    # Two of four wrong is no evidence against a model that is right nine times of ten.
    assert not ControlAccuracy.of([1.0], [0.9, 0.9, 0.1, 0.1]).below(0.9)
    assert ControlAccuracy.of([1.0], [0.1, 0.1]).below(0.6)
    assert str(ControlAccuracy.of([1.0], [0.9, 0.1])) == (
        "1 of 1 about what is present (100.0%) and 1 of 2 about what is absent (50.0%)"
    )
