"""Battles: tables, the roulette that arranges them, and win rates."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
