"""Battles: tables, the roulette that arranges them, win rates, ratings and the ranks they allow."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from pytest_cepbench.artifacts.outcome import WINNERS
from pytest_cepbench.metrics.battles import (
    TIE_POLICIES,
    BattleRecord,
    BattleTable,
    Forfeit,
    ForfeitPolicy,
    JudgedBattle,
    battle_records,
    roulette,
)
from pytest_cepbench.metrics.pair_models import (
    RankInterval,
    _likelihood,
    fit_ratings,
    max_t_intervals,
    ranks_of,
)
from tests.metrics.arena.panels import panels, simulate, swap


def test_columns() -> None:
    """Models are sorted; a battle points at them and at its question."""
    table = BattleTable(
        [
            JudgedBattle("q1", "b", "a", "A"),
            JudgedBattle("q2", "a", "c", "Tie(B)"),
            JudgedBattle("q1", "c", "b", "B"),
        ]
    )

    assert table.models == ("a", "b", "c")
    assert (table.first.tolist(), table.second.tolist()) == ([1, 0, 2], [0, 2, 1])
    assert table.grades.tolist() == [0, 2, 3]
    assert table.questions.tolist() == [0, 1, 0]
    assert len(table) == 3
    # Of both orders of a battle each verdict counts half.
    drawn = (("q1", "a", "b"), ("q1", "b", "a"), ("q1", "a", "c"), ("q2", "a", "b"))
    both = BattleTable([JudgedBattle(*battle, "A") for battle in drawn])
    assert both.weights.tolist() == [0.5, 0.5, 1.0, 1.0]


@pytest.mark.parametrize(
    ("battles", "message"),
    [
        ([], "at least one battle"),
        ([JudgedBattle("q", "a", "a", "A")], "question 'q': 'a' cannot battle against itself"),
        (
            [JudgedBattle("q", "a", "b", "A"), JudgedBattle("q", "a", "b", "B")],
            "'a' against 'b' was judged 2 times in this order; keep one",
        ),
        (
            [JudgedBattle(q, "a", "b", "A") for q in ("q", "q", "r", "r", "r")],
            "question 'q': 'a' against 'b' was judged 2 times in this order, and 1 more;",
        ),
    ],
)
def test_refused(battles: list[JudgedBattle], message: str) -> None:
    """No battles, a model against itself, the same battle twice."""
    with pytest.raises(ValueError, match=message):
        BattleTable(battles)


DRAW = [
    ("0101001", "e", "c"),
    ("0101001", "c", "d"),
    ("0101001", "e", "b"),
    ("0101002", "e", "d"),
    ("0101002", "b", "e"),
    ("0101002", "c", "a"),
]


def names(count: int) -> list[str]:
    """Models."""
    return [f"model-{i}" for i in range(count)]


@given(st.integers(2, 14), st.data())
def test_no_pair_meets_twice_over_a_question(count: int, data: st.DataObject) -> None:
    """Each question has a battle per round, all of different pairs, in any number of rounds."""
    rounds = data.draw(st.integers(1, comb(count, 2)))
    battles = roulette(names(count), {"t": ["q1", "q2", "q3"]}, rounds)

    assert Counter(battle.question for battle in battles) == dict.fromkeys(
        ("q1", "q2", "q3"), rounds
    )
    met = {(battle.question, frozenset((battle.first, battle.second))) for battle in battles}
    assert len(met) == len(battles)


def test_seed_and_task_change_the_draw() -> None:
    """Another seed or task is another ring; the order in which models are named is not."""
    questions = [f"q{i}" for i in range(8)]
    draws = [
        roulette(names(8), {"t": questions}, 1, seed=0),
        roulette(names(8), {"t": questions}, 1, seed=1),
        roulette(names(8), {"u": questions}, 1, seed=0),
    ]
    assert all(one_draw != other for one_draw, other in pairwise([*draws, draws[0]]))
    assert roulette(names(8)[::-1], {"t": questions}, 1) == draws[0]
    # Stored verdicts are of these battles: another version must arrange the same ones.
    battles = roulette(list("abcde"), {"0101": ["0101001", "0101002"]}, 3)

    assert [(b.question, b.first, b.second) for b in battles] == DRAW


@pytest.mark.parametrize(
    ("models", "rounds", "message"),
    [
        (["a"], 1, "two or more different models"),
        (["a", "b", "a"], 1, "two or more different models"),
        (["a", "b", "c"], 0, "1 to 3 rounds: 3 models make 3 pairs; got 0"),
        (["a", "b", "c"], 4, "got 4"),
    ],
)
def test_rounds_and_models_that_are_refused(models: list[str], rounds: int, message: str) -> None:
    """Fewer than two models, one twice, more rounds than pairs."""
    with pytest.raises(ValueError, match=message):
        roulette(models, {"t": ["q"]}, rounds)


PANEL = [
    JudgedBattle("q1", "a", "b", "A"),
    JudgedBattle("q2", "a", "b", "Tie(A)"),
    JudgedBattle("q3", "b", "a", "Tie(A)"),
    JudgedBattle("q4", "b", "a", "A"),
    JudgedBattle("q5", "a", "c", "B"),
]


def test_policies() -> None:
    """Of a: one battle won, two tied (one leaning to it), two lost. A missing answer loses; its
    opponent, without another battle, wins where it is credited.
    """
    record = battle_records(BattleTable(PANEL))["a"]

    assert record == BattleRecord(wins=1, ties_for=1, ties_against=1, losses=2)
    rates = {policy: record.win_rate(policy) for policy in TIE_POLICIES}
    assert rates == {
        "fdt": 2 / 5,
        "without_ties": 1 / 3,
        "ties_as_zero": 1 / 5,
        "ties_as_half": 2 / 5,
    }
    tied = battle_records(BattleTable([JudgedBattle("q", "a", "b", "Tie(B)")]))["a"]
    # None of a model with ties alone, not 0: nothing was decided.
    assert [tied.win_rate(policy) for policy in TIE_POLICIES] == [0, None, 0, 0.5]
    battles = [JudgedBattle("q1", "a", "b", "A"), JudgedBattle("q2", "a", "b", "B")]
    policies: dict[ForfeitPolicy, BattleRecord] = {
        "charged_and_credited": BattleRecord(wins=1),
        "charged": BattleRecord(),
    }
    for policy, opponent in policies.items():
        records = battle_records(BattleTable(battles), [Forfeit("q3", "a", "c")], policy)
        assert (records["a"], records["c"]) == (BattleRecord(wins=1, losses=2), opponent)


# -- ratings and ranks -----------------------------------------------------------------------------


TRUTH = np.array([1.0, 0.4, 0.0, -0.5, -0.9])


def test_derivatives_and_probabilities() -> None:
    """Gradient and Hessian are those of the likelihood; all verdicts of a battle sum to 1."""
    rng = np.random.default_rng(1)
    design, grades = rng.normal(size=(40, 3)), np.arange(40) % 4
    weights, point = rng.uniform(0.5, 1, 40), rng.normal(0, 0.3, 4)

    def gradient(at: Any) -> Any:
        return _likelihood(at, design, grades, weights)[1].sum(axis=0)

    def value(at: Any) -> float:
        return _likelihood(at, design, grades, weights)[0]

    assert gradient(point) == pytest.approx(approx_fprime(point, value, 1e-7), abs=1e-4)
    numeric = approx_fprime(point, gradient, 1e-7)
    assert _likelihood(point, design, grades, weights)[2] == pytest.approx(numeric, abs=1e-4)
    one = np.eye(1)
    logs = [_likelihood(np.array([0.7, -0.4]), one, np.array([v]), one[0])[0] for v in range(4)]
    assert sum(np.exp(logs)) == pytest.approx(1)


@given(panels())
@settings(max_examples=15)
def test_exchanged_sides_turn_the_order_effect(battles: list[JudgedBattle]) -> None:
    """Ratings stay, the preference for the first answer changes its sign."""
    leans = {battle.winner in ("A", "Tie(A)") for battle in battles}
    assume(leans == {True, False})
    try:
        fit = fit_ratings(BattleTable(battles))
    except ValueError:
        assume(False)  # groups that never met
        raise
    assume(fit.order_error is not None and fit.order_error < 3)  # else the likelihood is flat
    swapped = fit_ratings(BattleTable(swap(battles)))

    assert swapped.ratings == pytest.approx(fit.ratings, abs=1e-3)
    assert swapped.order_effect == pytest.approx(-(fit.order_effect or 0), abs=1e-3)


def test_both_orders_do_not_count_twice() -> None:
    """A question's battles of both orders weigh as one each, and are one cluster for the errors."""
    battles = simulate(TRUTH, 400, np.random.default_rng(4), order_effect=0)
    doubled = fit_ratings(BattleTable([*battles, *swap(battles)]))
    single = fit_ratings(BattleTable(battles))

    assert doubled.errors == pytest.approx(single.errors, rel=0.01)
    assert doubled.order_effect == pytest.approx(0, abs=1e-6)


