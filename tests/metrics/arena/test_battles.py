"""Battles as columns: what is refused, and how verdicts in both orders weigh."""

from __future__ import annotations

import pytest

from pytest_cepbench.metrics.battles import BattleTable, JudgedBattle


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


def test_both_orders_of_a_battle_weigh_as_one() -> None:
    """Each verdict counts half; battles of other models or questions are not touched."""
    table = BattleTable(
        [
            JudgedBattle("q1", "a", "b", "A"),
            JudgedBattle("q1", "b", "a", "A"),
            JudgedBattle("q1", "a", "c", "A"),
            JudgedBattle("q2", "a", "b", "A"),
        ]
    )

    assert table.weights.tolist() == [0.5, 0.5, 1.0, 1.0]


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