def test_clusters_widen_the_errors() -> None:
    """A question whose verdict is repeated for copies of other models tells less than new ones."""
    battles = simulate(TRUTH, 300, np.random.default_rng(5), per_question=1)
    copies, names = (
        [JudgedBattle(b.question + new, b.first + twin, b.second, b.winner)
         for b in battles for new, twin in pair]
        # A twin of the first model in every second copy, so that a question has no battle twice.
        for pair in ((("a", ""), ("b", "")), (("", ""), ("", "'")))
    )  # fmt: skip
    alone, clustered = fit_ratings(BattleTable(copies)), fit_ratings(BattleTable(names))

    assert clustered.errors.mean() > 1.3 * alone.errors.mean()


def test_a_model_that_wins_everything_stays_within_bounds() -> None:
    """Its rating is finite and the highest, and the fit says how."""
    battles = [
        JudgedBattle(f"q{i}{a}{b}", a, b, "A" if a == "best" else WINNERS[i % 4])
        for i in range(8)
        for a, b in combinations(["best", "x", "y"], 2)
    ]
    fit = fit_ratings(BattleTable([*battles, *swap(battles)]))

    assert fit.regularized
    assert dict(zip(fit.models, fit.ratings, strict=True))["best"] == fit.ratings.max() < 10
    assert fit.ratings.sum() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("kinds", [("A", "B"), ("Tie(A)", "Tie(B)")], ids=["no ties", "only ties"])
def test_without_ties_or_with_ties_alone(kinds: tuple[str, str]) -> None:
    """The tie parameter stays finite, and the errors with it."""
    battles = [
        JudgedBattle(f"q{i}{a}{b}", a, b, kinds[(i + ord(a)) % 3 == 0])  # type: ignore[arg-type]
        for i in range(9)
        for a, b in combinations("abc", 2)
    ]
    fit = fit_ratings(BattleTable(battles))

    assert fit.regularized
    assert np.isfinite(fit.errors).all()


def refusal(*verdicts: tuple[Any, ...]) -> str:
    """Why verdicts, each on a question of its own, say nothing of the models."""
    battles = [JudgedBattle(f"q{i}", *verdict) for i, verdict in enumerate(verdicts)]
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - of which the message is returned
        fit_ratings(BattleTable(battles))
    return str(raised.value)


def test_verdicts_that_say_nothing_of_the_models() -> None:
    """Of groups that never met, of one order alone, and of a judge that leans to one side.

    With the same model first in every battle, its level and the judge's habit are one number.
    """
    apart = refusal(("a", "b", "A"), ("b", "a", "A"), ("c", "d", "B"))
    assert "c, d never met a or a model that did" in apart
    one_order = refusal(*(("a", "b", winner) for winner in WINNERS))
    assert "cannot be told from the level of the models: show the" in one_order
    for side, winners in (("first", ("A", "Tie(A)")), ("second", ("B", "Tie(B)"))):
        pairs = enumerate(combinations("abcd", 2))
        leaning = refusal(*((first, second, winners[i % 2]) for i, (first, second) in pairs))
        assert f"leaned to the {side} answer in all 6 battles" in leaning


def test_intervals_hold_what_was_simulated() -> None:
    """40 panels of 600 battles, difference of the first and last model and order effect: about 95
    of 100.
    """
    ends, hits = np.array([1.0, 0, 0, 0, -1.0]), []
    for seed in range(40):
        fit = fit_ratings(BattleTable(simulate(TRUTH, 600, np.random.default_rng(seed))))
        error = np.sqrt(ends @ fit.covariance @ ends)
        hits.append(abs(ends @ fit.ratings - ends @ TRUTH) < 1.96 * error)
        hits.append(abs((fit.order_effect or 0) - 0.3) < 1.96 * (fit.order_error or 0))
    assert 0.89 < np.mean(hits) <= 1


def test_models_that_are_not_told_apart_share_their_ranks() -> None:
    """By Tukey's studentized range of 3 models, 3.314 for errors of root 2, the first is surely
    better than the last alone.
    """
    half = max_t_intervals(np.eye(3))
    assert half[0, 1] == pytest.approx(3.314, abs=0.05)
    assert max_t_intervals(np.eye(24))[0, 1] == pytest.approx(5.144, abs=0.05)
    ranks = ranks_of(np.array([5.0, 2.5, 0.0]), half)
    assert ranks == (RankInterval(1, 2), RankInterval(1, 3), RankInterval(2, 3))


def test_few_questions_do_not_make_ratings_sure() -> None:
    """Verdicts on one question tell little, however many: no error shrinks towards 0."""
    battles = simulate(TRUTH, 8, np.random.default_rng(6), per_question=8)
    many = simulate(TRUTH, 800, np.random.default_rng(6), per_question=8)

    few_errors = fit_ratings(BattleTable(battles)).errors
    assert few_errors.min() > 10 * fit_ratings(BattleTable(many)).errors.max()
